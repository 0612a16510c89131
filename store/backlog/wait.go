package backlog

import (
	"context"
	"errors"
	"fmt"
	"time"

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
