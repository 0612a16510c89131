package meshtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// An instance that is restored to before its peer had a new key learns that again, and nothing of the peer is refused there: nor what
// the peer had signed with the old key, and it had taken, before. The messages that told the new key may be gone.
func TestWhoIsRestoredToBeforeANewKeyOfItsPeerLearnsIt(t *testing.T) {
	t.Parallel()
	revoke := store.KeyChange{Revoke: "current", Reason: "the disk was copied"}
	for name, c := range scale.SomeCases(t, 2, map[string]keyLoss{
		"a spoke, rotated":          {"attic", []store.KeyChange{{}}, false},
		"a spoke, rotated twice":    {"attic", []store.KeyChange{{}, {}}, false},
		"a spoke, revoked":          {"attic", []store.KeyChange{{}, revoke}, false},
		"a spoke, rotated long ago": {"attic", []store.KeyChange{{}}, true},
		"a spoke, revoked long ago": {"attic", []store.KeyChange{revoke}, true},
		"a hub, rotated":            {"hub", []store.KeyChange{{}}, false},
		"a hub, revoked long ago":   {"hub", []store.KeyChange{revoke}, true},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.happens(t, Plan{Lease: time.Minute}.Start(t, "attic")) // an agent outlives what two keys take to be told
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

// Who is restored a second time to before a new key of its peer is told it once more.
func TestALostKeyIsToldAfterEachRestore(t *testing.T) {
	t.Parallel()
	m, d := Start(t, "attic"), disaster{sides: []string{"attic"}}
	backups := d.backUp(t, m)
	m.AwaitLink(t, "attic")
	version := keyLoss{changes: []store.KeyChange{{}}}.change(t, m.Hub.Instance)
	for range 2 {
		d.restore(t, m, backups)

		Await(t, "the new key", func() bool {
			return m.Spokes["attic"].count(t, `SELECT count(*) FROM keys WHERE use = 'identity' AND version = $1`, version) == 1
		})
		agreeAgain(t, m, "attic")
		require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
	}
}

// While heartbeats of a peer are refused as their key is not known, that is said with what helps, and audited once; who compares by
// hand does not wait.
func TestHeartbeatsWhoseKeyIsNotKnownAreNamed(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	attic := m.Spokes["attic"]
	m.Stop(t, "attic")
	attic.exec(t, `CREATE TABLE kept AS SELECT * FROM keys WHERE use = 'signing'; DELETE FROM keys WHERE use = 'signing'`)
	m.Start(t, "attic")
	Await(t, "some of them", func() bool { return attic.Health(t, "heartbeats to lab").Problem != "" })

	err := unheard(t, attic.Instance, "lab")

	require.ErrorContains(t, err, "lab signs with a key that is not known here")
	require.Contains(t, attic.Health(t, "heartbeats of lab").Problem, "not known here (KEY_UNKNOWN), so none is taken")
	require.Equal(t, 1, attic.count(t, refusals))
	attic.exec(t, `INSERT INTO keys SELECT * FROM kept`)
	agreeAgain(t, m, "attic")
	require.Empty(t, attic.Health(t, "heartbeats of lab"))
}

// The side whose key is lost says so where the peer does not take it.
func TestAPeerThatDoesNotTakeWhatItHasLostIsNamed(t *testing.T) {
	t.Parallel()
	m := Plan{Answers: time.Second}.Start(t, "attic") // it is told three times, once an interval
	attic, d := m.Spokes["attic"], disaster{sides: []string{"attic"}}
	attic.exec(t, `CREATE FUNCTION not_now() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '55000'; END $$;
		CREATE TRIGGER not_now BEFORE INSERT ON keys FOR EACH ROW EXECUTE FUNCTION not_now()`)
	backups := d.backUp(t, m)
	attic.exec(t, `DROP FUNCTION not_now CASCADE`)
	m.AwaitLink(t, "attic")
	keyLoss{changes: []store.KeyChange{{}}}.change(t, m.Hub.Instance)
	d.restore(t, m, backups)

	err := unheard(t, m.Hub.Instance, "attic")

	require.ErrorContains(t, err, "attic does not know the key that this instance signs with")
	require.Contains(t, m.Hub.Health(t, "keys for attic").Problem, "has not taken it though it was told again")
	attic.exec(t, `DROP FUNCTION not_now CASCADE`)
	agreeAgain(t, m, "attic")
	require.Empty(t, m.Hub.Health(t, "keys for attic"))
}

// unheard waits until i says that a key is not known between it and a peer, and returns what comparing by hand says then.
func unheard(t *testing.T, i *Instance, peer string) error {
	t.Helper()
	Await(t, "the reason", func() bool {
		var v struct{ Reasons []commands.WhyReason }
		i.Do(t, "GET", "/api/v1/connections/"+peer, nil, &v)
		return slices.ContainsFunc(v.Reasons, func(r commands.WhyReason) bool {
			return r.Code == commands.CauseKey && strings.Contains(r.Fix, "spawnmesh connections revoke "+peer+" --reason WHY")
		})
	})
	err := i.Ask(t, "POST", "/api/v1/connections/"+peer+"/resync", nil, nil)
	require.Equal(t, signing.KeyUnknown, commands.CodeOf(err), "%v", err)
	return err
}
