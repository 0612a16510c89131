package backlog

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Renew extends the leases of fences, which are the instance's own, by lease, in one statement, and returns
// the fences that still hold. One that is not among them was replaced or
// revoked: its worker must stop.
func (b *Backlog) Renew(ctx context.Context, fences []Fence, lease time.Duration) (map[Fence]bool, error) {
	f := fencesOf(fences, func(f Fence) Fence { return f })
	held := map[Fence]bool{}
	err := b.db.Tx(ctx, "renewing leases", func(ctx context.Context, tx *store.Tx) error {
		clear(held)
		tx.TellNobody()
		rows, err := tx.Query(ctx, statement("renew_leases"), f.task, f.epoch, lease)
		if err != nil {
			return err
		}
		var f Fence
		_, err = pgx.ForEachRow(rows, []any{&f.Task, &f.Attempt, &f.Epoch}, func() error { held[f] = true; return nil })
		return err
	})
	return held, err
}

// An OpenAttempt is an attempt that has not ended, as a restarted worker finds it.
type OpenAttempt struct {
	Fence   Fence // the one that may write now: after a kill, the killer's
	Owner   string
	Started bool
	Forgot  bool // what was done to it may not be known here: this database was restored from a backup since, or before it has started
	BootID  string
	Shim    Shim
	Age     time.Duration // since the claim, without what its agent stood still
	Renewed time.Time     // the last time that its lease was
	Asked   Asked
	Conn    string         // who asked for it; "" = this instance
	Outline commands.Spawn // its runtime, its times and its trace; the rest, which may be large, is in [Backlog.Order]
}

// OpenPage is how many attempts [Backlog.OpenAttempts] returns at most.
const OpenPage = 100

// OpenAttempts returns attempts of owner that have not ended, of tasks that the spoke runs, by their tasks: those above after, "" = from the
// first one on. Those that are followed it leaves out. Fewer than [OpenPage] are the last ones.
func (b *Backlog) OpenAttempts(ctx context.Context, owner string, followed []Fence, after string) (list []OpenAttempt, err error) {
	f := fencesOf(followed, func(f Fence) Fence { return f })
	err = b.db.Read(ctx, "reading the open attempts", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, statement("open_attempts"), owner, f.task, f.attempt, after, OpenPage)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a OpenAttempt, err error) {
			return a, row.Scan(&a.Fence.Task, &a.Fence.Attempt, &a.Fence.Epoch, &a.Owner, &a.Started, &a.Forgot, &a.BootID, &a.Shim.Pid, &a.Shim.Start, &a.Shim.Cgroup, &a.Age, &a.Renewed, &a.Asked.Command, &a.Asked.Digest, &a.Conn,
				&a.Outline.Runtime, &a.Outline.TimeoutMS, &a.Outline.EstimateMS, &a.Outline.Trace)
		})
		return err
	})
	return list, err
}

// Order returns what a task of the spoke is started with; of one that is gone it is empty.
func (b *Backlog) Order(ctx context.Context, task string) (spec commands.Spawn, err error) {
	err = b.db.Read(ctx, "opening an order", func(ctx context.Context, conn *pgxpool.Conn) error {
		var text []byte
		if err := conn.QueryRow(ctx, statement("order_of"), task).Scan(&text); err != nil {
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		}
		return json.Unmarshal(text, &spec)
	})
	return spec, err
}
