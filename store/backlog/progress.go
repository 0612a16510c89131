package backlog

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Shim is the process between spoke and agent: with its start one process of a boot.
type Shim struct {
	Pid    int    // 0 = none
	Start  int64  // clock ticks after the boot
	Cgroup string // path of the agent's cgroup; "" = none
}

// A Start is the proof that the agent of an attempt runs.
type Start struct {
	Fence  Fence
	Pid    int
	BootID string
	Shim   Shim
	Policy string // version of the spoke's policy that let it start
	// Isolation is what the agent is confined by, see [commands.IsolationLevels].
	Isolation string
	// Overruns is how long after the start the attempt overruns, 0 = never, and Patience how long from then it may tell no progress.
	Overruns, Patience time.Duration
	At                 time.Time // when it was executed; zero = now. No time before the claim of the attempt or after now counts
}

// A Progress is the start of an attempt, its end, or both.
type Progress struct {
	Start *Start // nil: it was recorded before, or there is none
	End   *End   // nil: it goes on
	Conn  string // who asked for the task and is to be told; "" = nobody, or it is not known
}

// Record moves tasks on by the proofs of a batch: started ones to running, ended
// ones to a terminal state, whose signed result goes out, or back to queued while
// their retries last. Those who asked are told in the same transaction. It
// answers for each whether its fence still held; where not, nothing was changed,
// and the caller must end what it started.
func (b *Backlog) Record(ctx context.Context, batch []Progress) ([]bool, error) {
	held := make([]bool, len(batch))
	anyEnded := slices.ContainsFunc(batch, func(p Progress) bool { return p.End != nil })
	var waits *bool
	err := b.db.Tx(ctx, "recording progress", func(ctx context.Context, tx *store.Tx) error {
		clear(held)
		waits = nil
		var starts []Start
		var ends []End
		var startAt, endAt []int
		for i, p := range batch {
			if p.Conn != "" {
				tx.Reserve(p.Conn, 1)
			}
			if p.Start != nil {
				starts, startAt = append(starts, *p.Start), append(startAt, i)
			}
			if p.End != nil {
				ends, endAt = append(ends, *p.End), append(endAt, i)
			}
		}
		var begun []Moved
		tx.Queue(statement("hold_leases"), slices.Concat(fencesOf(starts, func(s Start) Fence { return s.Fence }).task, fencesOf(ends, func(e End) Fence { return e.Fence }).task))
		markStarted(tx, starts, held, startAt, &begun)
		over, err := b.markEnded(ctx, tx, ends, held, endAt)
		if err == nil {
			err = tx.Flush(ctx)
		}
		if err != nil {
			return err
		}
		if anyEnded {
			tx.Queue(`SELECT EXISTS (SELECT FROM ready WHERE workspace = $1)`, MainWorkspace).QueryRow(func(row pgx.Row) error { return row.Scan(&waits) })
		}
		return b.report(ctx, tx, append(withoutOvertaken(begun, over), over...))
	})
	if err == nil && anyEnded {
		b.waits.Store(waits == nil || *waits) // the answer is lost with that to the commit: something may
	}
	return held, err
}

// Waits reports whether anything stood ready when [Backlog.Record] recorded an end last, as
// far as is known. A limit may have kept it back until that end.
func (b *Backlog) Waits() bool { return b.waits.Load() }

// withoutOvertaken leaves out the starts of tasks that have ended in the same
// transaction: the result says when they started, too.
func withoutOvertaken(begun, over []Moved) []Moved {
	return slices.DeleteFunc(begun, func(start Moved) bool {
		i := slices.IndexFunc(over, func(m Moved) bool { return m.Task == start.Task && m.State.Terminal() })
		if i < 0 {
			return false
		}
		end := *over[i].End
		end.Policy, end.Isolation = cmp.Or(end.Policy, start.Start.Policy), cmp.Or(end.Isolation, start.Start.Isolation)
		over[i].End = &end
		return true
	})
}

// markStarted queues the move of tasks to running, and says then which were not before.
func markStarted(tx *store.Tx, starts []Start, held []bool, at []int, begun *[]Moved) {
	if len(starts) == 0 {
		return
	}
	f := fencesOf(starts, func(s Start) Fence { return s.Fence })
	pids, boots := make([]int, len(starts)), make([]string, len(starts))
	shims, began, cgroups := make([]int, len(starts)), make([]int64, len(starts)), make([]string, len(starts))
	overruns, patience, executed := make([]int64, len(starts)), make([]int64, len(starts)), make([]int64, len(starts))
	for i, s := range starts {
		overruns[i], patience[i] = s.Overruns.Milliseconds(), s.Patience.Milliseconds()
		pids[i], boots[i] = s.Pid, s.BootID
		shims[i], began[i], cgroups[i] = s.Shim.Pid, s.Shim.Start, s.Shim.Cgroup
		if !s.At.IsZero() {
			executed[i] = s.At.UnixMicro()
		}
	}
	tx.Queue(statement("mark_started"), f.task, f.attempt, f.epoch, pids, boots, shims, began, cgroups, overruns, patience, executed).Query(func(rows pgx.Rows) error {
		var fresh bool
		var digest []byte
		m := Moved{State: commands.Running}
		_, err := pgx.ForEachRow(rows, []any{&m.n, &fresh, &m.Task, &m.Attempt, &m.Epoch, &m.Conn, &m.Asked.Command, &digest, &m.At}, func() error {
			held[at[m.n-1]] = true
			if fresh {
				m.Asked.Digest, m.Start = hex.EncodeToString(digest), &starts[m.n-1]
				*begun = append(*begun, m)
			}
			return nil
		})
		return err
	})
}

// markEnded applies the supervisor's evidence.
func (b *Backlog) markEnded(ctx context.Context, tx *store.Tx, ends []End, held []bool, at []int) ([]Moved, error) {
	list := make([]closing, len(ends))
	for i, e := range ends {
		list[i] = closing{fence: e.Fence, outcome: string(e.Outcome), why: e.Why, final: e.final(), at: e.At, exit: seen{e.Exit, e.Why}, failure: e.failure()}
	}
	over, err := b.closeAttempts(ctx, tx, "self", list)
	for i, m := range over {
		held[at[m.n-1]] = true
		over[i].End = &ends[m.n-1]
	}
	return over, err
}

type fenceRows struct {
	task    []string
	attempt []int
	epoch   []int64
}

func fencesOf[T any](list []T, fence func(T) Fence) fenceRows {
	var r fenceRows
	for _, x := range list {
		f := fence(x)
		r.task, r.attempt, r.epoch = append(r.task, f.Task), append(r.attempt, f.Attempt), append(r.epoch, f.Epoch)
	}
	return r
}
