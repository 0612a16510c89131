package meshtest

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Whatever a line between hub and spoke loses, repeats and reorders, and whatever workers say
// and agents with fences that hold, no longer hold or never did: both databases do what the reference
// model does. Once everything has come through, both tell the same end of each task.
func TestModelOfHubAndSpoke(t *testing.T) {
	t.Parallel()
	histories := scale.Larger(t, "SPAWNMESH_MODEL_CHECKS", 6, allMoves)
	storetest.Histories(histories, 100)
	seen := map[string]int{}
	var first sync.Once
	rapid.Check(t, func(rt *rapid.T) {
		tb := &carrier{TB: t, rt: rt, first: &first}
		defer tb.cleanup()
		m := &machine{carrier: tb, pair: newPair(tb), ref: reference{tasks: map[string]*refTask{}}, seen: seen}
		m.open(rt)
		rt.Repeat(map[string]func(*rapid.T){"": m.agree, "order": m.order, "kill": m.kill, "claim": m.claim, "claim more": m.claim, "start": m.start, "start more": m.start,
			"end": m.end, "end more": m.end, "ripen": m.ripen, "expire": m.expire,
			"pause": m.orderPause, "pause more": m.orderPause, "prove a pause": m.prove, "prove more": m.prove,
			"ask": m.ask, "ask more": m.ask, "answer": m.answer, "answer more": m.answer, "answer at the host": m.answerHere, "withdraw": m.withdraw, "lapse": m.lapse, "by hand": m.byHand,
			"to the spoke": m.toSpoke, "more to the spoke": m.toSpoke, "to the hub": m.toHub, "more to the hub": m.toHub})
		m.settle()
	})
	if histories < allMoves {
		return
	}
	var missing, unexpected []string
	for _, move := range commands.Transitions {
		pair := string(move.From) + ">" + string(move.To)
		excused := slices.Contains(notHere, string(move.From)+">") || slices.Contains(notHere, ">"+string(move.To)) || slices.Contains(notHere, pair)
		switch {
		case !excused && seen[pair] == 0:
			missing = append(missing, pair)
		case excused && seen[pair] > 0:
			unexpected = append(unexpected, pair)
		}
	}
	t.Logf("moves: %v", seen)
	require.Empty(t, missing, "moves that no history has made")
	require.Empty(t, unexpected, "moves that notHere says no history makes")
}

// allMoves is how many histories make every move that they can.
const allMoves = 250

// Moves that no history makes: those of a review; a retry, which is an order of its own; what is lost while it asks, as a task waits for
// the answer before as after; and what a peer recalls after a restore; and a card that is blocked while somebody has it.
var notHere = []string{"in_review>", ">in_review", "approved>", "failed>", "cancelled>", "expired>", "unavailable>",
	"claimed>blocked", "queued>awaiting_input", "queued>unavailable", "awaiting_input>unavailable", "paused>unavailable", "blocked>unavailable"}

// A carrier is a test whose failures are those of one history, and whose databases end with it.
type carrier struct {
	testing.TB
	rt    *rapid.T
	end   []func()
	first *sync.Once
}

// Errorf also says at once what failed first: rapid says nothing of a failure that it cannot repeat.
func (c *carrier) Errorf(format string, args ...any) {
	c.first.Do(func() { c.Logf("the first failure: "+format, args...) })
	c.rt.Errorf(format, args...)
}
func (c *carrier) FailNow()                          { c.rt.FailNow() }
func (c *carrier) Fatalf(format string, args ...any) { c.rt.Fatalf(format, args...) }
func (c *carrier) Failed() bool                      { return c.rt.Failed() }
func (c *carrier) Cleanup(f func())                  { c.end = append(c.end, f) }

func (c *carrier) cleanup() {
	for _, f := range slices.Backward(c.end) {
		f()
	}
}

// machine drives two databases and the reference side by side.
type machine struct {
	*carrier
	*pair
	ref     reference
	ids     []string
	orders  [][]byte // every message of the hub,
	reports [][]byte // and of the spoke: the line forgets none, so each may come again at any time
	fences  []backlog.Fence
	seen    map[string]int // moves of all histories, "from>to"
}

func (m *machine) order(rt *rapid.T) {
	m.orderAs(rapid.IntRange(0, 2).Draw(rt, "retries"), rapid.Bool().Draw(rt, "rerun"))
}

func (m *machine) orderAs(retries int, rerun bool) {
	id := m.pair.Order(m, func(o *store.SpawnOrder) {
		o.Spawn.MaxRetries = retries
		if rerun {
			o.Spawn.OnLoss = commands.LossReruns
		}
		m.ref.tasks[o.Spawn.Task] = &refTask{order: len(m.ids), retries: retries, losses: o.Spawn.Losses(), hub: commands.Queued, questions: map[string]*refQuestion{}}
	})
	m.ids, m.ref.tasks[id].command = append(m.ids, id), m.Mirror(m, id).Command
	m.say()
}

