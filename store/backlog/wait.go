package backlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/store"
)

// readyChannel is notified when tasks became claimable. A notification is a
// hint: it may be lost, and who waits looks by itself too.
const readyChannel = "spawnmesh_ready"

// betweenLooks is how often a waiting claimer looks without having been told, and asks
// whether it is to leave.
const betweenLooks = time.Second

const notify = `SELECT pg_notify('` + readyChannel + `', '') WHERE EXISTS (SELECT FROM listeners WHERE until > now())`

// tellClaimers wakes claimers that wait, when there are any, after the commit.
func tellClaimers(ctx context.Context, tx *store.Tx) error {
	if _, err := tx.Exec(ctx, notify); err != nil {
		return fmt.Errorf("telling claimers that wait: %w", err)
	}
	return nil
}

// ErrLeaving says that a waiting claim was asked to leave the database.
var ErrLeaving = errors.New("the database is about to be stopped")

// ClaimWait sweeps and claims. While nothing is admissible it waits for a notification,
// and looks again from time to time, as nobody notifies of a time that has come. It
// returns nothing when the time until is over, and [ErrLeaving] when leaving says so.
func (ws *Workspace) ClaimWait(ctx context.Context, t ClaimTerms, until time.Time, leaving func() bool) ([]Claimed, error) {
	list, err := ws.sweepAndClaim(ctx, t)
	if err != nil || len(list) > 0 || !time.Now().Before(until) {
		return list, err
	}
	l, err := ws.Listen(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	for {
		if list, err = ws.sweepAndClaim(ctx, t); err != nil || len(list) > 0 {
			return list, err
		}
		left := time.Until(until)
		if left <= 0 {
			return nil, nil
		}
		if leaving() {
			return nil, ErrLeaving
		}
		if err := l.Wait(ctx, min(left, betweenLooks)); err != nil {
			return nil, err
		}
	}
}

func (ws *Workspace) sweepAndClaim(ctx context.Context, t ClaimTerms) ([]Claimed, error) {
	if _, err := ws.Sweep(ctx); err != nil {
		return nil, err
	}
	return ws.Claim(ctx, t)
}

// A Listener is told when tasks become claimable. While it waits it has one
// connection, which is free for the claim in between.
type Listener struct {
	db   *store.DB
	id   string
	said time.Time // when it was last noted that we wait
}

// listening is how long a note that somebody waits holds.
const listening = time.Minute

// Listen starts to wait for tasks that become claimable. The caller looks once
// more after it: what came before is not told.
func (ws *Workspace) Listen(ctx context.Context) (*Listener, error) {
	l := &Listener{db: ws.backlog.db, id: uuid.NewString()}
	if err := l.Wait(ctx, 0); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Listener) note(ctx context.Context, conn *pgx.Conn) error {
	if time.Since(l.said) < listening/2 {
		return nil
	}
	_, err := conn.Exec(ctx, `INSERT INTO listeners (id, until) VALUES ($1, now() + $2::interval) ON CONFLICT (id) DO UPDATE SET until = excluded.until`, l.id, listening)
	if err != nil {
		return fmt.Errorf("noting that a claimer waits: %w", err)
	}
	l.said = time.Now()
	return nil
}

// Wait returns when tasks may have become claimable, and after d at the latest.
// It connects again after an outage.
func (l *Listener) Wait(ctx context.Context, d time.Duration) error {
	return l.db.Await(ctx, "waiting for claimable tasks", readyChannel, d, l.note)
}

// Close ends the waiting.
func (l *Listener) Close() {
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	_ = l.db.Read(ctx, "ending the wait", func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `DELETE FROM listeners WHERE id = $1`, l.id) // it ends by itself within a minute
		return err
	})
}
