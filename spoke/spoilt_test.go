package spoke_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/output"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// An agent has the user of its spoke: it can end its shim, and leave anything in
// the place of its files. Its task ends all the same, and the hub takes the
// result.
func TestAgentsThatSpoilTheirFiles(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	forge := func(record string) string {
		return `printf '%s' '` + record + `' >../control/exit.json; kill -9 $PPID; sleep 600`
	}
	tests := map[string]struct{ script, says string }{
		"a signal with a NUL":  {forge(`{"outcome":"exited","signal":"a\\u0000b"}`), "an exit has a signal that there is not"},
		"gaps that cannot be":  {forge(`{"outcome":"exited","stdout":{"bytes":9,"size":9,"gaps":[{"from":7,"to":3}]}}`), "has a gap from 7 to 3"},
		"a record of 2 GB":     {`truncate -s 2G ../control/exit.json; kill -9 $PPID; sleep 600`, "exit.json has more than"},
		"a lock of its own":    {`setsid sleep 600 & rm ../control/lock; mkdir ../control/lock; kill -9 $PPID; sleep 600`, "lock is not a regular file"},
		"a record in a record": {`mkdir -p ../control/exit.json/x; kill -9 $PPID; sleep 600`, "exit.json is not a regular file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			task := m.Spawn(t, "attic", "sh", "-c", "echo hi; sleep 0.3; "+tt.script)

			v := m.Wait(t, task)

			require.Equal(t, commands.Failed, v.State)
			var r commands.Result
			require.NoError(t, json.Unmarshal(v.Result, &r))
			require.Equal(t, commands.Interrupted, r.Outcome)
			require.Contains(t, s.Log.String(), tt.says)
			require.Zero(t, s.Count(t, `SELECT count(*) FROM leases`))
		})
	}
	m.Check(t)
	require.Empty(t, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'report.refused'`))
}

// Output that an agent has taken away ends with a mark in the log of its hub.
func TestAnAgentThatTakesItsOutputAway(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := m.Spawn(t, "attic", "sh", "-c", `echo hi; echo ho >&2; sleep 1; rm ../control/stdout; ln -s /etc/passwd ../control/stdout; kill -9 $PPID; sleep 600`)

	m.Wait(t, task)

	require.Equal(t, "hi\n", m.Stdout(t, task, true))
	meshtest.Await(t, "that nothing of it is left to send", func() bool { return s.Count(t, `SELECT count(*) FROM outputs`) == 0 })
	var marks []output.Dropped
	for _, l := range m.Logs(t, task, false) {
		if l.Dropped != nil && l.Stream == "stdout" {
			marks = append(marks, *l.Dropped)
		}
	}
	require.Len(t, marks, 1)
	require.NotContains(t, s.Log.String(), "reading output to be sent")
	m.Check(t)
}
