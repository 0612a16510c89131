package meshtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// change changes the signing key of a running instance.
func (i *Instance) change(t testing.TB, c store.KeyChange) store.KeysView {
	t.Helper()
	var v store.KeysView
	if c.Revoke == "" {
		i.Do(t, "POST", "/api/v1/keys/rotate", api.KeyRotation{OverlapMS: c.OverlapMS, Reason: c.Reason}, &v)
	} else {
		i.Do(t, "POST", "/api/v1/keys/revoke", api.KeyRevocation{Key: c.Revoke, Reason: c.Reason}, &v)
	}
	return v
}

func (i *Instance) count(t testing.TB, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, i.SQL.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

const refusals = `SELECT count(*) FROM audit WHERE action IN ('message.refused', 'command.refused', 'report.refused', 'heartbeat.refused')`

// load orders tasks that start nothing, 200 a second, and calls at before the
// n-th one.
func (m *Mesh) load(t testing.TB, name string, n int, at map[int]func()) (tasks []string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := range n {
		if act := at[i]; act != nil {
			act()
		}
		tasks = append(tasks, m.Noop(t, name))
		<-tick.C
	}
	return tasks
}

func TestKeysOfBothSidesAreRotatedUnderLoad(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	attic := m.Spokes["attic"]
	rotate := func(i *Instance) func() { return func() { i.change(t, store.KeyChange{}) } }

	n := scale.Larger(t, "SPAWNMESH_KEY_LOAD", 60, 300)
	tasks := m.load(t, "attic", n, map[int]func(){n / 4: rotate(m.Hub.Instance), n / 2: rotate(attic.Instance), 3 * n / 4: rotate(m.Hub.Instance)})

	for _, id := range tasks {
		require.Equal(t, commands.Completed, m.Wait(t, id).State, id)
	}
	for _, i := range []*Instance{m.Hub.Instance, attic.Instance} {
		Await(t, "the confirmation of everything", func() bool { return i.count(t, `SELECT count(*) FROM open_outbox`) == 0 })
		require.Zero(t, i.count(t, refusals), i.Name)
		Await(t, "the new key alone", func() bool {
			var v store.KeysView
			i.Do(t, "GET", "/api/v1/keys", nil, &v)
			return len(v.Waiting) == 0 && len(v.Signing[0].Peers) == 1
		})
		Await(t, "the end of the old key's file", func() bool {
			keys, err := signing.LoadKeys(filepath.Join(i.Dir, "keys"))
			require.NoError(t, err)
			files, err := filepath.Glob(filepath.Join(i.Dir, "keys", "signing*"))
			require.NoError(t, err)
			return len(files) == 1 && keys.Signing.KeyID() != i.Keys.Signing.KeyID()
		})
	}
	require.Equal(t, 2, attic.count(t, `SELECT count(*) FROM audit WHERE action = 'keys.changed'`), "the hub's changes")
	require.Equal(t, 1, m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'keys.changed'`), "the spoke's change")
}

func TestAKeyIsRevokedUnderLoad(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	attic := m.Spokes["attic"]
	revoke := func(i *Instance) func() {
		return func() { i.change(t, store.KeyChange{Revoke: "current", Reason: "the disk was copied"}) }
	}

	n := scale.Larger(t, "SPAWNMESH_KEY_LOAD", 40, 200)
	tasks := m.load(t, "attic", n, map[int]func(){n * 3 / 8: revoke(m.Hub.Instance), n * 5 / 8: revoke(attic.Instance)})

	for _, id := range tasks {
		require.Equal(t, commands.Completed, m.Wait(t, id).State, id)
	}
	for _, i := range []*Instance{m.Hub.Instance, attic.Instance} {
		Await(t, "the confirmation of everything", func() bool { return i.count(t, `SELECT count(*) FROM open_outbox`) == 0 })
		require.Zero(t, i.count(t, `SELECT count(*) FROM connections WHERE state <> 'active'`), i.Name)
	}
	require.Equal(t, n, attic.count(t, `SELECT count(*) FROM inbox WHERE kind = 'agent.spawn'`), "each was stored once")
}

// TestARevokedKeySignsNothingMore has a spoke's key copied: the copy speaks over
// the spoke's own link.
func TestARevokedKeySignsNothingMore(t *testing.T) {
	t.Parallel()
	m := Start(t)
	a := m.Attack(t, "attic")
	asked := a.Order(t, m)
	result := func() []byte {
		return a.Seal(t, &commands.Result{Task: asked.Task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded}, asked.Re, nil).Envelope
	}
	next, err := signing.NewSigner(make([]byte, 32))
	require.NoError(t, err)
	set := &commands.KeySet{Version: 2, Keys: []commands.SetKey{{Pub: next.Public()}}, Revoked: []signing.KeyID{a.Keys.Signing.KeyID()}, Reason: "copied"}
	raw, err := signing.EncodeBody(set)
	require.NoError(t, err)
	revocation, err := a.Keys.Identity.Seal(signing.KeySet, a.Header(commands.KeySetKind, nil), raw)
	require.NoError(t, err)
	a.Send(t, commands.QueueEvents, revocation.Envelope)
	Await(t, "the revocation", func() bool { return m.Hub.count(t, `SELECT count(*) FROM keys WHERE revoked_at IS NOT NULL`) == 1 })

	a.Send(t, commands.QueueResults, result())
	a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Received{Numbers: commands.Numbers{Through: 1}}, nil, nil).Envelope)

	Await(t, "both refusals", func() bool {
		return m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'message.refused' AND code = 'KEY_REVOKED'`) >= 2
	})
	require.Zero(t, m.Hub.count(t, `SELECT count(*) FROM inbox WHERE kind = 'agent.result'`))
	require.Equal(t, 1, m.Hub.count(t, `SELECT count(*) FROM open_outbox`), "what it says to have stored does not count")
	require.False(t, m.Agent(t, asked.Task).State.Terminal())
	// Output meets no statement that asks for its key: a moment after the revocation it may still be taken.
	Await(t, "the refusal of its output", func() bool {
		a.Send(t, commands.QueueLogs, a.Seal(t, &commands.Log{Task: asked.Task, Attempt: 1, Stream: "stdout", Data: []byte("forged")}, asked.Re, nil).Envelope)
		return m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'message.refused' AND code = 'KEY_REVOKED'`) > 2
	})
}

func TestAPeerThatIsAwayLearnsTheNewKeysLater(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	attic := m.Spokes["attic"]
	m.Stop(t, "attic")
	before := m.Noop(t, "attic")
	m.Hub.change(t, store.KeyChange{})
	between := m.Noop(t, "attic")
	m.Hub.change(t, store.KeyChange{Revoke: "current", Reason: "the disk was copied"})
	v := m.Hub.change(t, store.KeyChange{})
	require.Equal(t, []string{"attic"}, v.Waiting)
	m.Stop(t, "hub")
	m.Start(t, "hub")
	after := m.Noop(t, "attic")

	m.Start(t, "attic")

	for _, id := range []string{before, between, after} {
		require.Equal(t, commands.Completed, m.Wait(t, id).State)
	}
	Await(t, "the newest key", func() bool {
		m.Hub.Do(t, "GET", "/api/v1/keys", nil, &v)
		return len(v.Waiting) == 0
	})
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
	require.Zero(t, attic.count(t, refusals))
	Await(t, "the end of the old keys' files", func() bool {
		files, err := os.ReadDir(filepath.Join(m.Hub.Dir, "keys"))
		require.NoError(t, err)
		return len(files) == 4
	})
}

// keyProblem is what doctor has to say of keys on a side.
func keyProblem(t *testing.T, i *Instance) (problem string) {
	t.Helper()
	var v struct{ Health []control.Check }
	i.Do(t, "GET", "/api/v1/instance", nil, &v)
	for _, c := range v.Health {
		if strings.HasPrefix(c.Name, "key ") {
			problem += c.Problem
		}
	}
	return problem
}

// TestARestoreFromBeforeANewKey has a side restored that knows nothing of its own
// newest key. Both sides say what is wrong, and one command mends it.
func TestARestoreFromBeforeANewKey(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"hub", "attic"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			m := Start(t, "attic")
			i, other := m.instance(t, side), m.instance(t, map[string]string{"hub": "attic", "attic": "hub"}[side])
			keys := filepath.Join(i.Dir, "keys")
			saved := filepath.Join(t.TempDir(), "keys")
			m.Stop(t, side)
			backup := i.Backup(t)
			require.NoError(t, os.CopyFS(saved, os.DirFS(keys)))
			m.Start(t, side)
			m.AwaitLink(t, "attic")
			old := i.Keys.Signing.KeyID()
			i.change(t, store.KeyChange{})
			Await(t, "the new key alone", func() bool {
				return other.count(t, `SELECT count(*) FROM keys WHERE kid = $1 AND not_after < 'infinity'`, old) == 1
			})
			m.Stop(t, side)
			_, err := other.SQL.Exec(t.Context(), `UPDATE keys SET not_after = clock_timestamp() WHERE kid = $1`, old) // as after the overlap
			require.NoError(t, err)

			i.Restore(t, backup)
			require.NoError(t, os.RemoveAll(keys))
			require.NoError(t, os.CopyFS(keys, os.DirFS(saved)))
			require.NoError(t, os.Chmod(keys, 0o700))
			files, err := filepath.Glob(filepath.Join(keys, "*"))
			require.NoError(t, err)
			for _, file := range files {
				require.NoError(t, os.Chmod(file, 0o600))
			}
			m.Start(t, side)

			Await(t, "what is wrong", func() bool {
				return i.count(t, `SELECT count(*) FROM audit WHERE action = 'key.refused' AND object = $1`, old) == 1
			})
			told := time.Now()
			Await(t, "a heartbeat all the same", func() bool { return other.count(t, `SELECT count(*) FROM heartbeats WHERE at > $1`, told) == 1 })
			require.Contains(t, keyProblem(t, i), "says that it refuses key "+string(old))
			require.Contains(t, keyProblem(t, other), "signs with key "+string(old)+", which has ended here")
			task := m.Noop(t, "attic")
			Await(t, "the audit of the other side", func() bool { return other.count(t, refusals+` AND code = 'KEY_WINDOW'`) > 0 })
			i.change(t, store.KeyChange{Revoke: string(old), Reason: "restored"})
			require.Equal(t, commands.Completed, m.Wait(t, task).State)
			Await(t, "the end of it", func() bool {
				v := m.View(t, "attic")
				return v.Says.Refuses == nil && v.Refuses == nil && keyProblem(t, i)+keyProblem(t, other) == ""
			})
		})
	}
}

// TestADatabaseFromBeforeANewKeyTakesTheKeyAtHand has a database put back beside the
// live key directory: its key is gone, and the one that the peer knows is there.
func TestADatabaseFromBeforeANewKeyTakesTheKeyAtHand(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]store.KeyChange{
		"rotated": {},
		"revoked": {Revoke: "current", Reason: "the disk was copied"},
	} {
		for _, side := range []string{"hub", "attic"} {
			t.Run(name+" on "+side, func(t *testing.T) {
				t.Parallel()
				m := Start(t, "attic")
				i, other := m.instance(t, side), m.instance(t, map[string]string{"hub": "attic", "attic": "hub"}[side])
				d := disaster{sides: []string{side}}
				backups := d.backUp(t, m)
				m.AwaitLink(t, "attic")
				old := i.Keys.Signing.KeyID()
				version := i.change(t, change).Version
				Await(t, "the end of the old key's file", func() bool {
					keys, err := signing.LoadKeys(filepath.Join(i.Dir, "keys"))
					require.NoError(t, err)
					return keys.Signing.KeyID() != old
				})

				d.restore(t, m, backups)

				agreeAgain(t, m, "attic")
				require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
				var v store.KeysView
				Await(t, "the peer's confirmation", func() bool {
					i.Do(t, "GET", "/api/v1/keys", nil, &v)
					return len(v.Waiting) == 0 && other.count(t, `SELECT count(*) FROM keys WHERE use = 'identity' AND version = $1`, v.Version) == 1
				})
				require.Greater(t, v.Version, version)
				require.Equal(t, 1, i.count(t, `SELECT count(*) FROM audit WHERE action = 'keys.adopted' AND object = $1`, old))
				require.Equal(t, 1, i.count(t, `SELECT count(*) FROM own_keys WHERE kid = $1 AND verifies = interval '1 minute'`, old), "it may have been revoked: no new peer trusts it")
				require.Equal(t, 1, other.count(t, `SELECT count(*) FROM keys WHERE kid = $1 AND not_after < 'infinity' AND (revoked_at IS NOT NULL) = $2`, old, change.Revoke != ""),
					"what the peer has ended does not come back")
				require.Zero(t, i.count(t, `SELECT count(*) FROM connections WHERE state <> 'active'`)+other.count(t, `SELECT count(*) FROM connections WHERE state <> 'active'`))
			})
		}
	}
}

// An empty text names no key: a revocation of none would be a rotation, after which the key that others have is good.
func TestARevocationNamesItsKey(t *testing.T) {
	t.Parallel()
	m := Start(t)
	var before, after store.KeysView
	m.Hub.Do(t, "GET", "/api/v1/keys", nil, &before)

	for _, body := range []api.KeyRevocation{{Reason: "stolen"}, {Key: "current"}} {
		require.Equal(t, commands.Validation, commands.CodeOf(m.Hub.Ask(t, "POST", "/api/v1/keys/revoke", body, nil)))
	}

	m.Hub.Do(t, "GET", "/api/v1/keys", nil, &after)
	require.Equal(t, before.Signing[0].ID, after.Signing[0].ID)
}
