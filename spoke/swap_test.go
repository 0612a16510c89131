package spoke_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// swapper exchanges two names all the time, each time in one step of the kernel's, until there is a file "stop".
const swapper = `import ctypes, os
swap = ctypes.CDLL(None, use_errno=True).renameat2
open("swapping", "w").close()
while not os.path.exists("stop"):
    for _ in range(500):
        assert swap(-100, b"../proj", -100, b"../other", 2) == 0, os.strerror(ctypes.get_errno())
`

// world makes directories that every user may change.
func world(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.Chmod(dir, 0o777))
	}
}

// An agent that swaps the working directory of others with a link while they start opens nothing to them that the policy
// does not: they run in the directory that was judged, or not at all.
func TestADirectoryThatIsSwappedOpensNothing(t *testing.T) {
	t.Parallel()
	for name, demands := range map[string][]string{"as the host confines": nil, "in a bubble": commands.IsolationCapabilities(commands.IsolationBubble)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireSwappedOpensNothing(t, demands)
		})
	}
}

func requireSwappedOpensNothing(t *testing.T, demands []string) {
	t.Helper()
	top, err := os.MkdirTemp("/var/tmp", "swapped") // agents may write to /dev/shm
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(top)) })
	area, private := filepath.Join(top, "area"), filepath.Join(top, "private")
	world(t, top, area, private, filepath.Join(area, "proj"), filepath.Join(area, "swapper"))
	require.NoError(t, os.Symlink(private, filepath.Join(area, "other")))
	m := meshtest.Plan{Policy: "version: 1\nruntimes: [exec]\ncommands: [\"*\"]\ndirectories: [" + area + "]\nwrite_paths: [" + area + "]\n", Passable: true}.Start(t, "attic")
	spawn := commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"python3", "-c", swapper}, Dir: filepath.Join(area, "swapper")}
	hostile := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: spawn})
	meshtest.Await(t, "that it swaps", func() bool { _, err := os.Stat(filepath.Join(spawn.Dir, "swapping")); return err == nil })
	victim := shell(`pwd -P; echo x >` + private + `/opened && echo opened; true`)
	victim.Capabilities = demands
	if _, err := exec.LookPath("bwrap"); err != nil && demands != nil {
		require.Equal(t, commands.CapabilityMissing, m.Wait(t, m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: victim})).Reason, "the package bubblewrap is not here")
		return
	}
	victim.Dir = filepath.Join(area, "proj")
	started := 0
	for range 10 {
		var tasks []string
		for range 3 {
			tasks = append(tasks, m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: victim}))
		}
		for _, task := range tasks {
			if m.Wait(t, task).State != commands.Completed {
				continue // it was refused, or has not started
			}
			require.Contains(t, []string{filepath.Join(area, "proj"), filepath.Join(area, "other")}, strings.TrimSpace(m.Stdout(t, task, true)))
			started++
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(spawn.Dir, "stop"), nil, 0o600))
	require.Equal(t, commands.Completed, m.Wait(t, hostile).State)
	require.NoFileExists(t, filepath.Join(private, "opened"))
	require.Zero(t, openHere(t, filepath.Join(area, "proj"))+openHere(t, filepath.Join(area, "other")))
	if demands == nil { // bubblewrap starts nothing where it sees a swap
		require.Positive(t, started)
	}
	last := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: victim}) // each round of swaps ends as it began
	require.Equal(t, commands.Completed, m.Wait(t, last).State)
	require.Equal(t, victim.Dir+"\n", m.Stdout(t, last, true))
	m.Check(t)
}

