package spoke_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// limitedTo is the preset "open" with limits.
func limitedTo(limits ...string) string {
	return strings.Replace(policy.Presets["open"], "limits:", "limits:\n  "+strings.Join(limits, "\n  "), 1)
}

// resultOf reads the result that a hub has verified and stored.
func resultOf(t *testing.T, v hub.AgentView) (r commands.Result) {
	t.Helper()
	require.NoError(t, json.Unmarshal(v.Result, &r))
	return r
}

// The limit that ended an agent is in the signed result, with its figure.
func TestTheResultNamesTheLimit(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: meshtest.Loose(limitedTo("memory: 1GiB"))}.Start(t, "attic")

	require.Equal(t, control.Check{Name: "limits", OK: true, Note: "24h of time, 1GiB of memory, 1024 open files, which it may raise, 64GiB of disk in 4000000 files, 16MiB kept of each output stream"}, m.Spokes["attic"].Health(t, "limits"), "doctor shows them")

	id := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sleep", "600"}, TimeoutMS: 300}})

	v := m.Wait(t, id)
	b := resultOf(t, v).Exit.Breach
	require.Equal(t, commands.Expired, v.State)
	require.Equal(t, commands.DeadlineElapsed, v.Reason)
	require.NotNil(t, b)
	require.GreaterOrEqual(t, b.Measured, int64(300))
	require.Less(t, b.Measured, time.Minute.Milliseconds())
	require.Equal(t, &commands.Breach{Limit: commands.DeadlineElapsed, Unit: "ms", Allowed: 300, Measured: b.Measured}, b)
	m.Check(t)
}

// Wherever an agent of the default kind writes to, it fills no disk.
func TestAnAgentThatFillsTheDisk(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: meshtest.Loose(limitedTo("disk: 10MiB", "files: 100"))}.Start(t, "attic")
	const fill = `head -c 20000000 /dev/zero > "%s/f"; sleep 600`
	for where, script := range map[string]string{"work": strings.Replace(fill, "%s", ".", 1), "home": strings.Replace(fill, "%s", "$HOME", 1), "tmp": strings.Replace(fill, "%s", "$TMPDIR", 1),
		"files": `i=0; while [ $i -lt 300 ]; do : > f$i; i=$((i+1)); done; sleep 600`} {
		t.Run(where, func(t *testing.T) {
			v := m.Wait(t, m.Spawn(t, "attic", "sh", "-c", script))

			b := resultOf(t, v).Exit.Breach
			require.Equal(t, commands.Failed, v.State)
			require.Equal(t, commands.DiskLimit, v.Reason)
			require.NotNil(t, b)
			if where == "files" {
				require.Equal(t, "inodes", b.Unit)
				require.Equal(t, int64(100), b.Allowed)
			} else {
				require.Equal(t, "bytes", b.Unit)
				require.Equal(t, int64(10<<20), b.Allowed)
			}
			require.Greater(t, b.Measured, b.Allowed)
		})
	}
	m.Check(t)
}
