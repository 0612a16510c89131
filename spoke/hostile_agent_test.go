package spoke_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/output"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
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
		task := m.Spawn(t, "attic", "sh", "-c", `"$0"* 600 & until grep -q odd /proc/$!/comm; do :; done; touch "$1"; wait`, filepath.Dir(odd)+"/odd", started)
		meshtest.Await(t, "the child", func() bool { _, err := os.Stat(started); return err == nil })
		m.Await(t, task, commands.Running)

		m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)

		r := result(t, task)
		require.Equal(t, commands.Cancelled, r.State)
		var names []string
		for _, p := range r.Reaped {
			names = append(names, p.Command)
		}
		require.Contains(t, strings.Join(names, " "), "odd?")
	})
	m.Check(t)
}

// What a cap drops of an agent's output is told in the result and marked in the
// log: how much, and where.
func TestOutputOverTheCap(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: meshtest.Loose(strings.Replace(policy.Presets["open"], "limits:", "limits:\n  output: 100", 1))}.Start(t, "attic")

	task := m.Spawn(t, "attic", "printf", "%0300d", "7")

	var r commands.Result
	require.NoError(t, json.Unmarshal(m.Wait(t, task).Result, &r))
	require.Equal(t, int64(300), r.Stdout.Bytes)
	require.Equal(t, int64(200), r.Stdout.Dropped)
	require.Equal(t, []commands.Gap{{From: 50, To: 250, At: 50}}, r.Stdout.Gaps)
	require.Contains(t, r.Stdout.Tail, "0\n[200 bytes dropped: 50 to 249 of what was written]\n0")
	require.Len(t, r.Stdout.Tail, int(r.Stdout.Size))
	require.Equal(t, r.Stdout.Tail, m.Stdout(t, task, true), "all that was kept, with the line in the place of the rest")
	var mark hub.LogLine
	meshtest.Await(t, "the mark in the log", func() bool {
		for _, l := range m.Logs(t, task, false) {
			if l.Dropped != nil {
				mark = l
			}
		}
		return mark.Dropped != nil
	})
	require.Equal(t, "stdout", mark.Stream)
	require.Equal(t, int64(50), mark.Offset)
	require.Equal(t, output.Dropped{By: "spoke", Bytes: 200, From: 50}, *mark.Dropped)
	m.Check(t)
}

// A limit of the host's policy holds, by the kernel or because it is measured.
func TestLimitsOfThePolicy(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: meshtest.Loose(strings.Replace(policy.Presets["open"], "limits:", "limits:\n  pids: 20\n  memory: 1GiB", 1))}.Start(t, "attic")

	task := m.Spawn(t, "attic", "sh", "-c", "for i in $(seq 40); do sleep 600 & done; sleep 600")

	v := m.Wait(t, task)
	r := resultOf(t, v)
	require.Equal(t, commands.Failed, v.State)
	require.Equal(t, commands.ProcessLimit, v.Reason)
	require.Equal(t, int64(20), r.Exit.Breach.Allowed)
	if r.Exit.Code < 0 {
		require.Regexp(t, `^limits measured several times a second and not held by the kernel: memory: .*; processes: `, r.Exit.Limits)
		require.Greater(t, r.Exit.Breach.Measured, int64(20))
	} else {
		require.Contains(t, r.Exit.Limits, "at the limit of processes")
	}
	m.Check(t)
}

// A refusal quotes what was asked for. However long that is, the refusal gets
// through, and the order ends at the hub.
func TestLongWordsInARefusal(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: meshtest.Loose(policy.Presets["commands"])}.Start(t, "attic")
	for name, spawn := range map[string]commands.Spawn{
		"a long command":   {Runtime: commands.RuntimeExec, Argv: []string{strings.Repeat("ü", 40_000)}},
		"a long directory": {Runtime: commands.RuntimeExec, Argv: []string{"echo"}, Dir: "/" + strings.Repeat("d", 4090)},
	} {
		t.Run(name, func(t *testing.T) {
			id := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: spawn})

			v := m.Wait(t, id)

			require.Equal(t, commands.Unavailable, v.State)
			require.Equal(t, commands.PolicyDenied, v.Reason)
		})
	}
	m.Check(t)
	require.Empty(t, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'report.refused'`))
}
