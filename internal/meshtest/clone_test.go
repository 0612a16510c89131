package meshtest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
)

// clone returns a copy of a spoke that does not run: directory, keys, database.
func (m *Mesh) clone(t *testing.T, of string) *Spoke {
	t.Helper()
	original := m.Spokes[of]
	dir := filepath.Join(t.TempDir(), "copy")
	out, err := exec.CommandContext(t.Context(), "cp", "-a", original.Dir, dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Remove(filepath.Join(dir, "place"))) // it is as if on another host
	c := &Spoke{Instance: &Instance{Name: "clone", Dir: dir, Keys: original.Keys, Log: &Log{}, url: original.Backup(t), client: control.NewClient(dir)},
		Proxy: original.Proxy, Conn: original.Conn, plan: m.plan}
	c.look(t)
	t.Cleanup(func() { c.SQL.Close() })
	t.Cleanup(func() {
		c.stop(t)
		if t.Failed() {
			_, _ = io.WriteString(t.Output(), "--- log of the copy\n"+c.Log.String())
		}
	})
	return c
}

// stoppedWithClone stops a spoke that has worked, and returns a copy of it.
func (m *Mesh) stoppedWithClone(t *testing.T, name string) *Spoke {
	t.Helper()
	m.Wait(t, m.Noop(t, name))
	m.Stop(t, name)
	return m.clone(t, name)
}

// toldOfClone reports whether s knows from its hub that two instances have its key.
func toldOfClone(t *testing.T, s *Spoke) bool {
	return s.Count(t, `SELECT count(*) FROM connections WHERE state = 'suspended' AND state_by = 'peer' AND state_reason LIKE 'lab says: two instances run with the key of attic%'`) == 1
}

// A spoke and its copy both run. The hub hears them by turns, and the connection
// is suspended on both sides until a person has decided.
func TestACloneThatRunsBesideTheOriginal(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	original, clone := m.Spokes["attic"], m.stoppedWithClone(t, "attic")

	m.Start(t, "attic")
	clone.start(t)

	Await(t, "the suspension at the hub", func() bool {
		v := m.View(t, "attic")
		return v.State == store.Suspended && strings.HasPrefix(v.Reason, "two instances run with the key of attic")
	})
	Await(t, "the suspension at both", func() bool { return toldOfClone(t, original) && toldOfClone(t, clone) })
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'connection.suspended' AND actor = 'clone'`))

	// A person stops one of them and resumes the connection, at the hub first: until then
	// it tells the spoke to suspend it.
	clone.stop(t)
	m.Turn(t, "attic", "resume")
	Await(t, "that both sides go on", func() bool {
		if toldOfClone(t, original) {
			original.Turn(t, "resume")
		}
		v := m.View(t, "attic")
		return v.State == store.Active && v.Linked && v.Says.State == string(store.Active)
	})
	agreeAgain(t, m, "attic")
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
	m.Stop(t, "attic")
	m.Start(t, "attic")
	agreeAgain(t, m, "attic")
	require.Equal(t, store.Active, m.View(t, "attic").State, "a restart is no clone")
}

// What another process serves is left to it until its lease ends, and whoever asks why there
// is no link is told.
func TestASpokeSaysWhoServesItsConnection(t *testing.T) {
	t.Parallel()
	s := Start(t, "attic").Spokes["attic"]
	view := func() spoke.HubView {
		var list control.Items[spoke.HubView]
		s.Do(t, "GET", "/api/v1/connections", nil, &list)
		require.Len(t, list.Items, 1)
		return list.Items[0]
	}

	s.Exec(t, `UPDATE serving SET process = 'instance:/elsewhere', until = clock_timestamp() + interval '1 hour'`)

	Await(t, "that it is left to the other", func() bool {
		return strings.HasPrefix(view().LinkError, "instance:/elsewhere serves the connection, until ")
	})
	require.Equal(t, 1, strings.Count(s.Log.String(), "another process serves the connection; this one waits until the other is silent"))
	s.Exec(t, `UPDATE serving SET until = clock_timestamp()`)
	Await(t, "that it is taken over", func() bool { return view().Linked })
	require.Empty(t, view().LinkError)
}

// The hub's database is slow, so that few heartbeats are handled, and no answer to one
// tells of the suspension before the links are cut. The copies are noticed by their links,
// and both learn of it all the same.
func TestTwoCopiesLearnOfTheirSuspensionFromASlowHub(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	original, clone := m.Spokes["attic"], m.stoppedWithClone(t, "attic")
	slow, err := m.Hub.SQL.Begin(t.Context()) // holds up the comparison of histories, and nothing before it
	require.NoError(t, err)
	t.Cleanup(func() { _ = slow.Rollback(context.WithoutCancel(t.Context())) })
	_, err = slow.Exec(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`)
	require.NoError(t, err)
	_, err = slow.Exec(t.Context(), `SELECT FROM sequences WHERE conn = $1 FOR KEY SHARE`, original.Conn)
	require.NoError(t, err)
	m.Start(t, "attic")
	clone.start(t)
	Await(t, "the suspension at the hub", func() bool { return m.View(t, "attic").State == store.Suspended })
	Await(t, "the cut", func() bool { return !m.View(t, "attic").Linked })

	require.NoError(t, slow.Rollback(t.Context()))

	Await(t, "that both copies know of it", func() bool { return toldOfClone(t, original) && toldOfClone(t, clone) })
}
