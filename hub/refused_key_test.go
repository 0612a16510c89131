package hub_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// What a spoke says of a key that its hub does not sign with is not shown: a person
// would end a key for it.
func TestASpokeThatRefusesAKey(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	inUse := m.Hub.Keys.Signing.KeyID()
	says := func(key signing.KeyID, why string) (refuses *commands.EndedKey, problem string) {
		a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "x", Connection: commands.ConnectionView{
			State: "active", Reason: why, Refuses: &commands.EndedKey{Key: key, Code: signing.KeyRevoked}}}, nil, nil).Envelope)
		meshtest.Await(t, "the heartbeat", func() bool {
			v := m.View(t, "thief")
			refuses = v.Says.Refuses
			return v.Says.Reason == why
		})
		return refuses, m.Hub.Health(t, "key for thief").Problem
	}

	refuses, problem := says(a.Keys.Signing.KeyID(), "none of the hub's")
	require.Nil(t, refuses)
	require.Empty(t, problem)

	refuses, problem = says(inUse, "the hub's")
	require.Equal(t, inUse, refuses.Key)
	require.Contains(t, problem, "thief says that it refuses key "+string(inUse))
}

// A key that its spoke refuses and that is revoked here already cannot be revoked again: what is to be
// run is another command, wherever it is said.
func TestARefusedKeyThatIsRevokedIsNotRevokedAgain(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	inUse := m.Hub.Keys.Signing.KeyID()
	go func() { // it waits for the spoke, which confirms nothing
		_ = m.Hub.Ask(t, "POST", "/api/v1/keys/revoke", api.KeyRevocation{Key: "current", Reason: "copied"}, nil)
	}()
	meshtest.Await(t, "what the view says", func() bool { return m.View(t, "thief").KeyRevoked })

	for range 3 {
		a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "x",
			Connection: commands.ConnectionView{State: "active", Refuses: &commands.EndedKey{Key: inUse, Code: signing.KeyRevoked}}}, nil, nil).Envelope)
	}

	meshtest.Await(t, "the warning", func() bool { return strings.Contains(m.Hub.Log.String(), "the peer has ended the key") })
	require.Regexp(t, `the peer has ended the key .* next=.*keys rotate"?\n`, m.Hub.Log.String())
	require.Equal(t, []string{"keys", "rotate"}, m.Hub.Health(t, "key for thief").Run)
}

// That a key is refused is audited once for each key, however often a spoke changes
// its mind.
func TestASpokeThatRefusesAKeyByTurns(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	ended := &commands.EndedKey{Key: m.Hub.Keys.Signing.KeyID(), Code: signing.KeyRevoked}

	for range 5 {
		for _, refuses := range []*commands.EndedKey{ended, ended, ended, nil} {
			a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "x",
				Connection: commands.ConnectionView{State: "active", Refuses: refuses}}, nil, nil).Envelope)
		}
	}

	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'key.refused'`))
}
