package backlog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A LaneCount is how many tasks of a lane are in one state.
type LaneCount struct {
	Lane  string // "other" = those that have no name of their own here
	State string // queued tasks by where they stand: ready, due or deps
	Tasks int64
}

// Figures count the backlog of an instance, with all its workspaces.
type Figures struct {
	Lanes         []LaneCount
	ExpiredLeases int64
	OldestReady   time.Duration // since its creation, in the main workspace; 0 = none is ready
}

// namedLanes bounds how many lanes have figures of their own.
const namedLanes = 50

// Figures counts without reading the tasks.
func (b *Backlog) Figures(ctx context.Context) (f Figures, err error) {
	err = b.db.Read(ctx, "counting all tasks", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, statement("count_lanes"), namedLanes)
		if err != nil {
			return err
		}
		if f.Lanes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LaneCount]); err != nil {
			return err
		}
		var oldest *time.Time
		var now time.Time
		err = conn.QueryRow(ctx, statement("oldest_ready"), MainWorkspace).Scan(&oldest, &f.ExpiredLeases, &now)
		if f.OldestReady = 0; oldest != nil {
			f.OldestReady = max(0, now.Sub(*oldest))
		}
		return err
	})
	return f, err
}