// open orders the first task of a history, and may lead it where random steps seldom lead one.
func (m *machine) open(rt *rapid.T) {
	way := rapid.SampledFrom([]string{"none", "blocked while it waits", "killed while it waits", "times out while it waits", "goes on", "times out while it stands still"}).Draw(rt, "opening")
	if way == "none" {
		m.order(rt)
		return
	}
	m.orderAs(2, true)
	m.carryToSpoke(m.orders)
	m.claims(1)
	id, f := m.ids[0], m.fences[0]
	m.startAs(f)
	m.agree(nil)
	switch way {
	case "blocked while it waits", "killed while it waits":
		m.askAs(f, "a")
		m.endAs(f, commands.Interrupted)
	case "times out while it waits":
		m.askAs(f, "a")
	default:
		m.pauses(id, true)
		m.carryToSpoke(m.orders)
		m.proves(f, true)
	}
	m.agree(nil)
	switch way {
	case "blocked while it waits":
		m.hand(id, blocking)
	case "killed while it waits":
		m.killAs(id, "")
		m.carryToSpoke(m.orders)
	case "goes on":
		m.pauses(id, false)
		m.carryToSpoke(m.orders)
		m.proves(f, false)
	default:
		m.endAs(f, commands.TimedOut)
	}
	m.agree(nil)
}

// say puts on the line what either side has to say.
func (m *machine) say() {
	m.orders = append(m.orders, m.Hub.Due(m)...)
	m.reports = append(m.reports, m.Spoke.Due(m)...)
}

func (m *machine) task(rt *rapid.T) string {
	return m.ids[rapid.IntRange(0, len(m.ids)-1).Draw(rt, "task")]
}

func (m *machine) kill(rt *rapid.T) {
	m.killAs(m.task(rt), rapid.SampledFrom([]string{"", commands.CancelNow, commands.CancelAfter}).Draw(rt, "cancel"))
}

func (m *machine) killAs(id, cancel string) {
	sent, err := m.Hub.DB.OrderKill(m.Context(), commands.Kill{Task: id, Reason: "enough", GraceMS: 1000, Cancel: cancel}, time.Hour, "test")
	require.NoError(m, err)
	require.Equal(m, !m.ref.tasks[id].hub.Terminal(), sent)
	m.say()
}

// some draws messages of a line in any order, some twice: mostly of the newest, so that several are about one task.
func some(rt *rapid.T, line [][]byte) (list [][]byte) {
	first := 0
	if rapid.Bool().Draw(rt, "new ones") {
		first = max(0, len(line)-8)
	}
	for range rapid.IntRange(1, 8).Draw(rt, "messages") {
		list = append(list, line[rapid.IntRange(first, len(line)-1).Draw(rt, "message")])
	}
	return list
}

func (m *machine) toSpoke(rt *rapid.T) { m.carryToSpoke(some(rt, m.orders)) }

func (m *machine) carryToSpoke(envelopes [][]byte) {
	batch := m.Spoke.Read(m, envelopes...)
	require.NoError(m, m.Spoke.Exec(`UPDATE tasks SET not_before = NULL WHERE state IN ('queued', 'paused')`)) // what is resumed has no back-off, however short it was
	m.takeSome(m, batch)
	m.ref.take(m, batch)
	m.say()
}

func (m *machine) toHub(rt *rapid.T) {
	if len(m.reports) == 0 {
		rt.Skip("nothing is said yet")
	}
	m.carryToHub(some(rt, m.reports))
}

func (m *machine) carryToHub(envelopes [][]byte) {
	m.ref.hear(m, m.report(m, envelopes...))
	m.say()
}

func (m *machine) claim(rt *rapid.T) { m.claims(rapid.IntRange(1, 3).Draw(rt, "claims")) }

func (m *machine) claims(n int) {
	ready := m.ref.ready()
	for _, c := range m.pair.claim(m, n) {
		require.Contains(m, ready, c.Fence.Task)
		ready = slices.DeleteFunc(ready, func(id string) bool { return id == c.Fence.Task })
		n--
		t := m.ref.tasks[c.Fence.Task]
		t.attempt, t.epoch, t.state, t.later, t.leased = t.attempt+1, t.epoch+1, commands.Claimed, false, true
		require.Equal(m, backlog.Fence{Task: c.Fence.Task, Attempt: t.attempt, Epoch: t.epoch}, c.Fence)
		m.fences = append(m.fences, c.Fence)
	}
	require.True(m, n == 0 || len(ready) == 0, "%d more could be claimed", len(ready))
	m.say()
}

