package hub

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// A spoke takes back what its hub guesses of it, and nothing that the hub knows itself.
func TestASpokeTakesBackGuessesAlone(t *testing.T) {
	t.Parallel()
	known := []commands.WhyReason{{Code: commands.CauseSlots, Text: "guessed"}, {Code: commands.CauseKill, Text: "ordered here"}, {Code: commands.CauseClock, Text: "measured here"}}
	said := []commands.WhyReason{{Code: commands.CauseSlots, Where: "attic"}, {Code: commands.CauseKill, Where: "attic"}, {Code: commands.CauseClock, Where: "attic"}}

	require.Equal(t, append(known[1:3:3], said...), merge(append([]commands.WhyReason(nil), known...), said))
	require.Equal(t, known, merge(known, nil))
	state := []commands.WhyReason{{Code: commands.CauseState, Text: "guessed"}}
	require.Equal(t, said, merge(append(state, known[0]), said), "the state is a guess, whatever the spoke says")
}

// Who may not see what agents and operators wrote is told why without their words.
func TestABriefWhyHasNobodysWords(t *testing.T) {
	t.Parallel()
	const secret = "a customer's name"
	raw := func(v any) json.RawMessage {
		out, err := json.Marshal(v)
		require.NoError(t, err)
		return out
	}
	exit := commands.Exit{Code: 3, Error: secret, Limits: secret}
	kill := raw(store.OrderedKill{Kill: commands.Kill{Reason: secret}, By: "ann", Code: commands.Conflict, Why: secret})
	for want, m := range map[string]store.Mirror{
		"a pause was ordered by ann; its spoke has not taken it yet": {State: commands.Running, Pause: raw(store.OrderedPause{Paused: true, By: "ann", Reason: secret, State: store.PauseSent})},
		"a kill was ordered by ann":                                  {State: commands.Running, Kill: kill},
		"a kill was ordered by ann; attic refused it: CONFLICT":      {State: commands.Running, RefusedKill: kill},
		"it has failed: exit code 3":                                 {State: commands.Failed, Result: raw(commands.Result{State: commands.Failed, Exit: exit, Summary: secret, Data: secret, Reported: &commands.Report{As: commands.SaidFailed, Text: secret}})},
		"it waits for its next try":                                  {State: commands.Queued, Attempt: 1, AcceptedAt: &time.Time{}, Attempts: []commands.Ended{{Attempt: 1, Exit: exit}}},
		"it was refused by attic":                                    {State: commands.Unavailable, Reason: commands.PolicyDenied, Refusal: raw(commands.RefusedBody{Why: secret}), Refusals: []store.Refusal{{Spoke: "attic", Code: commands.Policy, Why: secret, Hint: secret}}},
	} {
		m.Spoke = "attic"
		v := AgentView{Mirror: m}.Brief()

		said := fmt.Sprint(Why(v, SpokeView{Liveness: Alive, Standing: federation.Standing{Linked: true, Connection: store.Connection{State: store.Active}}}))

		require.Contains(t, said, want)
		require.NotContains(t, said, secret)
		require.NotContains(t, fmt.Sprintf("%s %v", raw(v), v.Refusals), secret, "nothing of it is left to be told")
	}
}
