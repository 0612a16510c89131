package meshtest

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// refPause is what a spoke knows of the pauses of a task.
type refPause struct {
	number int64 // the highest that came
	early  bool  // the task is to be paused when it comes
	wanted bool  // the agent of its attempt is to stand still
	proven bool  // it does
}

// paused is what a pause does at a spoke, and whether it is refused. Of two words the newer one counts.
func (t *refTask) paused(b *commands.Pause) (refused bool) {
	p := &t.pause
	switch {
	case t.state.Terminal():
		return false
	case b.Paused && (t.state == commands.AwaitingInput || t.state == commands.Blocked || t.leased && (t.killed || t.cancelled)):
		return true
	case b.Number <= p.number:
		return false
	}
	p.number = b.Number
	switch {
	case !t.here:
		p.early = b.Paused
	case t.leased:
		if b.Paused && !p.wanted && p.proven { // it was to go on, and may have: its shim says anew that it stands still
			t.wentOn()
		}
		p.wanted = b.Paused
	case b.Paused && t.state == commands.Queued:
		t.state = commands.Paused
		t.epoch++
	case !b.Paused && t.state == commands.Paused:
		t.state, t.later = commands.Queued, false
		t.epoch++
	}
	return false
}

// goesOn is the word of a cancel that lets an attempt finish: it is newer than what was said.
func (p *refPause) goesOn() {
	if p.wanted {
		p.wanted = false
		p.number++
	}
}

// keepsPaused reports whether the end of an attempt that was to stand still leaves its task paused: no other follows by itself.
func (t *refTask) keepsPaused(o commands.Outcome) bool {
	switch o {
	case commands.AttemptFailed:
		return t.pause.wanted && t.retries > 0
	case commands.Interrupted, commands.Released, commands.Parked:
		return t.pause.wanted
	}
	return false
}

// pauseAfter is keepsPaused done. What has failed or was lost spends a retry, if there is one.
func (t *refTask) pauseAfter(o commands.Outcome) {
	t.state = commands.Paused
	if (o == commands.AttemptFailed || o == commands.Interrupted) && max(t.retries, t.losses) > 0 {
		t.retries, t.losses = t.retries-1, t.losses-1
	}
}

// orderPause orders a pause at the hub, or the end of one.
func (m *machine) orderPause(rt *rapid.T) {
	id, on := m.task(rt), rapid.Bool().Draw(rt, "paused")
	if held := slices.DeleteFunc(slices.Clone(m.ids), func(id string) bool {
		return m.ref.tasks[id].state != commands.Running && m.ref.tasks[id].state != commands.Paused
	}); len(held) > 0 && rapid.IntRange(0, 3).Draw(rt, "any") > 0 {
		id = rapid.SampledFrom(held).Draw(rt, "of those that run")
		on = m.ref.tasks[id].state == commands.Running
	}
	m.pauses(id, on)
	if rapid.Bool().Draw(rt, "arrives at once") { // else a pause, its proof, its end and the proof of that would seldom follow each other
		m.carryToSpoke(m.orders[len(m.orders)-1:])
	}
}

func (m *machine) pauses(id string, on bool) {
	s := m.ref.tasks[id].hub

	_, _, err := m.Hub.DB.OrderPause(m.Context(), commands.Pause{Task: id, Paused: on, Reason: "so"}, time.Hour, "test")

	require.Equal(m, !s.Terminal() && (!on || s != commands.AwaitingInput && s != commands.Blocked), err == nil, "%s: %v", s, err)
	m.say()
}

// prove lets the shim of an attempt say that its agent stands still, or goes on.
func (m *machine) prove(rt *rapid.T) {
	f := m.fence(rt)
	for _, live := range m.fences { // mostly one that is to be proven
		if t := m.ref.tasks[live.Task]; t.holds(live) && t.pause.wanted != t.pause.proven && rapid.IntRange(0, 3).Draw(rt, "this") > 0 {
			f = live
		}
	}
	wanted := m.ref.tasks[f.Task].pause.wanted
	m.proves(f, rapid.SampledFrom([]bool{wanted, wanted, true, false}).Draw(rt, "stands still"))
}

func (m *machine) proves(f backlog.Fence, on bool) {
	t := m.ref.tasks[f.Task]
	p := &t.pause

	held, err := m.backlog.MarkPaused(m.Context(), backlog.PauseRun{Fence: f, Paused: on})

	require.NoError(m, err)
	require.Equal(m, t.speaks(f) && t.state != commands.Claimed && p.wanted == on && p.proven != on, held, "%t of %+v", on, f)
	if held {
		if t.wentOn(); on {
			p.proven, t.state = true, commands.Paused
		}
	}
	m.say()
}

// wentOn is that an agent is not known to stand still any more.
func (t *refTask) wentOn() {
	if t.pause.proven, t.state = false, commands.Running; t.asking() {
		t.state = commands.AwaitingInput
	}
}

// resumeAll lets everything go on that has not ended.
func (m *machine) resumeAll() {
	for _, id := range m.ids {
		if !m.ref.tasks[id].hub.Terminal() {
			m.pauses(id, false)
		}
	}
}
