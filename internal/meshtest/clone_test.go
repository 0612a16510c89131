package meshtest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// clone returns a copy of a spoke that does not run: directory, keys, database.
func (m *Mesh) clone(t *testing.T, of string) *Spoke {
	t.Helper()
	original := m.Spokes[of]
	dir := filepath.Join(t.TempDir(), "copy")
	out, err := exec.CommandContext(t.Context(), "cp", "-a", original.Dir, dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	c := &Spoke{Instance: &Instance{Name: "clone", Dir: dir, Keys: original.Keys, Log: &Log{}, url: original.Backup(t), client: control.NewClient(dir)},
		Proxy: original.Proxy, Conn: original.Conn, plan: m.plan}
	c.look(t)
	t.Cleanup(func() { c.SQL.Close() })
	t.Cleanup(func() { c.stop(t) })
	return c
}

// A spoke and its copy both run. The hub hears them by turns, and the connection
// is suspended on both sides until a person has decided.
func TestACloneThatRunsBesideTheOriginal(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	original := m.Spokes["attic"]
	m.Wait(t, m.Noop(t, "attic"))
	m.Stop(t, "attic")
	clone := m.clone(t, "attic")
	suspended := func(s *Spoke) bool {
		return s.Count(t, `SELECT count(*) FROM connections WHERE state = 'suspended' AND state_by = 'peer' AND state_reason LIKE 'lab says: two instances run with the key of attic%'`) == 1
	}

	m.Start(t, "attic")
	clone.start(t)

	Await(t, "the suspension at the hub", func() bool {
		v := m.View(t, "attic")
		return v.State == store.Suspended && strings.HasPrefix(v.Reason, "two instances run with the key of attic")
	})
	Await(t, "the suspension at one of the two", func() bool { return suspended(original) || suspended(clone) })
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'connection.suspended' AND actor = 'clone'`))

	// A person stops one of them and resumes the connection, at the hub first: until then
	// it tells the spoke to suspend it.
	clone.stop(t)
	m.Turn(t, "attic", "resume")
	Await(t, "that both sides go on", func() bool {
		if suspended(original) {
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
