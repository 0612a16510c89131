package meshtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// reference is hub and spoke as the model describes them: what a spoke holds of each task,
// and what its hub knows of that by the reports which came through.
type reference struct {
	tasks map[string]*refTask
}

type refTask struct {
	order           int
	retries, losses int // that are left

	// At the spoke.
	here, barred bool           // it has come; it was killed before it did
	state, was   commands.State // and when it was compared last
	later        bool           // it waits for its back-off
	killed       bool           // however it ends, it is cancelled
	cancelled    bool           // this attempt is its last, and what its end says counts
	leased       bool           // an attempt holds it
	attempt      int
	epoch        int64
	questions    map[string]*refQuestion // by key
	pause        refPause

	// At the hub.
	command     string // the order's message
	hub         commands.State
	newest      int64 // number of the newest report that came
	toldAttempt int
}

func (t *refTask) holds(f backlog.Fence) bool {
	return t.leased && f.Attempt == t.attempt && f.Epoch == t.epoch
}

// stands is what a spoke tells of a task.
func (t *refTask) stands() storetest.Stand {
	if !t.here {
		return storetest.Stand{}
	}
	return storetest.Stand{State: t.state, Attempt: t.attempt, Epoch: t.epoch}
}

// ready lists what can be claimed.
func (r *reference) ready() (ids []string) {
	for id, t := range r.tasks {
		if t.state == commands.Queued && !t.later {
			ids = append(ids, id)
		}
	}
	return ids
}

// over reports whether both sides know the end of every task.
func (r *reference) over() bool {
	for _, t := range r.tasks {
		if !t.hub.Terminal() || t.here && !t.state.Terminal() {
			return false
		}
	}
	return true
}

// take is what commands do at a spoke: orders last, each message once.
func (r *reference) take(t testing.TB, batch []*store.Incoming) {
	for _, m := range batch {
		switch b := m.Body.(type) {
		case *commands.Kill:
			if m.Code == "" {
				r.tasks[m.Task()].kill(b.Cancel)
			}
		case *commands.Pause:
			if m.Code == "" || m.Code == commands.Conflict {
				require.Equal(t, r.tasks[m.Task()].paused(b), m.Code == commands.Conflict, "a pause of task %d", r.tasks[m.Task()].order)
			}
		case *commands.Answer:
			if m.Code == "" || m.Code == commands.Conflict {
				require.Equal(t, r.tasks[m.Task()].answered(b), m.Code == "")
			}
		}
	}
	for _, m := range batch {
		if _, ok := m.Body.(*commands.Spawn); ok && m.Code == "" {
			if t := r.tasks[m.Task()]; !t.barred {
				if t.here, t.state = true, commands.Queued; t.pause.early {
					t.state = commands.Paused
					t.epoch++
				}
			}
		}
	}
}

// kill is a kill or a cancel. Each takes the lease from the worker, but the cancel that lets the attempt finish.
func (t *refTask) kill(cancel string) {
	switch {
	case !t.here:
		t.barred = true
	case t.leased:
		t.killed, t.cancelled = t.killed || cancel == "", t.cancelled || cancel != ""
		if cancel != commands.CancelAfter {
			t.epoch++
		} else {
			t.pause.goesOn()
		}
	case !t.state.Terminal():
		t.state = commands.Cancelled
		t.epoch++
	}
}

// end is what the end of an attempt leads to.
func (t *refTask) end(o commands.Outcome) {
	asking := t.asking()
	t.leased = false
	switch {
	case t.killed:
		t.state = commands.Cancelled
	case o == commands.Succeeded:
		t.state = commands.Completed
	case o == commands.TimedOut:
		t.state = commands.Expired
	case t.cancelled && o == commands.AttemptFailed:
		t.state = commands.Failed
	case t.cancelled:
		t.state = commands.Cancelled
	case o == commands.CouldNotStart:
		t.state = commands.Unavailable
	case t.keepsPaused(o):
		t.pauseAfter(o)
	case o == commands.Released, o == commands.Parked:
		t.state, t.later = commands.Queued, true
	case o == commands.AttemptFailed:
		t.again(t.retries)
	case o == commands.Interrupted:
		t.again(t.losses)
	default:
		panic(fmt.Sprintf("the reference knows no outcome %s", o))
	}
	if t.state == commands.Queued && asking && (o == commands.Interrupted || o == commands.Parked) {
		t.state = commands.AwaitingInput // the answer leads on
	}
	if t.state == commands.Queued || t.state == commands.Paused {
		t.withdrawAll()
	}
	t.pause.wanted, t.pause.proven = false, false
}

// again queues a task once more, while there are retries left. Those of failures and of losses are counted together.
func (t *refTask) again(left int) {
	if left <= 0 {
		t.state = commands.Failed
		return
	}
	t.state, t.later = commands.Queued, true
	t.retries, t.losses = t.retries-1, t.losses-1
}

// hear is what a hub makes of reports: the end wins, else what was said last.
func (r *reference) hear(tb testing.TB, batch []*store.Incoming) {
	for _, m := range batch {
		t, ok := r.tasks[m.Task()]
		if !ok || m.Header.Re == nil || m.Header.Re.ID != t.command {
			continue // an answer to a kill says nothing of the order
		}
		t.hear(tb, m)
		state, attempt, end := says(m.Body)
		if state == "" {
			continue
		}
		t.toldAttempt = max(t.toldAttempt, attempt)
		if !t.hub.Terminal() && (end || m.Header.Seq > t.newest) {
			t.hub = state
		}
		t.newest = max(t.newest, m.Header.Seq)
	}
}

// says reads what a report says of its task, "" where it says nothing.
func says(body commands.Body) (state commands.State, attempt int, end bool) {
	switch b := body.(type) {
	case *commands.Accepted:
		if !b.State.Terminal() {
			return b.State, 0, false
		}
	case *commands.Started:
		return commands.Running, b.Attempt, false
	case *commands.Ended:
		return b.State, b.Attempt, false
	case *commands.TaskState:
		if !b.State.Terminal() {
			return b.State, b.Attempt, false
		}
	case *commands.Question:
		return commands.AwaitingInput, b.Attempt, false
	case *commands.Answered:
		return b.State, 0, false
	case *commands.Result:
		return b.State, b.Attempt, true
	case *commands.RefusedBody:
		if b.Code == commands.Tombstone {
			return commands.Cancelled, 0, true
		}
	}
	return "", 0, false
}