// fence draws one that was handed out, mostly one that holds, or that of a kill, or one that never was.
func (m *machine) fence(rt *rapid.T) backlog.Fence {
	if len(m.fences) == 0 {
		rt.Skip("nothing is claimed yet")
	}
	list := m.fences
	if rapid.IntRange(0, 3).Draw(rt, "any") > 0 {
		if live := slices.DeleteFunc(slices.Clone(list), func(f backlog.Fence) bool { return !m.ref.tasks[f.Task].holds(f) }); len(live) > 0 {
			list = live
		}
	}
	f := list[rapid.IntRange(0, len(list)-1).Draw(rt, "fence")]
	f.Epoch += int64(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 2}).Draw(rt, "later"))
	return f
}

func (m *machine) start(rt *rapid.T) {
	m.startAs(m.fence(rt))
}

func (m *machine) startAs(f backlog.Fence) {
	t := m.ref.tasks[f.Task]
	held, err := m.backlog.Record(m.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b"}}})
	require.NoError(m, err)
	require.Equal(m, []bool{t.holds(f)}, held)
	if held[0] && t.state == commands.Claimed {
		t.state = commands.Running
	}
	m.say()
}

// ends are the outcomes of attempts that a supervisor tells.
var ends = []commands.Outcome{commands.Succeeded, commands.AttemptFailed, commands.AttemptFailed, commands.TimedOut, commands.Interrupted, commands.Interrupted, commands.Released, commands.CouldNotStart, commands.Parked}

func (m *machine) end(rt *rapid.T) {
	f, o := m.fence(rt), rapid.SampledFrom(ends).Draw(rt, "outcome")
	if o == commands.CouldNotStart && m.ref.tasks[f.Task].state != commands.Claimed {
		rt.Skip("it was started")
	}
	m.endAs(f, o)
}

func (m *machine) endAs(f backlog.Fence, o commands.Outcome) {
	t := m.ref.tasks[f.Task]
	holds := t.holds(f)
	require.Equal(m, holds, m.pair.end(m, f, o), "%s of %+v", o, f)
	if holds {
		t.end(o)
	}
	require.NoError(m, m.Spoke.Exec(`UPDATE due SET at = 'infinity'`)) // until ripen says so, however short the back-off
	m.say()
}

// ripen ends the back-off of everything that waits for one.
func (m *machine) ripen(*rapid.T) {
	m.pair.ripen(m)
	_, err := m.backlog.Sweep(m.Context(), time.Second)
	require.NoError(m, err)
	for t := range maps.Values(m.ref.tasks) {
		if t.state == commands.Queued { // who waits for an answer waits on
			t.later = false
		}
	}
	m.say()
}

// expire lets the time of every order run out that waits for its first attempt: a later one is no new order.
func (m *machine) expire(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "expire") > 0 { // it ends what the others need
		rt.Skip("not yet")
	}
	require.NoError(m, m.Spoke.Exec(`UPDATE ready SET expires_at = clock_timestamp() WHERE attempt = 1`))
	_, err := m.backlog.Sweep(m.Context(), time.Second)
	require.NoError(m, err)
	for _, id := range m.ref.ready() {
		if t := m.ref.tasks[id]; t.attempt == 0 {
			t.state = commands.Expired
			t.epoch++
		}
	}
	m.say()
}

// agree compares what either database tells with the reference.
func (m *machine) agree(*rapid.T) {
	theirs := m.Spoke.Standing(m)
	for _, id := range m.ids {
		t := m.ref.tasks[id]
		require.Equal(m, t.stands(), theirs[id], "task %d at the spoke", t.order)
		if was := t.was; was != "" && was != t.state {
			over := t.state == commands.Paused && listed(was, commands.Queued)         // an attempt that is over was to stand still: its task is queued between the two
			over = over || was == commands.Paused && t.state == commands.AwaitingInput // it asked while it was made to stand still (decision 37)
			require.True(m, listed(was, t.state) || over, "the table has no move from %s to %s", was, t.state)
			m.seen[string(was)+">"+string(t.state)]++
		}
		t.was = t.state
		mirror := m.Mirror(m, id)
		require.Equal(m, t.hub, mirror.State, "task %d at the hub", t.order)
		require.Equal(m, t.toldAttempt, mirror.Attempt, "attempt of task %d at the hub", t.order)
	}
}

// listed reports whether the table of the model has a move.
func listed(from, to commands.State) bool {
	return slices.ContainsFunc(commands.Transitions, func(x commands.Transition) bool { return x.From == from && x.To == to })
}

// settle carries everything over the line and ends what runs, until nothing is left to do.
func (m *machine) settle() {
	m.resumeAll()
	m.unblockAll()
	for range 200 {
		if m.carryToSpoke(m.orders); len(m.reports) > 0 {
			m.carryToHub(m.reports)
		}
		m.agree(nil)
		if m.ref.over() {
			m.sameAnswers()
			return
		}
		m.lapseAll()
		m.ripen(nil)
		m.claims(100)
		for id, t := range m.ref.tasks {
			if t.leased {
				m.endAs(backlog.Fence{Task: id, Attempt: t.attempt, Epoch: t.epoch}, commands.Succeeded)
			}
		}
	}
	require.Fail(m, "tasks do not end")
}
