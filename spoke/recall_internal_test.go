package spoke

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// What the record of an attempt says that began before a restore is what became of it, but where another attempt has followed: then
// nobody had ended its task.
func TestARecordOfBeforeARestoreIsBelieved(t *testing.T) {
	t.Parallel()
	const killed, lost = supervisor.Killed, supervisor.Lost
	for name, tt := range map[string]struct {
		says          supervisor.Exit
		forgot, later bool
		counts        supervisor.Outcome
	}{
		"a kill":                      {supervisor.Exit{Outcome: killed, Reason: "killed by order", Code: -1, Signal: "SIGKILL"}, true, false, killed},
		"a kill, exit code 0":         {supervisor.Exit{Outcome: killed, Reason: "killed by order"}, true, false, killed},
		"a cancel":                    {supervisor.Exit{Outcome: killed, Reason: "cancelled by order", Code: -1, Signal: "SIGTERM"}, true, false, killed},
		"a cancel, exit code 0":       {supervisor.Exit{Outcome: killed, Reason: "cancelled by order"}, true, false, supervisor.Exited},
		"a lease":                     {supervisor.Exit{Outcome: killed, Reason: "the lease was lost"}, true, false, lost},
		"a kill that another follows": {supervisor.Exit{Outcome: killed, Reason: "killed by order"}, true, true, lost},
		"a timeout":                   {supervisor.Exit{Outcome: supervisor.TimedOut}, true, false, supervisor.TimedOut},
		"a timeout another follows":   {supervisor.Exit{Outcome: supervisor.TimedOut}, true, true, lost},
		"an overrun another follows":  {supervisor.Exit{Outcome: killed, Reason: overrunWhy}, true, true, killed},
		"an end":                      {supervisor.Exit{Outcome: supervisor.Exited, Code: 3}, true, true, supervisor.Exited},
		"of a database that knows":    {supervisor.Exit{Outcome: killed, Reason: "cancelled by order"}, false, false, killed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Spoke{Log: slog.New(slog.DiscardHandler)}

			s.believe(t.Context(), &run{forgot: tt.forgot, later: tt.later}, &tt.says)

			require.Equal(t, tt.counts, tt.says.Outcome)
		})
	}
}
