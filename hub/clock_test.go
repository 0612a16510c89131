package hub_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// beatOf seals a heartbeat of a clock that is off by so much.
func beatOf(t *testing.T, a *meshtest.Attacker, off time.Duration) []byte {
	t.Helper()
	return a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, Connection: commands.ConnectionView{State: "active"}, Slots: 3, KillLevel: "group", Version: "x"}, nil,
		func(h *signing.Header) { h.Iat, h.Exp = h.Iat+off.Milliseconds(), h.Exp+off.Milliseconds() }).Envelope
}

// relink cuts the link of an attacker's spoke and lets it come again.
func relink(t *testing.T, m *meshtest.Mesh, a *meshtest.Attacker) {
	t.Helper()
	a.Spoke.Proxy.Cut()
	meshtest.Await(t, "the end of the link", func() bool { return !a.Link.State().Up && !m.View(t, a.Spoke.Name).Linked })
	a.Spoke.Proxy.Heal()
	meshtest.Await(t, "the link", func() bool { return a.Link.State().Up && m.View(t, a.Spoke.Name).Linked })
}

// A peer whose clock was set back is heard again on its next link. Over the same link an older
// heartbeat may be a replay, and is not taken; that is said once.
func TestAClockThatWasSetBackIsHeardOnANewLink(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "clocky")
	offset := func() string { return m.View(t, "clocky").ClockOffset }
	a.Beat(t, beatOf(t, a, 0))
	meshtest.Await(t, "the first sign of life", func() bool { return m.View(t, "clocky").LastSeen != nil })

	a.Beat(t, beatOf(t, a, -time.Hour))
	a.Beat(t, beatOf(t, a, -time.Hour))

	require.Equal(t, 1, strings.Count(m.Hub.Log.String(), "a heartbeat of the peer is refused"))
	require.Regexp(t, `code=TIME_EXPIRED why="issued (1h0m|59m59)\S* before the last one over this link`, m.Hub.Log.String())
	require.Empty(t, offset())

	relink(t, m, a)
	a.Beat(t, beatOf(t, a, -time.Hour))

	meshtest.Await(t, "what it says on a new link", func() bool { return offset() == "-1h0m0s" })
}

// A peer whose clock was set back is heard again over the same link, too, when it has said nothing newer for some of its intervals.
func TestAClockThatIsSetBackIsHeardOnItsLink(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "clocky")
	beat := func(off time.Duration) {
		a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 500, Connection: commands.ConnectionView{State: "active"}, Slots: 3, KillLevel: "group"}, nil,
			func(h *signing.Header) { h.Iat, h.Exp = h.Iat+off.Milliseconds(), h.Exp+off.Milliseconds() }).Envelope)
	}
	beat(0)
	meshtest.Await(t, "the first sign of life", func() bool { return m.View(t, "clocky").LastSeen != nil })
	link := m.View(t, "clocky").LinkedSince

	meshtest.Await(t, "what it says", func() bool {
		beat(-time.Hour)
		return m.View(t, "clocky").ClockOffset == "-1h0m0s"
	})

	require.Equal(t, link, m.View(t, "clocky").LinkedSince)
	require.Nil(t, m.View(t, "clocky").BeatRefused)
	require.Contains(t, m.Hub.Log.String(), "the clock of the peer was set back: what it says is heard again")
}

// What a hub has heard of a peer before it was started again silences no clock that was set back.
func TestAClockThatWasSetBackIsHeardByAHubThatStartsAgain(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "clocky")
	m.Stop(t, "hub")
	m.Hub.Exec(t, `INSERT INTO heartbeats (conn, at, interval_ms, offset_ms, body) VALUES ($1, clock_timestamp(), 60000, 0, '{"interval_ms":60000}')`, a.Conn)
	m.Start(t, "hub")
	meshtest.Await(t, "the link", func() bool { return a.Link.State().Up && m.View(t, "clocky").Linked })

	a.Beat(t, beatOf(t, a, -time.Hour))

	meshtest.Await(t, "what it says", func() bool { return m.View(t, "clocky").ClockOffset == "-1h0m0s" })
}

