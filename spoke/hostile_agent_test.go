package spoke_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// What an agent writes and what it calls itself is any bytes; the result that
// tells of it reaches the hub all the same.
func TestBytesThatAreNoText(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	result := func(t *testing.T, task string) (r commands.Result) {
		t.Helper()
		require.NoError(t, json.Unmarshal(m.Wait(t, task).Result, &r))
		return r
	}

	t.Run("in its output", func(t *testing.T) {
		task := m.Spawn(t, "attic", "printf", `a\000b\377c\357\277\275d`)

		r := result(t, task)

		require.Equal(t, commands.Completed, r.State)
		require.Equal(t, int64(9), r.Stdout.Bytes)
		require.Equal(t, "a?b?c?d", r.Stdout.Tail)
	})
	t.Run("in the names of its processes", func(t *testing.T) {
		sleep, err := exec.LookPath("sleep")
		require.NoError(t, err)
		raw, err := os.ReadFile(sleep)
		require.NoError(t, err)
		odd := filepath.Join(t.TempDir(), "odd\xff\x01name")
		require.NoError(t, os.WriteFile(odd, raw, 0o700))
		started := filepath.Join(t.TempDir(), "started")
		task := m.Spawn(t, "attic", "sh", "-c", `"$0"* 600 & touch "$1"; wait`, filepath.Dir(odd)+"/odd", started)
		meshtest.Await(t, "the child", func() bool { _, err := os.Stat(started); return err == nil })
		m.Await(t, task, commands.Running)

		m.Hub.Do(t, "POST", "/v1/agents/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)

		r := result(t, task)
		require.Equal(t, commands.Cancelled, r.State)
		require.Contains(t, r.Reaped[0].Command+r.Reaped[len(r.Reaped)-1].Command, "odd?")
	})
	m.Check(t)
}
