package backlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// SweptUp counts what a sweep moved.
type SweptUp struct {
	Promoted  int64            // due tasks that became claimable
	Reclaimed int              // expired leases that were taken back
	Expired   int              // tasks whose last moment to be started had passed
	Lapsed    int              // questions that nobody has answered in time
	Limits    int64            // budget windows that began anew, and tasks that a spent budget cancelled or moved
	Lifted    int64            // accounts whose limit is over
	Ready     int              // tasks that wait to be claimed now
	Untold    map[string]error // tasks whose last moment has passed, and of which it cannot be told now whether they had begun before a restore
	Next      time.Duration
}

// moved reports whether the sweep has found anything to do.
func (s SweptUp) moved() bool {
	return s.Promoted+s.Limits+s.Lifted > 0 || s.Reclaimed+s.Expired+s.Lapsed > 0
}

// sweepBatch bounds one sweep's statement.
const sweepBatch = 1000

// Sweep moves what only time moves, in all workspaces: due tasks become
// claimable, expired leases are taken back, waiting tasks expire, budget windows
// begin anew. Any number of sweepers may run at once. Where nothing is due it only reads. Next
// says when to sweep again, at most limit from now; who makes something due
// earlier says so.
func (b *Backlog) Sweep(ctx context.Context, limit time.Duration) (s SweptUp, err error) {
	now, err := b.toSweep(ctx, limit)
	if err != nil {
		return s, err
	}
	s.Ready = now.ready // also where the rest fails
	if now.something() {
		if err = b.sweep(ctx, now, &s); err != nil {
			return s, err
		}
		if now, err = b.toSweep(ctx, limit); err != nil {
			return s, err
		}
	}
	if s.Ready, s.Next = now.ready, now.next; s.Next <= 0 && !s.moved() {
		s.Next = heldBack
	}
	if len(s.Untold) > 0 {
		s.Next = max(s.Next, untoldFor)
	}
	return s, nil
}

// untoldFor is how long a fault of this host is left alone.
const untoldFor = time.Second

// heldBack is when to look again at what is due while somebody else holds it.
const heldBack = 100 * time.Millisecond

// sweepable is what a sweep has to do now, and when it has to do more.
type sweepable struct {
	ready                                                    int
	anew, tallies, budgets, leases, due, expire, lift, lapse bool
	next                                                     time.Duration
}

func (n sweepable) something() bool {
	return n.anew || n.tallies || n.budgets || n.leases || n.due || n.expire || n.lift || n.lapse
}

func (b *Backlog) toSweep(ctx context.Context, limit time.Duration) (n sweepable, err error) {
	err = b.db.Read(ctx, "looking for what is due", func(ctx context.Context, conn *pgxpool.Conn) error {
		var seconds float64
		err := conn.QueryRow(ctx, statement("next_sweep"), string(b.db.Self()), limit).Scan(&n.ready, &n.anew, &n.tallies, &n.budgets, &n.leases, &n.due, &n.expire, &n.lift, &n.lapse, &seconds)
		n.next = time.Duration(seconds * float64(time.Second))
		return err
	})
	return n, err
}

// sweep does what is to be done, in transactions of their own, and notes it in s. One that fails keeps no other from being done.
func (b *Backlog) sweep(ctx context.Context, now sweepable, s *SweptUp) error {
	var errs []error
	for _, step := range []struct {
		due bool
		do  func() error
	}{
		{now.anew, func() error { return b.waitAnew(ctx) }},
		{now.tallies, func() error { return b.sumTallies(ctx) }},
		{now.budgets, func() (err error) { s.Limits, err = b.rollBudgets(ctx); return err }},
		{now.leases, func() (err error) { s.Reclaimed, err = b.lookAtLeases(ctx); return err }},
		{now.due, func() (err error) { s.Promoted, err = b.promoteDue(ctx); return err }},
		{now.lift, func() (err error) { s.Lifted, err = b.liftLimits(ctx); return err }},
		{now.lapse, func() (err error) { s.Lapsed, err = b.lapseQuestions(ctx); return err }},
		{now.expire, func() (err error) { s.Expired, s.Untold, err = b.expireWaiting(ctx); return err }},
	} {
		if step.due && ctx.Err() == nil {
			errs = append(errs, step.do())
		}
	}
	return errors.Join(errs...)
}

// waitAnew bounds what a clock that was ahead has made wait, and was set back since: else a back-off is as much longer as it was ahead.
// Who asked for an agent was told until when it waits, and is told anew.
func (b *Backlog) waitAnew(ctx context.Context) error {
	return b.db.Tx(ctx, "bounding what waits by a clock that was ahead", func(ctx context.Context, tx *store.Tx) error {
		tasks, err := collect[string](tx.Query(ctx, statement("wait_anew"), sweepBatch))
		slices.Sort(tasks)
		for _, task := range tasks {
			if err == nil && task != "" { // else nobody asked for it
				_, err = b.tellStanding(ctx, tx, task)
			}
		}
		return err
	})
}

