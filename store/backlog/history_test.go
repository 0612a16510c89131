package backlog_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// taskState is what the model knows of one task: free, held by an attempt, or
// done by it.
type taskState struct {
	phase   string // free, held, done
	attempt int
	epoch   int64
}

// taskOp is one operation on one task.
type taskOp struct {
	kind    string // claim, complete, release, reclaim, read
	task    string
	attempt int
	epoch   int64
}

// What is known of an operation's outcome.
const (
	happened = "happened"
	refused  = "refused" // as stale
	unknown  = "unknown" // the answer was lost
)

// taskModel is the promise: an attempt is somebody's alone, numbers and epochs
// grow by one, a fence holds until its attempt ends, done is done.
var taskModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, o := range history {
			task := o.Input.(taskOp).task
			parts[task] = append(parts[task], o)
		}
		var list [][]porcupine.Operation
		for _, p := range parts {
			list = append(list, p)
		}
		return list
	},
	Init: func() any { return taskState{phase: "free"} },
	Step: func(state, input, output any) (bool, any) {
		return taskStep(state.(taskState), input.(taskOp), output.(string))
	},
}

func taskStep(s taskState, op taskOp, out string) (bool, taskState) {
	mine := s.attempt == op.attempt && s.epoch == op.epoch
	switch op.kind {
	case "claim":
		return s.phase == "free" && op.attempt == s.attempt+1 && op.epoch == s.epoch+1, taskState{"held", op.attempt, op.epoch}
	case "reclaim":
		return s.phase == "held", taskState{"free", s.attempt, s.epoch}
	case "read":
		return s.phase == "done" && mine, s
	}
	holds := s.phase == "held" && mine
	switch {
	case out == refused:
		return !holds && !(op.kind == "complete" && s.phase == "done" && mine), s
	case !holds:
		return out == unknown, s
	case op.kind == "complete":
		return true, taskState{"done", s.attempt, s.epoch}
	}
	return true, taskState{"free", s.attempt, s.epoch}
}

// outage is a time in which the server was away: an answer that needed more than
// one try may leave out what the first one did.
type outage struct{ from, to int64 }

// history collects what the processes wrote down.
type history struct {
	ops     []porcupine.Operation
	outages []outage
	claimed map[backlog.Fence]bool // those that a claim's answer told of
	back    map[string]int         // by task: reclaims that an answer told of
	unsure  map[string]int64       // by owner: its first claim whose answer may leave something out
	unsureR int64                  // the first such reclaim
}

const never = int64(math.MaxInt64 / 2)

func newHistory(outages []outage) *history {
	return &history{outages: outages, claimed: map[backlog.Fence]bool{}, back: map[string]int{}, unsure: map[string]int64{}, unsureR: never}
}

func (h *history) add(client int, kind, out string, f backlog.Fence, call, back int64) {
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: taskOp{kind, f.Task, f.Attempt, f.Epoch}, Output: out, Call: call, Return: back})
}

// read takes in one process's log.
func (h *history) read(t *testing.T, client int, owner string, log []entry) {
	t.Helper()
	answers := map[int]entry{}
	for _, e := range log {
		if e.Op == "" {
			answers[e.N] = e
		}
	}
	for _, q := range log {
		if q.Op == "" {
			continue
		}
		a, answered := answers[q.N]
		back, out := a.At, happened
		switch {
		case !answered || a.Lost != "":
			back, out = never, unknown
		case a.Code == commands.StaleAttempt:
			out = refused
		default:
			require.Empty(t, a.Code, "%s of %s", q.Op, owner)
		}
		whole := answered && a.Lost == "" && !slices.ContainsFunc(h.outages, func(o outage) bool { return q.At <= o.to && o.from <= back })
		switch q.Op {
		case "claim":
			for _, f := range a.Got {
				h.claimed[f] = true
				h.add(client, "claim", happened, f, q.At, back)
			}
			if _, known := h.unsure[owner]; !whole && !known {
				h.unsure[owner] = q.At
			}
		case "reclaim":
			for _, task := range a.Back {
				h.back[task]++
				h.add(client, "reclaim", happened, backlog.Fence{Task: task}, q.At, back)
			}
			if !whole {
				h.unsureR = min(h.unsureR, q.At)
			}
		default:
			h.add(client, q.Op, out, *q.Fence, q.At, back)
		}
	}
}

// kept is an attempt as the database tells of it in the end.
type kept struct {
	Fence   backlog.Fence
	Owner   string
	Outcome string
}

// complete adds what no answer told of: claims and reclaims that were made in
// the name of one whose answer was lost. What the database says must have been
// asked for by somebody, and what was answered must be there.
func (h *history) complete(t *testing.T, attempts []kept) {
	t.Helper()
	lost := map[string]int{}
	last := map[string]backlog.Fence{}
	for _, k := range attempts {
		if !h.claimed[k.Fence] {
			call, asked := h.unsure[k.Owner]
			require.True(t, asked, "attempt %s of %s was told of, or nobody asked for it", k.Fence, k.Owner)
			h.add(0, "claim", happened, k.Fence, call, never)
		}
		delete(h.claimed, k.Fence)
		if k.Outcome == "interrupted" {
			lost[k.Fence.Task]++
		}
		if k.Fence.Attempt > last[k.Fence.Task].Attempt {
			last[k.Fence.Task] = k.Fence
		}
	}
	require.Empty(t, h.claimed, "claims that were acknowledged and are gone")
	for task, n := range lost {
		require.LessOrEqual(t, h.back[task], n, "reclaims of task %s that were acknowledged and are gone", task)
		for range n - h.back[task] {
			require.Less(t, h.unsureR, never, "somebody's answer to a reclaim left out task %s", task)
			h.add(0, "reclaim", happened, backlog.Fence{Task: task}, h.unsureR, never)
		}
	}
	for _, f := range last {
		h.add(0, "read", happened, f, never+1, never+2)
	}
}

// check looks for an order of each task's operations that explains them all.
func (h *history) check(t *testing.T) {
	t.Helper()
	for _, part := range taskModel.Partition(h.ops) {
		if porcupine.CheckOperationsTimeout(taskModel, part, time.Minute) != porcupine.Ok {
			slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(min(1, max(-1, a.Call-b.Call))) })
			text := ""
			for _, o := range part {
				text += fmt.Sprintf("%d..%d client %d: %+v %v\n", o.Call, o.Return, o.ClientId, o.Input, o.Output)
			}
			require.Fail(t, "no order of these explains their answers", text)
		}
	}
}
