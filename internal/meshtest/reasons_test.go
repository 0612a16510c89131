package meshtest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// noText is what JSON makes of bytes that are no UTF-8.
const noText = "cl\uFFFD"

// What a peer would refuse to be told is refused before anything is stored.
func TestReasonsThatNoPeerTakes(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	attic := m.Spokes["attic"]
	invite := m.Invite(t, "cellar")
	for _, reason := range []string{noText, strings.Repeat("x", 1001)} {
		for _, i := range []*Instance{m.Hub.Instance, attic.Instance} {
			name := map[bool]string{true: "attic", false: "lab"}[i == m.Hub.Instance]
			refused := func(path string, body any) {
				require.Equal(t, commands.Validation, commands.CodeOf(i.Ask(t, "POST", "/api/v1"+path, body, nil)), path)
			}
			for _, verb := range []string{"suspend", "resume", "revoke"} {
				refused("/connections/"+name+"/"+verb, api.Reason{Reason: reason})
			}
			refused("/keys/rotate", api.KeyRotation{Reason: reason})
			refused("/keys/revoke", api.KeyRevocation{Key: "current", Reason: reason})
			require.Equal(t, 1, i.count(t, `SELECT count(*) FROM own_keys`))
			require.Equal(t, 1, i.count(t, `SELECT count(*) FROM connections WHERE state = 'active'`))
		}
		require.Equal(t, commands.Validation, commands.CodeOf(m.Hub.Ask(t, "POST", "/api/v1/invites/"+invite.ID+"/revoke", api.Reason{Reason: reason}, nil)))
	}
	require.Equal(t, 1, m.Hub.count(t, `SELECT count(*) FROM invites WHERE name = 'cellar' AND revoked_at IS NULL`))
}

// TestAnInstanceWhoseRevocationWasRefusedHeals has a version of before told its peer a key set that
// the peer refused, and taken that for its confirmation.
func TestAnInstanceWhoseRevocationWasRefusedHeals(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"hub", "attic"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			m := Start(t, "attic")
			i, other := m.instance(t, side), m.instance(t, map[string]string{"hub": "attic", "attic": "hub"}[side])
			i.change(t, store.KeyChange{Revoke: "current", Reason: "copied"})
			Await(t, "the new key", func() bool { return i.count(t, `SELECT count(*) FROM audit WHERE action = 'keys.confirmed'`) == 1 })
			m.Stop(t, "attic")
			m.Stop(t, "hub")
			i.exec(t, `UPDATE own_keys SET reason = $1 WHERE revoked_at IS NOT NULL`, noText)
			other.exec(t, `DELETE FROM keys WHERE use = 'signing' AND revoked_at IS NULL`)
			other.exec(t, `UPDATE keys SET revoked_at = NULL, not_after = 'infinity' WHERE use = 'signing'`)
			other.exec(t, `UPDATE keys SET version = 1 WHERE use = 'identity'`)
			other.exec(t, `UPDATE inbox SET code = 'BODY_JSON' WHERE kind = 'peer.keyset'`)

			m.Start(t, "hub")
			m.Start(t, "attic")

			require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
			require.Equal(t, 1, other.count(t, `SELECT count(*) FROM keys WHERE use = 'signing' AND revoked_at IS NOT NULL`))
			require.Equal(t, 1, i.count(t, `SELECT count(*) FROM own_keys WHERE reason = 'cl?'`))
			require.Zero(t, i.count(t, `SELECT count(*) FROM connections WHERE state <> 'active'`))
		})
	}
}

