package spoke_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// What a hub says of the output that it has moves what is sent next, and nothing
// else; without its word no more than a window of it is under way.
func TestAHubThatLiesAboutOutput(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{}.Rogue(t)
	task := meshtest.NewID()
	order := r.Seal(t, &commands.Spawn{Task: task, Runtime: commands.RuntimeExec, Argv: []string{"head", "-c", "10000000", "/dev/zero"}}, nil, nil)
	say := func(s commands.StoredStream) {
		s.Task, s.Attempt, s.Stream = task, 1, "stdout"
		r.Send(t, commands.QueueControl, r.Seal(t, &commands.OutputStored{Streams: []commands.StoredStream{s}}, nil, nil).Envelope)
	}
	pieces := func(from int) (list []*commands.Log) {
		for _, c := range r.Heard()[from:] {
			if l, ok := c.Body.(*commands.Log); ok && l.Stream == "stdout" {
				list = append(list, l)
			}
		}
		return list
	}
	far := func() (end int64) {
		for _, l := range pieces(0) {
			end = max(end, l.Offset+int64(len(l.Data)))
		}
		return end
	}
	r.Send(t, commands.QueueRun, order.Envelope)
	r.Answer(t, order.ID, commands.ResultKind)
	meshtest.Await(t, "the first piece", func() bool { return far() > 0 })
	first := pieces(0)[0]
	require.Equal(t, far(), int64(len(first.Data)), "one piece goes first on a link")

	say(commands.StoredStream{Through: far()})
	meshtest.Await(t, "a window of it", func() bool { return far() >= 900_000 })
	most := int64(len(first.Data)) + 1<<20 + 1<<16

	say(commands.StoredStream{Through: 10_000_001}) // more than there is
	ask(t, r, task)
	require.LessOrEqual(t, far(), most)
	require.Equal(t, int64(len(first.Data)), int64(r.Spoke.Count(t, `SELECT stdout FROM outputs`)), "the cursor stands where the hub's word was possible")

	heard := len(r.Heard())
	say(commands.StoredStream{Through: 5, Code: commands.Offset})
	meshtest.Await(t, "a piece from there", func() bool {
		// A piece of the window may still have been on its way.
		return slices.ContainsFunc(pieces(heard), func(l *commands.Log) bool { return l.Offset == 5 })
	})
	require.LessOrEqual(t, far(), most)

	say(commands.StoredStream{Code: commands.UnknownTask})
	meshtest.Await(t, "that it is given up", func() bool { return r.Spoke.Count(t, `SELECT count(*) FROM outputs`) == 0 })
	require.LessOrEqual(t, far(), most)
}
