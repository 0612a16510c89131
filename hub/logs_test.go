package hub

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A log that ends before the output does must say so.
func TestWhatIsMissingOfALog(t *testing.T) {
	t.Parallel()
	whole := store.LogStream{Attempt: 2, Stream: "stdout", Through: 300}
	part := store.LogStream{Attempt: 2, Stream: "stdout", Through: 100}
	ended := store.LogStream{Attempt: 2, Stream: "stdout", Through: 100, Ended: &commands.LogEnd{}}
	earlier := store.LogStream{Attempt: 1, Stream: "stdout", Through: 300}
	lacks := Missing{Spoke: "attic", Stream: "stdout", Attempt: 2, From: 100, Bytes: 200}
	for name, c := range map[string]struct {
		result commands.Result
		log    []store.LogStream
		want   []Missing
	}{
		"all of it is here":                 {commands.Result{Attempt: 2, Outcome: commands.Succeeded, Stdout: commands.Output{Size: 300}}, []store.LogStream{whole}, nil},
		"a part is here":                    {commands.Result{Attempt: 2, Outcome: commands.Succeeded, Stdout: commands.Output{Size: 300}}, []store.LogStream{part}, []Missing{lacks}},
		"its end is here":                   {commands.Result{Attempt: 2, Outcome: commands.Succeeded, Stdout: commands.Output{Size: 300}}, []store.LogStream{ended}, nil},
		"only an earlier attempt's is here": {commands.Result{Attempt: 2, Outcome: commands.Succeeded, Stdout: commands.Output{Size: 200}}, []store.LogStream{earlier}, []Missing{{Spoke: "attic", Stream: "stdout", Attempt: 2, Bytes: 200}}},
		"there was none":                    {commands.Result{Attempt: 2, Outcome: commands.Succeeded}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := json.Marshal(c.result)
			require.NoError(t, err)
			m := store.Mirror{Spoke: "attic", Result: raw}

			got := missing(m, &store.Log{Streams: c.log}, false)

			require.Equal(t, c.want, got)
			for i := range c.want {
				c.want[i].Never = true
			}
			require.Equal(t, c.want, missing(m, &store.Log{Streams: c.log}, true), "over a connection that has ended")
		})
	}
}