// TestAKeySetThatThePeerRefuses has a spoke that stores a key set and refuses it.
func TestAKeySetThatThePeerRefuses(t *testing.T) {
	t.Parallel()
	m := Start(t)
	a := m.Attack(t, "thief")
	a.Order(t, m)
	old := m.Hub.Keys.Signing.KeyID()
	go func() {
		_ = m.Hub.Ask(t, "POST", "/api/v1/keys/revoke", api.KeyRevocation{Key: "current", Reason: "copied"}, nil)
	}()
	var seq int64
	Await(t, "the key set", func() bool {
		return m.Hub.SQL.QueryRow(t.Context(), `SELECT o.seq FROM outbox o JOIN sequences s ON s.keyset = o.id`).Scan(&seq) == nil
	})
	refuse := func() {
		a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Received{Numbers: commands.Numbers{Through: seq},
			Refused: []commands.RefusedReport{{Seq: seq, Code: signing.BodyJSON}}}, nil, nil).Envelope)
	}
	refuse()
	Await(t, "the audit of it", func() bool {
		return m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'keys.refused_by_peer' AND code = 'BODY_JSON'`) == 1
	})

	refuse()

	Await(t, "what the view says", func() bool { return m.View(t, "thief").RefusesKeys == signing.BodyJSON })
	require.Equal(t, 1, m.Hub.count(t, `SELECT count(*) FROM sequences WHERE kid = $1`, old), "the old key signs on: the peer knows no other")
	require.Contains(t, m.Hub.Health(t, "keys for thief").Problem, "thief has refused the newest keys of this instance (BODY_JSON)")
	require.Equal(t, 1, strings.Count(m.Hub.Log.String(), "the peer has refused the newest keys of this instance"))
	before := m.Hub.count(t, `SELECT count(*) FROM outbox WHERE kind = 'peer.keyset'`)
	go func() { _ = m.Hub.Ask(t, "POST", "/api/v1/keys/rotate", api.KeyRotation{}, nil) }()
	Await(t, "the next set", func() bool { return m.Hub.count(t, `SELECT count(*) FROM outbox WHERE kind = 'peer.keyset'`) > before })
	Await(t, "the end of the problem", func() bool { return m.View(t, "thief").RefusesKeys == "" })
}

// A peer that refuses a key set as no newer one than it has knows these keys: nobody is told of it.
func TestAKeySetThatThePeerHasAlready(t *testing.T) {
	t.Parallel()
	m := Start(t)
	a := m.Attack(t, "thief")
	asked := a.Order(t, m)
	go func() { _ = m.Hub.Ask(t, "POST", "/api/v1/keys/rotate", api.KeyRotation{}, nil) }()
	var order, set int64
	Await(t, "the key set", func() bool {
		return m.Hub.SQL.QueryRow(t.Context(), `SELECT q.seq, o.seq FROM outbox o JOIN sequences s ON s.keyset = o.id JOIN outbox q ON q.task = $1`, asked.Task).Scan(&order, &set) == nil
	})

	a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Received{Numbers: commands.Numbers{Through: set},
		Refused: []commands.RefusedReport{{Seq: order, Code: signing.BodyJSON}, {Seq: set, Code: signing.KeySetVersion}}}, nil, nil).Envelope)

	Await(t, "the audit of the other refusal", func() bool {
		return m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'report.refused_by_peer' AND code = 'BODY_JSON'`) == 1
	})
	require.Zero(t, m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'keys.refused_by_peer'`))
	require.NotContains(t, m.Hub.Log.String(), "the peer has refused the newest keys of this instance")
	Await(t, "the new key towards it", func() bool { return m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'keys.confirmed'`) == 1 })
	require.Empty(t, m.View(t, "thief").RefusesKeys)
}

// What a version of before has stored as the reason of a change is told all the same.
func TestAReasonOfBeforeIsTold(t *testing.T) {
	t.Parallel()
	for state, told := range map[store.ConnState]string{
		store.Suspended: `SELECT count(*) FROM sequences WHERE peer_state LIKE 'suspended%cl?xxx%'`,
		store.Revoked:   `SELECT count(*) FROM connections WHERE state = 'revoked' AND state_reason LIKE 'cl?xxx%'`,
	} {
		for _, side := range []string{"hub", "attic"} {
			t.Run(string(state)+" by "+side, func(t *testing.T) {
				t.Parallel()
				m := Start(t, "attic")
				i, other := m.instance(t, side), m.instance(t, map[string]string{"hub": "attic", "attic": "hub"}[side])
				m.Stop(t, side)
				i.exec(t, `UPDATE connections SET state = $2, state_at = clock_timestamp(), state_by = 'uid:1', state_reason = $1 || repeat('x', 2000)`, noText, state)

				m.Start(t, side)

				Await(t, "what the other side was told", func() bool { return other.count(t, told) == 1 })
			})
		}
	}
}

// TestAHeartbeatThatIsRefusedIsSaidOnce has a spoke say of itself what no peer takes.
func TestAHeartbeatThatIsRefusedIsSaidOnce(t *testing.T) {
	t.Parallel()
	m := Start(t)
	a := m.Attack(t, "thief")
	bad := &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "x",
		Connection: commands.ConnectionView{State: commands.ConnSuspended, Reason: noText}}
	said := func() int { return strings.Count(m.Hub.Log.String(), "a heartbeat of the peer is refused") }

	for range 3 {
		a.Beat(t, a.Seal(t, bad, nil, nil).Envelope)
	}

	Await(t, "the refusals", func() bool {
		return m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'message.refused' AND code = 'BODY_JSON'`) == 3
	})
	require.Equal(t, 1, said())
	a.Greet(t)
	a.Beat(t, a.Seal(t, bad, nil, nil).Envelope)
	Await(t, "the next one", func() bool { return said() == 2 })
}

// A heartbeat that could not be saved is saved once that works again, although no newer one comes.
func TestAHeartbeatThatCouldNotBeSavedIsTriedAgain(t *testing.T) {
	t.Parallel()
	m := Start(t)
	a := m.Attack(t, "thief")
	m.Hub.exec(t, `CREATE FUNCTION not_now() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '55000'; END $$;
		CREATE TRIGGER not_now BEFORE INSERT ON heartbeats FOR EACH STATEMENT EXECUTE FUNCTION not_now()`)
	a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "newest", Connection: commands.ConnectionView{State: commands.ConnActive}}, nil, nil).Envelope)
	Await(t, "a save that fails", func() bool { return strings.Contains(m.Hub.Log.String(), "saving heartbeats") })

	m.Hub.exec(t, `DROP TRIGGER not_now ON heartbeats`)

	Await(t, "the heartbeat", func() bool {
		return m.Hub.count(t, `SELECT count(*) FROM heartbeats WHERE body->>'version' = 'newest'`) == 1
	})
}
