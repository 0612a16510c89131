package hub

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

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
	gaps := []commands.Gap{{From: 50, To: 950, At: 50}}
	for name, c := range map[string]struct {
		result commands.Result
		log    []store.LogStream
		want   []Missing
	}{
		"all of it is here": {commands.Result{Attempt: 2, Outcome: commands.Succeeded, Stdout: commands.Output{Size: 300}}, []store.LogStream{whole}, nil},
		"a part is here":    {commands.Result{Attempt: 2, Outcome: commands.Succeeded, Stdout: commands.Output{Size: 300}}, []store.LogStream{part}, []Missing{lacks}},
		"nothing of both is here": {commands.Result{Attempt: 2, Outcome: commands.Succeeded, Stdout: commands.Output{Size: 300}, Stderr: commands.Output{Size: 200}}, nil,
			[]Missing{{Spoke: "attic", Stream: "stdout", Attempt: 2, Bytes: 300}, {Spoke: "attic", Stream: "stderr", Attempt: 2, Bytes: 200}}},
		"its end is here":                   {commands.Result{Attempt: 2, Outcome: commands.Succeeded, Stdout: commands.Output{Size: 300}}, []store.LogStream{ended}, nil},
		"only an earlier attempt's is here": {commands.Result{Attempt: 2, Outcome: commands.Succeeded, Stdout: commands.Output{Size: 200}}, []store.LogStream{earlier}, []Missing{{Spoke: "attic", Stream: "stdout", Attempt: 2, Bytes: 200}}},
		"the end of what a bound cut is not here": {commands.Result{Attempt: 2, Outcome: commands.Succeeded, Stdout: commands.Output{Size: 300, Gaps: gaps}}, []store.LogStream{whole},
			[]Missing{{Spoke: "attic", Stream: "stdout", Attempt: 2, From: 300, Gaps: gaps}}},
		"a part of what was lost is here": {commands.Result{Attempt: 2, Outcome: commands.Succeeded, Stdout: commands.Output{Size: 300, Gaps: gaps, Cut: true}}, []store.LogStream{part},
			[]Missing{{Spoke: "attic", Stream: "stdout", Attempt: 2, From: 100, Bytes: 200, Gaps: gaps, Cut: true}}},
		"there was none": {commands.Result{Attempt: 2, Outcome: commands.Succeeded}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := json.Marshal(c.result)
			require.NoError(t, err)
			m := store.Mirror{Spoke: "attic", Result: raw}

			got := missing(m, &store.Log{Streams: c.log}, true)

			for i := range c.want {
				c.want[i].Never = true
			}
			require.Equal(t, c.want, got, "over a connection that has ended")
			for i := range c.want {
				c.want[i].Never, c.want[i].Gaps, c.want[i].Cut = false, nil, false
			}
			require.Equal(t, c.want, missing(m, &store.Log{Streams: c.log}, false), "over one that goes on")
		})
	}
}

// Of an agent whose connection has ended while it ran nobody knows here how much it wrote.
func TestTheLogOfAnAgentThatWasGivenUpSaysSo(t *testing.T) {
	t.Parallel()
	began := time.Now()
	log := &store.Log{Streams: []store.LogStream{{Attempt: 2, Stream: "stdout", Through: 100}, {Attempt: 2, Stream: "stderr", Through: 7, Ended: &commands.LogEnd{}}}}
	m := store.Mirror{Spoke: "attic", Attempt: 2, State: commands.Unavailable, StartedAt: &began}

	require.Equal(t, []Missing{{Spoke: "attic", Stream: "stdout", Attempt: 2, From: 100, Never: true}}, missing(m, log, true))
	require.Empty(t, missing(m, log, false), "more may come")
	m.StartedAt = nil
	require.Empty(t, missing(m, log, true), "it never ran")
}

// Who follows a log whose rest never comes is let go.
func TestARestThatNeverComesIsNotAwaitedForEver(t *testing.T) {
	t.Parallel()
	after := func(n int) []int64 { return slices.Repeat([]int64{7}, n) }
	for name, c := range map[string]struct {
		tails []int64 // where the log ended at each request
		want  bool
	}{
		"nothing comes at all":            {make([]int64, waitMost), true},
		"a request less":                  {make([]int64, waitMost-1), false},
		"nothing more comes":              {after(waitMost + 1), true}, // the first one saw what had come
		"a request less after what came":  {after(waitMost), false},
		"a little comes again and again":  {slices.Concat(after(waitMost), []int64{8}, slices.Repeat([]int64{9}, waitMost)), false},
		"a little came, and nothing more": {slices.Concat(after(waitMost), slices.Repeat([]int64{8}, waitMost+1)), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r reading

			var over bool
			for _, tail := range c.tails {
				over = r.inVain(tail)
			}

			require.Equal(t, c.want, over)
		})
	}
}
