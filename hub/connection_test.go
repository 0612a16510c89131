package hub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A connection that cannot be followed holds up no other, and its change is not said to be
// in force.
func TestTheErrorOfOneConnectionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic", "barn")
	var key string
	require.NoError(t, m.Hub.SQL.QueryRow(t.Context(), `SELECT link_key FROM connections WHERE peer_name = 'attic'`).Scan(&key))
	m.Hub.Exec(t, `UPDATE connections SET link_key = 'none' WHERE peer_name = 'attic'`)
	meshtest.Await(t, "the error", func() bool { return strings.Contains(m.Hub.Log.String(), "following the connection with attic: ") })

	m.Turn(t, "barn", "suspend")

	require.False(t, m.View(t, "barn").Linked)
	m.Hub.Exec(t, `UPDATE connections SET link_key = $1 WHERE peer_name = 'attic'`, key)
	m.Turn(t, "barn", "resume")
	m.AwaitLink(t, "barn")
	m.AwaitLink(t, "attic")
}

// What a peer may say depends on the state that the transaction of its effect
// finds, even where the link is still there.
func TestStatesOfAConnection(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		state store.ConnState
		code  signing.Code // "" = it has its effect
	}{
		"a pending peer is not heard":        {store.Pending, signing.ConnState},
		"a suspended peer may tell of ends":  {store.Suspended, ""},
		"a disconnected peer is not heard":   {store.Disconnected, signing.ConnState},
		"a revoked peer is not heard at all": {store.Revoked, signing.ConnState},
	}
	m := meshtest.Start(t)
	n := 0
	for name, tt := range tests {
		n++
		a := m.Attack(t, fmt.Sprintf("thief-%d", n))
		t.Run(name, func(t *testing.T) {
			asked := a.Order(t, m)
			doesNotFollow(t, m) // else the hub may notice before the message comes
			m.Hub.Exec(t, `UPDATE connections SET state = $2 WHERE id = $1`, a.Voice.Conn, tt.state)
			before, end := m.Hub.Sums(t), m.Hub.AuditEnd(t)
			result := a.Seal(t, &commands.Result{Task: asked.Task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded}, asked.Re, nil).Envelope

			a.Send(t, commands.QueueResults, result)

			if tt.code == "" {
				require.Equal(t, commands.Completed, m.Wait(t, asked.Task).State)
				require.Empty(t, m.Hub.Audit(t, end))
				return
			}
			meshtest.Await(t, "a line in the audit", func() bool { return len(m.Hub.Audit(t, end)) > 0 })
			lines := m.Hub.Audit(t, end)
			require.Len(t, lines, 1)
			require.Equal(t, string(tt.code), lines[0].Code)
			require.Contains(t, lines[0].Why, string(tt.state))
			require.Equal(t, before, m.Hub.Sums(t))
			if tt.state != store.Revoked {
				m.Hub.Exec(t, `UPDATE connections SET state = 'active' WHERE id = $1`, a.Voice.Conn)
				a.Send(t, commands.QueueResults, result)
				require.Equal(t, commands.Completed, m.Wait(t, asked.Task).State, "it was not forgotten")
			}
		})
	}
}

// doesNotFollow keeps the hub from reading its table of connections until the test ends.
func doesNotFollow(t *testing.T, m *meshtest.Mesh) {
	t.Helper()
	tx, err := m.Hub.SQL.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.Background())) })
	_, err = tx.Exec(t.Context(), `LOCK TABLE serving`)
	require.NoError(t, err)
}

