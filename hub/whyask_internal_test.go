package hub

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A spoke takes back what its hub guesses of it, and nothing that the hub knows itself.
func TestASpokeTakesBackGuessesAlone(t *testing.T) {
	t.Parallel()
	known := []commands.WhyReason{{Code: commands.CauseSlots, Text: "guessed"}, {Code: commands.CauseKill, Text: "ordered here"}, {Code: commands.CauseClock, Text: "measured here"}}
	said := []commands.WhyReason{{Code: commands.CauseSlots, Where: "attic"}, {Code: commands.CauseKill, Where: "attic"}, {Code: commands.CauseClock, Where: "attic"}}

	require.Equal(t, append(known[1:3:3], said...), merge(append([]commands.WhyReason(nil), known...), said))
	require.Equal(t, known, merge(known, nil))
}

// Who may not see what agents and operators wrote is told why without their words.
func TestABriefWhyHasNobodysWords(t *testing.T) {
	t.Parallel()
	word, err := json.Marshal(store.OrderedPause{Paused: true, By: "ann", Reason: "a customer's name", State: store.PauseSent})
	require.NoError(t, err)
	v := AgentView{Mirror: store.Mirror{Spoke: "attic", State: commands.Running, Pause: word}}
	said := func(v AgentView) string { return fmt.Sprint(Why(v, SpokeView{})) }

	require.Contains(t, said(v), "a customer's name")
	require.NotContains(t, said(v.brief()), "a customer's name")
}
