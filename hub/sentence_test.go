package hub_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

// A kill that was there before its order is no refusal to a person.
func TestARefusalInWords(t *testing.T) {
	t.Parallel()
	for code, want := range map[commands.Code]string{commands.Tombstone: "was killed before it began", commands.TaskConflict: "was refused by attic: it says why (TASK_CONFLICT)"} {
		v := hub.AgentView{Mirror: store.Mirror{Refusal: json.RawMessage(`{}`), Refusals: []store.Refusal{{Spoke: "attic", Code: code, Why: "it says why"}}}}

		require.Equal(t, want, v.Sentence())
	}
}