// What a peer sent before it was revoked, and what was not read until then, has
// no effect any more.
func TestWhatARevokedPeerSaidBefore(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	asked := a.Order(t, m)
	tx, err := m.Hub.SQL.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE inbox`)
	require.NoError(t, err)
	for range 3 {
		a.Send(t, commands.QueueResults, a.Seal(t, &commands.Result{Task: asked.Task, State: commands.Completed, Attempt: 1}, asked.Re, nil).Envelope)
	}
	m.Stop(t, "hub")
	require.NoError(t, tx.Rollback(t.Context()))
	m.Hub.Exec(t, `UPDATE connections SET state = 'revoked'`)
	end := m.Hub.AuditEnd(t)

	m.Start(t, "hub")

	m.Add(t, "attic")
	other := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}})
	require.Equal(t, commands.Completed, m.Wait(t, other).State, "what comes later is read")
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE conn = $1`, a.Voice.Conn))
	require.Equal(t, commands.Queued, m.Agent(t, asked.Task).State)
	require.Empty(t, m.Hub.Audit(t, end), "it counts as no attack either")
}

// chatter says good things about one task, about 200 times a second, until the
// function that it returns is called.
func chatter(t *testing.T, a *meshtest.Attacker, asked meshtest.Asked) (stop func()) {
	t.Helper()
	var envelopes [][]byte
	for range 600 {
		envelopes = append(envelopes, a.Seal(t, &commands.Accepted{Task: asked.Task, State: commands.Queued}, asked.Re, nil).Envelope)
	}
	ctx, end := context.WithCancel(t.Context())
	var talking sync.WaitGroup
	talking.Go(func() {
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for len(envelopes) > 0 {
			var list []transport.Report
			for _, w := range envelopes[:5] {
				list = append(list, transport.Report{Queue: commands.QueueEvents, ID: meshtest.NewID(), Envelope: w})
			}
			envelopes = envelopes[5:]
			a.Link.Publish(ctx, list) // it fails once the link is gone
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		end()
		talking.Wait()
	}
}

// From the commit of a revocation on nothing of the peer has an effect, its
// link is gone at once, and neither its keys nor its token bring it back.
func TestRevokeUnderLoad(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	var slowest, slowestLink time.Duration
	for i := range 5 {
		name := fmt.Sprintf("thief-%d", i)
		a := m.Attack(t, name)
		asked := a.Order(t, m)
		stop := chatter(t, a, asked)
		meshtest.Await(t, "50 messages", func() bool { return m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE conn = $1`, a.Voice.Conn) >= 50 })
		end := m.Hub.AuditEnd(t)

		began := time.Now()
		c := m.Turn(t, name, "revoke")
		answered := time.Since(began)
		require.False(t, m.View(t, a.Voice.Conn).Linked, "the link is cut when the answer comes")
		meshtest.Await(t, "the end of the link", func() bool { return !a.Link.State().Up })
		gone := time.Since(c.Since) // both clocks are this machine's
		slowest, slowestLink = max(slowest, answered), max(slowestLink, gone)

		meshtest.Await(t, "the refusal of its key", func() bool {
			cause := a.Link.State().Cause
			return errors.Is(cause, transport.ErrRefused)
		})
		stop()
		require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM inbox i JOIN connections c ON c.id = i.conn WHERE c.id = $1 AND i.received_at > c.state_at`, a.Voice.Conn))
		for _, line := range m.Hub.Audit(t, end) {
			require.Contains(t, []string{string(signing.ConnState), string(commands.LinkRevoked)}, line.Code, line.Why)
		}
		require.Equal(t, commands.LinkRevoked, m.Agent(t, asked.Task).Reason, "what was ordered there ends with it")
	}
	t.Logf("revoke: answered within %s, link gone %s after the commit (slowest of 5)", slowest, slowestLink)
}

func TestARevokedPeerNeverComesBack(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	n := m.Newcomer(t, "attic")
	token := m.Token(t, "attic", n.Proxy)
	joined, err := n.JoinWith(t, token)
	require.NoError(t, err)
	link := &transport.Link{Address: m.Hub.Link, Pins: []string{token.Pin}, ID: string(n.Keys.InstanceID()), Seed: n.Keys.LinkSeed, Redial: 50 * time.Millisecond}
	keep(t, link.Run)
	meshtest.Await(t, "the link", func() bool { return link.State().Up })
	m.Turn(t, "attic", "revoke")
	meshtest.Await(t, "the end of the link", func() bool { return !link.State().Up })

	t.Run("with its state set back", func(t *testing.T) {
		for _, verb := range []string{"resume", "suspend"} {
			err := m.Hub.Ask(t, "POST", "/api/v1/connections/"+joined.Connection.ID+"/"+verb, map[string]string{"reason": "x"}, nil)
			require.Equal(t, commands.Conflict, commands.CodeOf(err))
		}
		_, err := m.Hub.SQL.Exec(t.Context(), `UPDATE connections SET state = 'active'`)
		require.Error(t, err)
	})
	t.Run("with its token", func(t *testing.T) {
		end := m.Hub.AuditEnd(t)
		code, why := stranger{keys: n.Keys}.join(t, m, token)
		require.Equal(t, commands.Code("JOIN_REFUSED"), code, why)
		require.Contains(t, refusalAfter(t, m, end).Why, "invite was used before")
	})
	t.Run("with its keys, after the hub was started again", func(t *testing.T) {
		m.Stop(t, "hub")
		m.Start(t, "hub")
		_, err := transport.DialJoin(t.Context(), m.Hub.Link, []string{token.Pin}, token.JoinID)
		require.NoError(t, err, "the hub is there")
		again := &transport.Link{Address: m.Hub.Link, Pins: []string{token.Pin}, ID: string(n.Keys.InstanceID()), Seed: n.Keys.LinkSeed}
		keep(t, again.Run)
		meshtest.Await(t, "a refusal", func() bool { return again.State().Cause != nil })
		require.ErrorIs(t, again.State().Cause, transport.ErrRefused)
	})
	t.Run("but as a new connection", func(t *testing.T) {
		fresh := m.Token(t, "attic", n.Proxy)
		_, err := n.JoinWith(t, fresh)
		require.Equal(t, commands.Conflict, commands.CodeOf(err), "its own side holds on to the old one")
		n.Exec(t, `UPDATE connections SET state = 'revoked'`)

		again, err := n.JoinWith(t, fresh)

		require.NoError(t, err)
		require.NotEqual(t, joined.Connection.ID, again.Connection.ID)
	})
}

func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic", "cellar")

	m.Turn(t, "attic", "suspend")
	require.False(t, m.View(t, "attic").Linked, "the link is cut when the answer comes")
	task := m.Noop(t, "attic")
	m.Wait(t, m.Noop(t, "cellar"))
	require.Equal(t, commands.Queued, m.Agent(t, task).State)
	require.Zero(t, m.Spokes["attic"].Count(t, `SELECT count(*) FROM tasks`))

	m.Turn(t, "attic", "resume")

	require.Equal(t, commands.Completed, m.Wait(t, task).State, "the spoke came back by itself")
	m.Check(t)
}

// A spoke that is not heard of grows old in steps that it announced itself.
func TestLiveness(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Interval: 100 * time.Millisecond}.Start(t, "attic")
	due := func(at time.Time) hub.Liveness {
		switch age := time.Since(at); {
		case age < 300*time.Millisecond:
			return hub.Alive
		case age < time.Second:
			return hub.Late
		case age < 3*time.Second:
			return hub.Stale
		}
		return hub.Dead
	}

	m.Spokes["attic"].Proxy.Cut()

	seen := map[hub.Liveness]bool{}
	at := *m.View(t, "attic").LastSeen
	meshtest.Await(t, "the last verdict", func() bool {
		before := due(at)
		v := m.View(t, "attic")
		if at.Equal(*v.LastSeen) && before == due(at) {
			require.Equal(t, before, v.Liveness)
			require.True(t, v.LastSeen.Add(100*time.Millisecond).Equal(*v.NextExpected), "when the next one was due")
			seen[v.Liveness] = true
		}
		at = *v.LastSeen
		return seen[hub.Dead]
	})
	require.True(t, seen[hub.Stale])
	require.False(t, m.View(t, "attic").Linked)
	err := m.Hub.Ask(t, "POST", "/api/v1/tasks", hub.SpawnRequest{Any: true, Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}.Revealed(), nil)
	require.Equal(t, commands.NoSpoke, commands.CodeOf(err), "nothing is placed on it")

	m.Spokes["attic"].Proxy.Heal()

	m.AwaitLink(t, "attic")
}

