package meshtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// An instance that is restored to before its peer had a new key learns that again, and nothing of the peer is refused there: nor what
// the peer had signed with the old key, and it had taken, before. The messages that told the new key may be gone.
func TestWhoIsRestoredToBeforeANewKeyOfItsPeerLearnsIt(t *testing.T) {
	t.Parallel()
	revoke := store.KeyChange{Revoke: "current", Reason: "the disk was copied"}
	for name, c := range map[string]keyLoss{
		"a spoke, rotated":          {"attic", []store.KeyChange{{}}, false},
		"a spoke, rotated twice":    {"attic", []store.KeyChange{{}, {}}, false},
		"a spoke, revoked":          {"attic", []store.KeyChange{{}, revoke}, false},
		"a spoke, rotated long ago": {"attic", []store.KeyChange{{}}, true},
		"a spoke, revoked long ago": {"attic", []store.KeyChange{revoke}, true},
		"a hub, rotated":            {"hub", []store.KeyChange{{}}, false},
		"a hub, revoked long ago":   {"hub", []store.KeyChange{revoke}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.happens(t, Start(t, "attic"))
		})
	}
}

// A keyLoss is what a restored side has lost.
type keyLoss struct {
	restored string            // the side
	changes  []store.KeyChange // of its peer's keys
	pruned   bool              // the peer has not kept what it told
}

func (c keyLoss) happens(t *testing.T, m *Mesh) {
	d, peer, traced := disaster{sides: []string{c.restored}}, "hub", newTraced(t)
	restored, order := m.instance(t, c.restored), func() string {
		task := traced.order(t, m, traced.gate)
		Await(t, "its acceptance", func() bool { return m.Agent(t, task).AcceptedAt != nil })
		return task
	}
	for range 2 { // all slots
		m.Await(t, order(), commands.Running)
	}
	var task string
	if c.restored == "hub" {
		peer, task = "attic", traced.order(t, m, traced.gate)
	}
	backups := d.backUp(t, m)
	m.AwaitLink(t, "attic")
	if c.restored == "attic" {
		task = order()
	}
	version := c.change(t, m.instance(t, peer))
	at := time.Now()

	d.restore(t, m, backups)

	agreeAgain(t, m, "attic")
	unknown := restored.count(t, refusals+` AND code = 'KEY_UNKNOWN'`)
	traced.open(t)
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	require.Equal(t, 1, traced.runs(t, task))
	require.Equal(t, 1, restored.count(t, `SELECT count(*) FROM keys WHERE use = 'identity' AND version >= $1`, version))
	require.Equal(t, unknown, restored.count(t, refusals+` AND code = 'KEY_UNKNOWN'`), "but for heartbeats until it was heard, nothing is")
	require.Zero(t, restored.count(t, refusals+` AND code = 'KEY_REVOKED' AND at > $1`, at))
}

// change changes the keys of peer, and returns the version of its key set.
func (c keyLoss) change(t *testing.T, peer *Instance) int64 {
	t.Helper()
	var v store.KeysView
	for _, change := range c.changes {
		v = peer.change(t, change)
		Await(t, "the new key", func() bool {
			peer.Do(t, "GET", "/api/v1/keys", nil, &v)
			return len(v.Waiting) == 0
		})
	}
	if c.pruned {
		_, err := peer.SQL.Exec(t.Context(), `DELETE FROM outbox WHERE kind = 'peer.keyset'`)
		require.NoError(t, err)
	}
	return v.Version
}
