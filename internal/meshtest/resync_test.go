package meshtest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// resync settles a connection by hand.
func (i *Instance) resync(t testing.TB, name string) (v federation.Settlement) {
	t.Helper()
	i.Do(t, "POST", "/api/v1/connections/"+name+"/resync", nil, &v)
	return v
}

// Settling by hand is safe at any time, on both sides: what runs goes on, and what
// is ordered meanwhile is done once.
func TestSettlingByHandLosesNothing(t *testing.T) {
	t.Parallel()
	m, r := Plan{Slots: 8}.Start(t, "attic"), newTraced(t)
	attic := m.Spokes["attic"]
	m.Await(t, r.order(t, m, r.gate), commands.Running)

	for range 3 {
		r.order(t, m, r.gate)
		require.Zero(t, m.Hub.resync(t, "attic").Renumbered)
		r.order(t, m, r.gate)
		require.Zero(t, attic.resync(t, "lab").Renumbered)
	}

	r.open(t)
	for task := range r.tasks {
		require.Equal(t, commands.Completed, m.Wait(t, task).State)
		require.Equal(t, 1, r.runs(t, task))
	}
	require.Equal(t, 3, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'connection.compare' AND actor LIKE 'uid:%'`))
	m.Check(t)
}

// What a side had confirmed and has no more is noticed on a new link only, and a
// person can have one.
func TestSettlingByHandSendsAgainWhatIsMissing(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	task := m.Noop(t, "attic")
	m.Wait(t, task)
	m.Check(t)
	m.Hub.Exec(t, `UPDATE sequences SET stored = stored - (SELECT int8multirange(int8range(seq, seq + 1)) FROM inbox WHERE kind = 'agent.accepted')`)
	m.Hub.Exec(t, `DELETE FROM inbox WHERE kind = 'agent.accepted'`)

	v := m.Spokes["attic"].resync(t, "lab")

	require.Equal(t, store.Settled{Reopened: 1}, v.Settled)
	Await(t, "the message that was missing", func() bool { return m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE kind = 'agent.accepted'`) == 1 })
	require.Equal(t, 1, m.Spokes["attic"].Count(t, resyncs+` AND why LIKE 'the peer has no longer 1 messages%'`))
	m.Check(t)
}

