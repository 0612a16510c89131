package spoke_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/door"
)

// openHere counts what this process has open at a path.
func openHere(t *testing.T, path string) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == path {
			n++
		}
	}
	return n
}

// giveTo gives files to the owner of another one.
func giveTo(t *testing.T, of string, files ...string) {
	t.Helper()
	info, err := os.Stat(of)
	require.NoError(t, err)
	for _, file := range files {
		require.NoError(t, os.Chown(file, int(info.Sys().(*syscall.Stat_t).Uid), -1))
	}
}

// A confined agent that puts a link in the place of its working directory has its spoke describe nothing that is behind it, also
// after the spoke was started again. The spoke keeps the directory open no longer than the attempt.
func TestArtifactsAreOfTheDirectoryThatAnAgentBeganIn(t *testing.T) {
	t.Parallel()
	top, err := os.MkdirTemp("/var/tmp", "workdir") // agents may write to /dev/shm
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(top)) })
	area, keys := filepath.Join(top, "area"), filepath.Join(top, "keys")
	proj, old := filepath.Join(area, "proj"), filepath.Join(area, "old")
	require.NoError(t, os.MkdirAll(proj, 0o700))
	require.NoError(t, os.Mkdir(keys, 0o700))
	for _, dir := range []string{top, area, proj} { // it may have a user of its own
		require.NoError(t, os.Chmod(dir, 0o777))
	}
	require.NoError(t, os.WriteFile(filepath.Join(keys, "signing.json"), []byte("secret"), 0o600))
	m := confined(t, "write_paths: ["+area+"]\n")
	spawn := shell(`echo mine >own; mv ../proj ../old; ln -s ` + keys + ` ../proj; echo >moved; while [ ! -e end ]; do sleep 0.05; done; cat ` + keys + `/signing.json || echo denied`)
	spawn.Dir = proj
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: spawn})
	c := doorOf(m.Spokes["attic"], task, 1)
	other, otherDoor, otherDir := working(t, m, 0)
	meshtest.Await(t, "that the agent has moved its directory", func() bool { _, err := os.Stat(filepath.Join(old, "moved")); return err == nil })
	giveTo(t, filepath.Join(old, "own"), keys, filepath.Join(keys, "signing.json"))
	name := func(c *door.Client, path string) error {
		return c.Do(t.Context(), "POST", "/v1/done", door.Done{Artifacts: []door.Named{{Name: "key", Path: path}}}, nil)
	}
	require.Equal(t, 1, openHere(t, old))
	require.Equal(t, commands.NotFound, commands.CodeOf(name(c, "signing.json")))
	require.Equal(t, commands.NotFound, commands.CodeOf(name(c, filepath.Join(proj, "signing.json"))))
	require.NoError(t, name(c, "own"), "its own files are where it began")
	m.Stop(t, "attic")
	require.Equal(t, 0, openHere(t, old))
	require.NoError(t, os.WriteFile(filepath.Join(otherDir, "own"), nil, 0o600))
	require.NoError(t, os.Remove(filepath.Join(m.Spokes["attic"].Dir, "agents", other, "1", "control", "workdir")))

	m.Start(t, "attic")

	err = name(c, "signing.json")
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	require.ErrorContains(t, err, "the one that it began in")
	require.Equal(t, commands.Conflict, commands.CodeOf(name(otherDoor, "own")), "nobody knows where this one began")
	require.NoError(t, os.Remove(proj))
	require.NoError(t, os.Rename(old, proj))
	require.NoError(t, name(c, "own"), "it is there again")
	endWith(t, proj, "0")
	r := endOf(t, m, task)
	require.Equal(t, []any{"own", int64(5)}, []any{r.Artifacts[0].Path, r.Artifacts[0].Size})
	require.Equal(t, "denied\n", m.Stdout(t, task, true), "it may not read what it named")
	endWith(t, otherDir, "0")
	endOf(t, m, other)
	meshtest.Await(t, "that nothing is open any more", func() bool { return openHere(t, proj)+openHere(t, otherDir) == 0 })
}