// A directory that is none, or that a link leads to from where the policy allows one, is refused with what to do; and each
// attempt is judged anew.
func TestADirectoryOfAnOrderIsJudgedAtEachAttempt(t *testing.T) {
	t.Parallel()
	top, err := os.MkdirTemp("/var/tmp", "judged")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(top)) })
	area, private := filepath.Join(top, "area"), filepath.Join(top, "private")
	at := func(name string) string { return filepath.Join(area, name) }
	world(t, top, area, private, at("proj"), at("target"))
	require.NoError(t, os.Symlink(private, at("out")))
	require.NoError(t, os.Symlink(at("target"), at("in")))
	require.NoError(t, os.WriteFile(at("file"), nil, 0o600))
	m := meshtest.Plan{Policy: "version: 1\nruntimes: [exec]\ncommands: [\"*\"]\ndirectories: [" + area + "]\nwrite_paths: [" + area + "]\n", Passable: true}.Start(t, "attic")
	s := m.Spokes["attic"]
	order := func(name, script string) string {
		r := hub.SpawnRequest{Spoke: "attic", Spawn: shell(script)}
		r.Spawn.Dir, r.Spawn.MaxRetries = at(name), 1
		return m.Order(t, r)
	}
	aside := map[string]string{"none": "there is no directory " + at("none"), "out": at("out") + " leads to " + private + ", which is not allowed", "file": at("file") + " is no directory"}
	for name, says := range map[string]string{"none": "no such directory", "out": "is not allowed", "file": "no such directory"} {
		v := m.Wait(t, order(name, "true"))
		require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE object = $1 AND code = 'PATH' AND why LIKE '%; ' || $2`, v.Task, aside[name]), name)
		require.NotContains(t, string(v.Refusal), aside[name], "the host alone is told")
		require.Contains(t, string(v.Refusal), `"PATH"`, name)
		require.Contains(t, string(v.Refusal), says, name)
		require.Contains(t, string(v.Refusal), "under directories in policy.yaml", name)
	}
	task := order("in", "pwd -P")
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	require.Equal(t, at("target")+"\n", m.Stdout(t, task, true), "a link may lead to where the policy allows it")

	for name, swap := range map[string]string{"is gone": "rmdir ../proj", "is a link": "rmdir ../proj; ln -s " + private + " ../proj"} {
		world(t, at("proj"))
		task = order("proj", swap+"; exit 1")
		meshtest.Await(t, "the end", func() bool {
			s.Exec(t, `UPDATE due SET at = now() WHERE at > now()`)
			return m.Agent(t, task).State.Terminal()
		})

		v := m.Agent(t, task)
		require.Equal(t, commands.PolicyDenied, v.Reason, name)
		require.Contains(t, string(v.Result), "directory "+at("proj")+" is not allowed on this spoke, or there is no such directory", name)
		_ = os.Remove(at("proj"))
	}
	m.Check(t)
}

// An agent that puts a link in the place of a directory that the policy lists opens nothing to the next one.
func TestALinkOfAnAgentOpensNothingToTheNext(t *testing.T) {
	t.Parallel()
	top, err := os.MkdirTemp("/var/tmp", "listed")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(top)) })
	area, private := filepath.Join(top, "area"), filepath.Join(top, "private")
	cache := filepath.Join(area, "cache")
	world(t, top, area, private, cache)
	m := meshtest.Plan{Policy: "version: 1\nruntimes: [exec]\ncommands: [\"*\"]\nwrite_paths: [" + area + ", " + cache + "]\n", Passable: true}.Start(t, "attic")
	s := m.Spokes["attic"]
	use := `cd ` + cache + `; echo x >` + cache + `/file && echo wrote; true`
	first := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell(use + `; cd ..; rm -r cache; ln -s ` + private + ` cache`)})
	require.Equal(t, commands.Completed, m.Wait(t, first).State)
	require.Equal(t, "wrote\n", m.Stdout(t, first, true))

	next := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell(use)})

	require.Equal(t, commands.Completed, m.Wait(t, next).State)
	require.Empty(t, m.Stdout(t, next, true))
	require.NoFileExists(t, filepath.Join(private, "file"))
	require.Contains(t, s.Health(t, "paths of the policy").Problem, "no agent reaches "+cache+": there is a link")
	m.Check(t)
}