// liftLimits lets accounts go on whose limit is over.
func (b *Backlog) liftLimits(ctx context.Context) (n int64, err error) {
	err = b.db.Tx(ctx, "lifting the limits of accounts", func(ctx context.Context, tx *store.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM account_limits WHERE until <= statement_timestamp()`)
		if n = tag.RowsAffected(); err != nil || n == 0 {
			return err
		}
		return tellClaimers(ctx, tx)
	})
	return n, err
}

// LiftLimits lets all accounts go on, whose limits a new policy may see otherwise, and returns them. told is the row of the audit
// that says so.
func (b *Backlog) LiftLimits(ctx context.Context, told func(accounts []string) store.AuditRow) (accounts []string, err error) {
	err = b.db.Tx(ctx, "lifting the limits of accounts", func(ctx context.Context, tx *store.Tx) error {
		accounts, err = collect[string](tx.Query(ctx, `DELETE FROM account_limits RETURNING account`))
		if err != nil {
			return err
		}
		slices.Sort(accounts)
		tx.Audit(told(accounts))
		if len(accounts) == 0 {
			return nil
		}
		return tellClaimers(ctx, tx)
	})
	return accounts, err
}

// lookAtLeases passes over those that were renewed, and returns how many have expired.
func (b *Backlog) lookAtLeases(ctx context.Context) (n int, err error) {
	err = b.db.Tx(ctx, "passing over renewed leases", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, statement("look_later"), 10*sweepBatch)
		return err
	})
	if err != nil {
		return 0, err
	}
	err = b.db.Tx(ctx, "reclaiming expired leases", func(ctx context.Context, tx *store.Tx) error {
		ids, err := b.expireLeases(ctx, tx, "self")
		n = len(ids)
		return err
	})
	return n, err
}

// Sweep does the instance's sweep: whoever looks at a backlog without a running
// instance has nobody else to do it.
func (ws *Workspace) Sweep(ctx context.Context) (SweptUp, error) {
	if err := ws.backlog.prune(ctx); err != nil {
		return SweptUp{}, err
	}
	return ws.backlog.Sweep(ctx, time.Hour)
}

// prune removes old rows once an hour, for a short while: whoever calls waits.
func (b *Backlog) prune(ctx context.Context) error {
	last, now := b.pruned.Load(), time.Now().Unix()
	if now-last < 3600 || !b.pruned.CompareAndSwap(last, now) {
		return nil
	}
	if _, err := b.FailCircles(ctx); err != nil {
		return err
	}
	_, err := b.db.Prune(ctx, time.Hour, time.Second)
	return err
}

// expireLeases takes back tasks whose lease has run out. Not the ones of the
// instance's own spoke: it knows whether their processes live, and they may.
func (b *Backlog) expireLeases(ctx context.Context, tx *store.Tx, actor string) ([]string, error) {
	rows, err := tx.Query(ctx, statement("hold_lapsed"), string(b.db.Self()), sweepBatch)
	if err != nil {
		return nil, fmt.Errorf("looking for expired leases: %w", err)
	}
	fences, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Fence])
	if err != nil || len(fences) == 0 {
		return nil, err
	}
	list := make([]closing, len(fences))
	for i, f := range fences {
		list[i] = closing{fence: f, outcome: "interrupted", why: commands.LeaseExpired,
			failure: &commands.LastError{Code: string(commands.LeaseExpired), Text: "its claim ran out before its worker renewed it", Attempt: f.Attempt}}
	}
	moved, err := b.closeAttempts(ctx, tx, actor, list)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(moved))
	for i, m := range moved {
		ids[i] = m.Task
	}
	return ids, b.report(ctx, tx, moved)
}

// sumTallies adds what was counted of tasks to the sums.
func (b *Backlog) sumTallies(ctx context.Context) error {
	return b.db.Tx(ctx, "summing up tallies", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, statement("sum_tallies"), 10*sweepBatch)
		return err
	})
}

// promoteDue makes queued tasks whose time has come claimable, and returns how many.
func (b *Backlog) promoteDue(ctx context.Context) (n int64, err error) {
	err = b.db.Tx(ctx, "promoting due tasks", func(ctx context.Context, tx *store.Tx) error {
		tag, err := tx.Exec(ctx, statement("promote_due"), sweepBatch)
		if n = tag.RowsAffected(); err != nil || n == 0 {
			return err
		}
		return tellClaimers(ctx, tx)
	})
	return n, err
}

// keepBegun lets those of tasks wait on that had begun before a restore, and those of which that cannot be told now, and returns the others,
// and why. They are held.
func (b *Backlog) keepBegun(ctx context.Context, tx *store.Tx, tasks []string) (others []string, untold map[string]error, err error) {
	if len(tasks) == 0 {
		return nil, nil, nil
	}
	last, untold, err := b.begunNow(ctx, tx, tasks)
	if err != nil {
		return nil, nil, err
	}
	if len(last) > 0 {
		begun := slices.Sorted(maps.Keys(last))
		if _, err := tx.Exec(ctx, statement("bring_forward"), begun, attemptsBefore(begun, last)); err != nil {
			return nil, nil, fmt.Errorf("bringing tasks forward: %w", err)
		}
	}
	return slices.DeleteFunc(tasks, func(task string) bool { return last[task] > 0 || untold[task] != nil }), untold, nil
}

// expireWaiting ends tasks that were never started and whose last moment to be
// started has passed; their signed results say so. It returns how many. What had begun before a restore waits until its attempt is taken over,
// and what cannot be told until it can.
func (b *Backlog) expireWaiting(ctx context.Context) (n int, untold map[string]error, err error) {
	err = b.db.Tx(ctx, "expiring tasks", func(ctx context.Context, tx *store.Tx) error {
		n = 0
		late, err := collect[string](tx.Query(ctx, statement("late_waiting"), sweepBatch))
		if err == nil {
			late, untold, err = b.keepBegun(ctx, tx, late)
		}
		if err != nil || len(late) == 0 {
			return err
		}
		tasks, err := collect[string](tx.Query(ctx, statement("expire_waiting"), late))
		if n = len(tasks); err != nil || n == 0 {
			return err
		}
		if err := resolveNow(ctx, tx, tasks); err != nil {
			return err
		}
		ends, err := endedTasks(ctx, tx, tasks)
		if err != nil {
			return err
		}
		if err := b.failDependents(ctx, tx, tasks); err != nil {
			return err
		}
		return b.report(ctx, tx, ends)
	})
	return n, untold, err
}
