package backlog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/store"
)

// An Overrun is an open attempt that takes much longer than estimated.
type Overrun struct {
	Task    string
	Attempt int
	Over    bool // it has told no progress since that was warned of, and is to be ended
}

// mostOverruns is how many are noted in one transaction; the next one is due at once where there are more.
const mostOverruns = 1000

// Overruns notes what is due of the attempts of owner that have an estimate, and returns all that overrun theirs, and how long nothing more
// is due, at most limit.
func (b *Backlog) Overruns(ctx context.Context, owner string, limit time.Duration) (list []Overrun, next time.Duration, err error) {
	list, next, err = b.overruns(ctx, owner, limit)
	if err != nil || next > 0 {
		return list, next, err
	}
	err = b.db.Tx(ctx, "noting which attempts run longer than estimated", func(ctx context.Context, tx *store.Tx) error {
		tx.TellNobody()
		_, err := tx.Exec(ctx, statement("note_overruns"), owner, mostOverruns)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return b.overruns(ctx, owner, limit)
}

func (b *Backlog) overruns(ctx context.Context, owner string, limit time.Duration) (list []Overrun, next time.Duration, err error) {
	err = b.db.Read(ctx, "looking for attempts that run longer than estimated", func(ctx context.Context, conn *pgxpool.Conn) error {
		list, next = nil, limit
		rows, err := conn.Query(ctx, statement("overruns"), owner)
		if err != nil {
			return err
		}
		var o Overrun
		var warned bool
		var due *float64
		_, err = pgx.ForEachRow(rows, []any{&o.Task, &o.Attempt, &warned, &o.Over, &due}, func() error {
			if warned {
				list = append(list, o)
			}
			if due != nil {
				next = min(next, time.Duration(*due*float64(time.Second)))
			}
			return nil
		})
		return err
	})
	return list, next, err
}

// Overran reports whether an attempt is to be ended, or was, as it overran its estimate.
func (b *Backlog) Overran(ctx context.Context, f Fence) (over bool, err error) {
	err = b.db.Read(ctx, "looking whether an attempt has overrun its estimate", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM overruns WHERE task = $1 AND attempt = $2 AND over_at IS NOT NULL)`, f.Task, f.Attempt).Scan(&over)
	})
	return over, err
}
