package spoke_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/door"
)

// ends lets the agent of a task end, with a file in its working directory, which it waits for.
const ends = `while [ ! -e end ]; do sleep 0.05; done; exit $(cat end)`

// working orders an agent that ends when it is told, and returns its door and its working directory.
func working(t *testing.T, m *meshtest.Mesh, retries int) (task string, c *door.Client, dir string) {
	t.Helper()
	s := m.Spokes["attic"]
	task = m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sh", "-c", ends}, MaxRetries: retries}})
	m.Await(t, task, commands.Running)
	return task, doorOf(s, task, 1), filepath.Join(s.Dir, "agents", task, "1", "work")
}

func endWith(t *testing.T, dir, code string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "draft"), []byte(code), 0o600))
	require.NoError(t, os.Rename(filepath.Join(dir, "draft"), filepath.Join(dir, "end")))
}

func endOf(t *testing.T, m *meshtest.Mesh, task string) commands.Result {
	t.Helper()
	r, ok := commands.ReadResult(m.Wait(t, task).Result)
	require.True(t, ok)
	return r
}

// What an agent says of its end is in the result that its hub has, the last word counts, also after the spoke was started again; how it
// ended is what its supervisor saw.
func TestAnAgentSaysWhatItHasDone(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, c, dir := working(t, m, 0)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "build.log"), []byte("all good"), 0o600))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "out")))
	require.NoError(t, os.Symlink("build.log", filepath.Join(dir, "in")))
	say := func(d door.Done) error { return c.Do(t.Context(), "POST", "/v1/done", d, nil) }
	require.NoError(t, c.Do(t.Context(), "POST", "/v1/fail", door.Failed{Reason: "at first", Final: true}, nil))
	for name, x := range map[string]struct {
		say  door.Done
		code commands.Code
	}{
		"a link out":      {door.Done{Artifacts: []door.Named{{Name: "x", Path: "out"}}}, commands.NotFound},
		"a path out":      {door.Done{Artifacts: []door.Named{{Name: "x", Path: "../door/token"}}}, commands.BadPath},
		"another path":    {door.Done{Artifacts: []door.Named{{Name: "x", Path: "/etc/passwd"}}}, commands.BadPath},
		"beside it":       {door.Done{Artifacts: []door.Named{{Name: "x", Path: dir + "-2/in"}}}, commands.BadPath},
		"a directory":     {door.Done{Artifacts: []door.Named{{Name: "x", Path: "."}}}, commands.Validation},
		"no such file":    {door.Done{Artifacts: []door.Named{{Name: "x", Path: "none"}}}, commands.NotFound},
		"a name twice":    {door.Done{Artifacts: []door.Named{{Name: "x", Path: "in"}, {Name: "x", Path: "in"}}}, commands.Validation},
		"no JSON":         {door.Done{Data: "{"}, commands.Validation},
		"too much":        {door.Done{Data: `"` + strings.Repeat("x", commands.MaxData) + `"`}, commands.Validation},
		"much in escapes": {door.Done{Data: `"` + strings.Repeat(`\\`, 30<<10) + `"`}, commands.PayloadTooLarge},
		"a long summary":  {door.Done{Summary: strings.Repeat("x", 4097)}, commands.Validation},
	} {
		require.Equal(t, x.code, commands.CodeOf(say(x.say)), name)
	}
	require.NoError(t, say(door.Done{Summary: "fixed 3 files", Data: `{"files": 3, "x": 1e999999}`, Artifacts: []door.Named{{Name: "log", Path: "./in"}, {Name: "whole", Path: filepath.Join(dir, "in")}}}))
	m.Stop(t, "attic")
	m.Start(t, "attic")

	endWith(t, dir, "3")

	r := endOf(t, m, task)
	require.Equal(t, commands.Failed, r.State, "the exit code decides")
	require.Equal(t, &commands.Report{As: commands.SaidDone, Text: "fixed 3 files"}, r.Reported)
	require.NotEmpty(t, r.Contradicts())
	require.Equal(t, `{"files": 3, "x": 1e999999}`, r.Data)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("all good")))
	require.Equal(t, []commands.Artifact{{Name: "log", Path: "in", Size: 8, SHA256: sum}, {Name: "whole", Path: "in", Size: 8, SHA256: sum}}, r.Artifacts)
}

// An agent that says that it is of no use to try again is not, if it fails; without that it is.
func TestAFailureMayBeFinal(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, c, dir := working(t, m, 3)
	require.NoError(t, c.Do(t.Context(), "POST", "/v1/fail", door.Failed{Reason: "the repository is empty", Final: true}, nil))
	endWith(t, dir, "1")
	r := endOf(t, m, task)
	require.Equal(t, []any{commands.Failed, 1, "the repository is empty"}, []any{r.State, r.Attempt, r.Reported.Text})
	require.Empty(t, r.Contradicts())
	require.True(t, r.Reported.NoRetry(), "its hub sees why no attempt followed")

	task, c, dir = working(t, m, 3)
	require.NoError(t, c.Do(t.Context(), "POST", "/v1/fail", door.Failed{Reason: "the network is down"}, nil))
	endWith(t, dir, "1")
	m.Await(t, task, commands.Queued)
}

// The last word is that of the database: of two at once, and of one whose answer was lost.
func TestTheLastWordIsTheStoredOne(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, c, dir := working(t, m, 2)
	require.NoError(t, c.Do(t.Context(), "POST", "/v1/fail", door.Failed{Reason: "again, please"}, nil))
	m.Spokes["attic"].Exec(t, `UPDATE leases SET word = '{"as": "failed", "text": "of no use", "final": true}' WHERE task = $1`, task)

	endWith(t, dir, "3")

	r := endOf(t, m, task)
	require.Equal(t, 1, r.Attempt, "it is not tried again")
	require.Equal(t, &commands.Report{As: commands.SaidFailed, Text: "of no use", Final: true}, r.Reported)
}
