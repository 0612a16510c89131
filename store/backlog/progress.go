package backlog

import (
	"context"
	"encoding/hex"
	"slices"

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
}

// A Progress is the start or the end of an attempt: exactly one of the two.
type Progress struct {
	Start *Start
	End   *End
}

// Record moves tasks on by the proofs of a batch: started ones to running, ended
// ones to a terminal state, whose signed result goes out, or back to queued while
// their retries last. Those who asked are told in the same transaction. It
// answers for each whether its fence still held; where not, nothing was changed,
// and the caller must end what it started.
func (b *Backlog) Record(ctx context.Context, batch []Progress) ([]bool, error) {
	held := make([]bool, len(batch))
	err := b.db.Tx(ctx, "recording progress", func(ctx context.Context, tx *store.Tx) error {
		clear(held)
		var starts []Start
		var ends []End
		var startAt, endAt []int
		for i, p := range batch {
			if p.Start != nil {
				starts, startAt = append(starts, *p.Start), append(startAt, i)
			} else {
				ends, endAt = append(ends, *p.End), append(endAt, i)
			}
		}
		all := slices.Concat(fencesOf(starts, func(s Start) Fence { return s.Fence }).task, fencesOf(ends, func(e End) Fence { return e.Fence }).task)
		if _, err := holdLeases(ctx, tx, all); err != nil {
			return err
		}
		begun, err := markStarted(ctx, tx, starts, held, startAt)
		if err != nil {
			return err
		}
		over, err := b.markEnded(ctx, tx, ends, held, endAt)
		if err != nil {
			return err
		}
		return b.report(ctx, tx, append(begun, over...))
	})
	return held, err
}

// markStarted moves tasks to running and returns those that were not before.
func markStarted(ctx context.Context, tx *store.Tx, starts []Start, held []bool, at []int) ([]Moved, error) {
	if len(starts) == 0 {
		return nil, nil
	}
	f := fencesOf(starts, func(s Start) Fence { return s.Fence })
	pids, boots := make([]int, len(starts)), make([]string, len(starts))
	shims, began, cgroups := make([]int, len(starts)), make([]int64, len(starts)), make([]string, len(starts))
	for i, s := range starts {
		pids[i], boots[i] = s.Pid, s.BootID
		shims[i], began[i], cgroups[i] = s.Shim.Pid, s.Shim.Start, s.Shim.Cgroup
	}
	rows, err := tx.Query(ctx, statement("mark_started"), f.task, f.attempt, f.epoch, pids, boots, shims, began, cgroups)
	if err != nil {
		return nil, err
	}
	var fresh bool
	var digest []byte
	var begun []Moved
	m := Moved{State: commands.Running}
	_, err = pgx.ForEachRow(rows, []any{&m.n, &fresh, &m.Task, &m.Attempt, &m.Epoch, &m.Conn, &m.Asked.Command, &digest, &m.At}, func() error {
		held[at[m.n-1]] = true
		if fresh {
			m.Asked.Digest, m.Start = hex.EncodeToString(digest), &starts[m.n-1]
			begun = append(begun, m)
		}
		return nil
	})
	return begun, err
}

// markEnded applies the supervisor's evidence.
func (b *Backlog) markEnded(ctx context.Context, tx *store.Tx, ends []End, held []bool, at []int) ([]Moved, error) {
	list := make([]closing, len(ends))
	for i, e := range ends {
		list[i] = closing{fence: e.Fence, outcome: string(e.Outcome), why: e.Why, at: e.At, exit: e.Exit}
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
