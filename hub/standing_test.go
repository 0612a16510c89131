package hub_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

// How an agent stands is said as people say it.
func TestHowAnAgentStandsInWords(t *testing.T) {
	t.Parallel()
	ended := func(state commands.State, reason commands.Reason, outcome commands.Outcome, exit commands.Exit) store.Mirror {
		raw, err := json.Marshal(commands.Result{State: state, Reason: reason, Outcome: outcome, Exit: exit})
		require.NoError(t, err)
		return store.Mirror{State: state, Reason: reason, Attempt: 1, Result: raw}
	}
	refused := func(code commands.Code) store.Mirror {
		return store.Mirror{State: commands.Unavailable, Reason: commands.PolicyDenied, Refusal: json.RawMessage(`{}`), Refusals: []store.Refusal{{Code: code}}}
	}
	for want, list := range map[string][]store.Mirror{
		"queued":                     {{State: commands.Queued}},
		"queued again":               {{State: commands.Queued, Attempt: 1}},
		"running":                    {{State: commands.Running, Attempt: 2}},
		"completed":                  {ended(commands.Completed, "", commands.Succeeded, commands.Exit{})},
		"failed: exit 3":             {ended(commands.Failed, "", commands.AttemptFailed, commands.Exit{Code: 3})},
		"failed: SIGSEGV":            {ended(commands.Failed, "", commands.AttemptFailed, commands.Exit{Code: -1, Signal: "SIGSEGV"})},
		"failed":                     {ended(commands.Failed, "", commands.AttemptFailed, commands.Exit{Code: -1})},
		"lost":                       {ended(commands.Failed, commands.ExecutorDied, commands.Interrupted, commands.Exit{Code: -1})},
		"out of memory":              {ended(commands.Failed, commands.OOMKilled, commands.AttemptFailed, commands.Exit{Code: -1, Signal: "SIGKILL"})},
		"could not start":            {ended(commands.Unavailable, commands.CapabilityMissing, commands.CouldNotStart, commands.Exit{Code: -1})},
		"timed out":                  {ended(commands.Expired, commands.DeadlineElapsed, commands.TimedOut, commands.Exit{Code: -1})},
		"never started":              {ended(commands.Expired, commands.CommandExpired, "", commands.Exit{Code: -1})},
		"killed":                     {ended(commands.Cancelled, commands.KillRequested, commands.AttemptKilled, commands.Exit{Code: -1}), ended(commands.Cancelled, commands.Operator, commands.AttemptKilled, commands.Exit{Code: -1}), refused(commands.Tombstone)},
		"refused":                    {refused(commands.Policy), {State: commands.Unavailable, Reason: commands.CapabilityMissing}},
		"connection ended":           {{State: commands.Unavailable, Reason: commands.LinkRevoked}},
		"failed (retries_exhausted)": {ended(commands.Failed, commands.RetriesExhausted, commands.Released, commands.Exit{Code: -1})},
	} {
		for _, m := range list {
			require.Equal(t, want, hub.AgentView{Mirror: m}.Words())
		}
	}
	for want, summary := range map[string]string{"killed by ann: wrong branch": "killed by ann: wrong branch", "killed: it had 3 processes": "it had 3 processes"} {
		m := store.Mirror{State: commands.Cancelled, Reason: commands.KillRequested}
		m.Result, _ = json.Marshal(commands.Result{State: m.State, Reason: m.Reason, Summary: summary})
		require.Equal(t, want, hub.AgentView{Mirror: m}.InWords())
	}
}