// What comes in place of a heartbeat is refused, and an old one that comes
// again says nothing.
func TestBadHeartbeats(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	beat := func(change func(*signing.Header)) []byte {
		return a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, Connection: commands.ConnectionView{State: "active"}, Slots: 3, KillLevel: "group", Version: "x"}, nil, change).Envelope
	}
	old := beat(func(h *signing.Header) { h.Iat -= 10_000; h.Exp -= 10_000 })
	a.Beat(t, old)
	meshtest.Await(t, "the first sign of life", func() bool { return m.View(t, "thief").LastSeen != nil })
	require.Equal(t, "-10s", m.View(t, "thief").ClockOffset, "a clock that is off is shown")
	a.Beat(t, beat(nil))
	meshtest.Await(t, "the second", func() bool { return m.View(t, "thief").ClockOffset == "" })
	asked := a.Order(t, m)
	known := m.View(t, "thief")
	for name, tt := range map[string]struct {
		code     signing.Code
		envelope []byte
	}{
		"garbage":                 {signing.EnvJSON, []byte("garbage")},
		"of another workspace":    {commands.Grant, beat(func(h *signing.Header) { h.Wsp = "night" })},
		"of another epoch":        {signing.EpochStale, beat(func(h *signing.Header) { h.Epoch++ })},
		"of a clock a day ahead":  {signing.TimeFuture, beat(func(h *signing.Header) { h.Iat += 86_400_000; h.Exp += 86_400_000 })},
		"a receipt in its place":  {signing.HdrField, a.Seal(t, &commands.Accepted{Task: asked.Task, State: commands.Queued}, asked.Re, nil).Envelope},
		"an interval of no time":  {commands.Validation, a.Seal(t, &commands.Heartbeat{IntervalMS: 0}, nil, nil).Envelope},
		"an interval of ten days": {commands.Validation, a.Seal(t, &commands.Heartbeat{IntervalMS: 864_000_000}, nil, nil).Envelope},
	} {
		t.Run(name, func(t *testing.T) {
			before, end := m.Hub.Sums(t), m.Hub.AuditEnd(t)

			answered := a.Beat(t, tt.envelope)
			meshtest.Await(t, "a line in the audit", func() bool { return len(m.Hub.Audit(t, end)) > 0 })
			require.False(t, answered && tt.code != signing.TimeFuture, "only who can mend it by the answer is answered")

			require.Equal(t, string(tt.code), m.Hub.Audit(t, end)[0].Code)
			require.Equal(t, before, m.Hub.Sums(t))
			require.Equal(t, known.LastSeen, m.View(t, "thief").LastSeen)
		})
	}
	t.Run("an old one again", func(t *testing.T) {
		end := m.Hub.AuditEnd(t)
		a.Beat(t, old)
		accept(t, m, a, asked) // so that the next one does not take its place unread
		a.Beat(t, []byte("garbage"))
		meshtest.Await(t, "what came after it", func() bool { return len(m.Hub.Audit(t, end)) > 0 })

		require.Equal(t, known.LastSeen, m.View(t, "thief").LastSeen)
	})
}

// keep runs a loop until the test ends.
func keep(t *testing.T, loop func(context.Context) error) {
	t.Helper()
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- loop(ctx) }()
	t.Cleanup(func() {
		end()
		require.NoError(t, <-ended)
	})
}