// What the peer has is taken over. What it has not, because it has another message
// under that number, is sent again under a new one.
func TestSettlingByHandTakesOverWhatThePeerHas(t *testing.T) {
	t.Parallel()
	m := Start(t)
	a := m.Attack(t, "attic")
	kept, unlike := a.Order(t, m), a.Order(t, m)
	numbers := commands.Numbering{Stored: commands.Numbers{Through: 2}}
	beat := func(agrees bool, change func(n *commands.Numbering)) {
		n := numbers
		change(&n)
		a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "x",
			Connection: commands.ConnectionView{State: "active", Agrees: agrees, Numbers: &n}}, nil, nil).Envelope)
	}
	unlikeOurs := &commands.History{From: 1, Until: time.Now().UnixMilli(), SHA256: strings.Repeat("ab", 32)}
	before := a.Link.State().Since

	var v federation.Settlement
	settled := make(chan error, 1)
	go func() { settled <- m.Hub.Ask(t, "POST", "/api/v1/connections/attic/resync", nil, &v) }()
	Await(t, "a new link", func() bool { st := a.Link.State(); return st.Up && st.Since.After(before) })
	beat(false, func(n *commands.Numbering) { n.Digest = unlikeOurs })
	beat(false, func(n *commands.Numbering) {
		n.Digest, n.Held = unlikeOurs, []commands.Held{{Seq: 1, SHA256: kept.Digest}, {Seq: 2, SHA256: strings.Repeat("cd", 32)}}
	})
	require.Empty(t, settled, "it must not be settled while one side asks")
	base := int64(m.Hub.Count(t, `SELECT base FROM sequences`))
	beat(true, func(n *commands.Numbering) {
		n.Digest, n.Recalled = &commands.History{Base: base, Until: time.Now().UnixMilli(), SHA256: strings.Repeat("00", 32)}, &commands.Recalled{From: 1, Through: 2, Done: true}
	})

	require.NoError(t, <-settled)
	require.Equal(t, federation.Settlement{Name: "attic", Ours: 2, Settled: store.Settled{Confirmed: 1, Renumbered: 1, Base: base}}, v)
	require.Greater(t, base, int64(2))
	again := func(task string, digest string) (n int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, c := range a.heard {
			if c.Body.TaskID() == task && c.Opened.Digest().String() != digest {
				n++
			}
		}
		return n
	}
	Await(t, "the message under its new number", func() bool { return again(unlike.Task, unlike.Digest) > 0 })
	require.Zero(t, again(kept.Task, kept.Digest))
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM outbox WHERE task = $1 AND seq = 1 AND id NOT IN (SELECT id FROM open_outbox)`, kept.Task))
	require.Equal(t, 1, m.Hub.Count(t, resyncs+` AND why LIKE '%numbers go on after%'`), "the gap is on record")
}

// What the peer confirms with its first word on a new link is not sent again.
func TestSettlingByHandSendsNothingThatIsConfirmed(t *testing.T) {
	t.Parallel()
	m := Start(t)
	a := m.Attack(t, "attic")
	for range 2 {
		a.Order(t, m)
	}
	before := a.Link.State().Since

	var v federation.Settlement
	settled := make(chan error, 1)
	go func() { settled <- m.Hub.Ask(t, "POST", "/api/v1/connections/attic/resync", nil, &v) }()
	Await(t, "a new link", func() bool { st := a.Link.State(); return st.Up && st.Since.After(before) })
	a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "x", Connection: commands.ConnectionView{State: "active", Agrees: true,
		Numbers: &commands.Numbering{Stored: commands.Numbers{Through: 2}, Digest: &commands.History{Until: time.Now().UnixMilli(), SHA256: strings.Repeat("00", 32)}}}}, nil, nil).Envelope)

	require.NoError(t, <-settled)
	require.Equal(t, federation.Settlement{Name: "attic", Ours: 2, Settled: store.Settled{Confirmed: 2}}, v)
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM open_outbox`))
}

func TestSettlingByHandNeedsALink(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	attic := m.Spokes["attic"]
	attic.Proxy.Cut()
	Await(t, "the end of the link", func() bool { return !m.View(t, "attic").Linked })

	err := m.Hub.Ask(t, "POST", "/api/v1/connections/attic/resync", nil, nil)

	require.Equal(t, commands.Unreachable, commands.CodeOf(err))
	require.ErrorContains(t, err, "attic is not linked, so nothing was compared; it is recorded, and the next link begins with it")
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'connection.compare'`))
	attic.Proxy.Heal()
	agreeAgain(t, m, "attic")
	m.Turn(t, "attic", "suspend")
	err = m.Hub.Ask(t, "POST", "/api/v1/connections/attic/resync", nil, nil)
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	require.ErrorContains(t, err, "attic is suspended: the test says so")
	require.Equal(t, store.Suspended, m.View(t, "attic").State)
}

// Gaps that a peer says nothing will close are closed, once it was heard that its numbers go on above.
func TestGapsThatNothingClosesAreClosed(t *testing.T) {
	t.Parallel()
	m := Start(t)
	a := m.Attack(t, "attic")
	m.Hub.Exec(t, `UPDATE sequences SET stored = '{[1,1],[3,3]}'`)
	says := &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "x", Connection: commands.ConnectionView{State: "active",
		Numbers: &commands.Numbering{Sent: 9, Base: 9, Void: []commands.Range{{From: 2, To: 2}}}}}

	for range 2 {
		a.Beat(t, a.Seal(t, says, nil, nil).Envelope)
	}

	Await(t, "one range", func() bool { return m.Hub.Count(t, `SELECT count(*) FROM sequences, unnest(stored)`) == 1 })
}
