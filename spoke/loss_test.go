package spoke_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// hurry lets the waits of tasks that are to be claimed again be over.
func hurry(t *testing.T, s *meshtest.Spoke) { s.Exec(t, `UPDATE due SET at = clock_timestamp()`) }

// runsUntilEnd orders an agent that notes each of its runs and then does the
// rest, waits for its end, and returns how often it ran.
func runsUntilEnd(t *testing.T, m *meshtest.Mesh, spawn commands.Spawn, rest string) (hub.AgentView, int) {
	t.Helper()
	notes := filepath.Join(t.TempDir(), "runs")
	spawn.Runtime, spawn.Argv = commands.RuntimeExec, []string{"sh", "-c", `echo run >> "$0"; ` + rest, notes}
	id := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: spawn})
	s := m.Spokes["attic"]
	meshtest.Await(t, "its end", func() bool {
		hurry(t, s)
		return s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND is_terminal(state)`, id) == 1
	})
	raw, err := os.ReadFile(notes)
	require.NoError(t, err)
	return m.Wait(t, id), strings.Count(string(raw), "run")
}

// An agent that ran and was lost may have done anything, so it is run again only
// as often as its order allows. One that kills its shim at once is lost each time.
func TestALostAgentIsRunAsOftenAsItsOrderAllows(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	tests := map[string]struct {
		spawn  commands.Spawn
		runs   int
		reason commands.Reason
	}{
		"without a retry it runs once":                   {commands.Spawn{}, 1, commands.ExecutorDied},
		"a loss counts against the retries":              {commands.Spawn{MaxRetries: 1}, 2, commands.RetriesExhausted},
		"two retries are three runs":                     {commands.Spawn{MaxRetries: 2, OnLoss: commands.LossReruns}, 3, commands.RetriesExhausted},
		"rerun without a retry is one more run":          {commands.Spawn{OnLoss: commands.LossReruns}, 2, commands.RetriesExhausted},
		"the word of the default is the same as no word": {commands.Spawn{OnLoss: commands.LossFails}, 1, commands.ExecutorDied},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v, runs := runsUntilEnd(t, m, tt.spawn, `kill -9 $PPID; sleep 600`)

			require.Equal(t, tt.runs, runs)
			require.Equal(t, commands.Failed, v.State)
			require.Equal(t, tt.reason, v.Reason)
		})
	}
	m.Check(t)
}

// rerun is for losses: an agent that fails is not run again for it.
func TestAFailureIsNoLoss(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")

	v, runs := runsUntilEnd(t, m, commands.Spawn{OnLoss: commands.LossReruns}, `exit 3`)

	require.Equal(t, 1, runs)
	require.Equal(t, commands.Failed, v.State)
}

// A directory that is there before its attempt may be one that has run: nothing is started in it, which is
// said as what it is, and the next attempt has the next number.
func TestADirectoryThatIsThereAlready(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	for name, tt := range map[string]struct {
		retries, attempts int
		state             commands.State
	}{
		"without a retry that is left": {1, 2, commands.Failed},
		"with one":                     {2, 3, commands.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			v, runs := runsUntilEnd(t, m, commands.Spawn{MaxRetries: tt.retries}, `[ $SPAWNMESH_ATTEMPT != 1 ] || { mkdir ../../2; exit 1; }`)

			require.Equal(t, tt.state, v.State, "%s", v.Result)
			require.Equal(t, tt.attempts-1, runs, "each ran but the one whose directory was there")
			require.Equal(t, tt.attempts, v.Attempt)
			says := "the directory agents/" + v.Task + "/2 of attempt 2 is there already, and this spoke did not make it"
			if tt.state == commands.Failed {
				require.Contains(t, string(v.Result), says)
			} else {
				require.Equal(t, commands.Interrupted, v.Attempts[1].Outcome)
				require.Contains(t, v.Attempts[1].Exit.Error, says)
			}
			require.NotContains(t, v.Sentence(), s.Dir)
		})
	}
	require.Contains(t, s.Log.String(), "the directory of an attempt was there before it; nothing is started in it")
}