// A report of a clock that is ahead is not taken, and not lost: its spoke seals it again when the clock is mended.
func TestAReportOfAClockThatIsAheadIsTakenWhenItIsMended(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "clocky")
	asked := a.Order(t, m)
	end := m.Hub.AuditEnd(t)
	result := &commands.Result{Task: asked.Task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded}
	ahead := a.Seal(t, result, asked.Re, func(h *signing.Header) { h.Iat += 600_000; h.Exp += 599_000 })

	a.Send(t, commands.QueueEvents, ahead.Envelope)

	meshtest.Await(t, "a line in the audit", func() bool { return len(m.Hub.Audit(t, end)) > 0 })
	refused := m.Hub.Audit(t, end)[0]
	require.Equal(t, []string{string(signing.TimeFuture), ahead.ID}, []string{refused.Code, refused.Message})
	require.False(t, m.Agent(t, asked.Task).State.Terminal())
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE id = $1`, ahead.ID), "it may come again")

	mended := a.Seal(t, result, asked.Re, func(h *signing.Header) { h.ID, h.Seq = ahead.ID, ahead.Seq })
	a.Send(t, commands.QueueEvents, mended.Envelope)

	require.Equal(t, commands.Completed, m.Wait(t, asked.Task).State)
}

// What a spoke has refused for its clock is sent again at once when that is mended.
func TestAMendedClockGetsWhatItHasRefused(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "clocky")
	a.Order(t, m)
	relink(t, m, a)
	a.Beat(t, beatOf(t, a, -10*time.Minute))
	heard, begun := len(a.Heard(commands.SpawnKind)), time.Now()

	a.Greet(t)

	meshtest.Await(t, "the order again", func() bool { return len(a.Heard(commands.SpawnKind)) > heard })
	require.Less(t, time.Since(begun), 20*time.Second, "what is not confirmed is sent again after 30 s")
}

// What a hub has sealed while its clock was ahead is sealed again before it goes out.
func TestAnOrderOfAHubWhoseClockWasAhead(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	m.Spokes["attic"].Proxy.Cut()
	meshtest.Await(t, "the end of the link", func() bool { return !m.View(t, "attic").Linked })
	task := m.Noop(t, "attic")
	sealLater(t, m.Hub.Instance, 10*time.Minute)

	m.Spokes["attic"].Proxy.Heal()

	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	require.Zero(t, m.Spokes["attic"].Count(t, `SELECT count(*) FROM audit WHERE code = 'TIME_FUTURE'`), "the order was sent as it was")
}

// sealLater puts the newest order of a hub into the state in which a clock that is ahead would have left it.
func sealLater(t *testing.T, i *meshtest.Instance, ahead time.Duration) {
	t.Helper()
	db := i.Open(t)
	defer db.Close()
	cursor := db.NewCursor(i.Pairs(t, `SELECT 'conn', conn::text FROM open_outbox`)["conn"])
	out, err := cursor.Next(t.Context())
	require.NoError(t, err)
	o := out[len(out)-1]
	u, err := signing.Unseal(o.Envelope, o.Seq)
	require.NoError(t, err)
	u.Header.Iat, u.Header.Exp = u.Header.Iat+ahead.Milliseconds(), u.Header.Exp+ahead.Milliseconds()
	sealed, err := i.Keys.Signing.Seal(u.Type, u.Header, u.Body)
	require.NoError(t, err)
	i.Exec(t, `UPDATE outbox SET envelope = $2, digest = $3, exp = $4, created_at = created_at + $5::interval WHERE id = $1`, o.ID, sealed.Envelope, sealed.Digest[:], sealed.Exp, ahead)
}

// A clock that is wrong is named by all that is asked about its spoke, as soon as a heartbeat is refused for it.
func TestAWrongClockIsNamed(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "clocky")
	asked := a.Order(t, m)
	a.Beat(t, beatOf(t, a, 0))
	type reasons struct {
		BeatRefused *federation.RefusedBeat `json:"beat_refused"`
		Reasons     []commands.WhyReason
	}
	var of, why reasons

	answer, err := a.Link.Beat(t.Context(), beatOf(t, a, 10*time.Minute))
	require.NoError(t, err)
	require.NotEmpty(t, answer, "it learns by how much its clock differs")

	m.Hub.Do(t, "GET", "/api/v1/connections/clocky", nil, &of)
	require.Equal(t, signing.TimeFuture, of.BeatRefused.Code)
	require.Equal(t, commands.CauseClock, of.Reasons[0].Code)
	require.Regexp(t, `heartbeats are refused here \(TIME_FUTURE\): issued (10m0|9m5\d)\S*s in this host's future`, of.Reasons[0].Text)
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+asked.Task+"/why", nil, &why)
	require.Equal(t, commands.CauseClock, why.Reasons[0].Code)
	require.Contains(t, m.Hub.Health(t, "heartbeats of clocky").Problem, "TIME_FUTURE")

	a.Beat(t, beatOf(t, a, 0))

	of = reasons{}
	m.Hub.Do(t, "GET", "/api/v1/connections/clocky", nil, &of)
	require.Nil(t, of.BeatRefused)
	require.Empty(t, m.Hub.Health(t, "heartbeats of clocky").Problem)
}

// A spawn that is refused for a clock has met no policy, and what has ended before it started took no time.
func TestWhatAWrongClockDoesToAnOrder(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "clocky")
	refused, ended := a.Order(t, m), a.Order(t, m)

	a.Send(t, commands.QueueEvents, a.Seal(t, &commands.RefusedBody{Task: refused.Task, Code: signing.TimeFuture, Why: "issued in the future"}, refused.Re, nil).Envelope)
	a.Send(t, commands.QueueResults, a.Seal(t, &commands.Result{Task: ended.Task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded, StartedAt: 600_000, EndedAt: 1000}, ended.Re, nil).Envelope)

	v := m.Wait(t, refused.Task)
	require.Equal(t, []any{commands.Expired, commands.CommandExpired}, []any{v.State, v.Reason})
	m.Wait(t, ended.Task)
	meshtest.Await(t, "the line in the log", func() bool { return strings.Contains(m.Hub.Log.String(), "duration_ms=0") })
}
