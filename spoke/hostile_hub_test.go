package spoke_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

func TestMain(m *testing.M) { meshtest.Main(m) }

// done runs one good order to its end, so that there is something to lose.
func done(t *testing.T, r *meshtest.Rogue) (task string) {
	t.Helper()
	order, task := r.Noop(t, nil)
	r.Send(t, federation.LaneRun, order.Wire)
	result := r.Answer(t, order.ID, commands.ResultKind).(*commands.Result)
	require.Equal(t, commands.Completed, result.State)
	return task
}

// ask sends a good question about a task and waits for its answer: the link
// works and what was sent before has been handled.
func ask(t *testing.T, r *meshtest.Rogue, task string) {
	t.Helper()
	question := r.Seal(t, &commands.Status{Task: task}, nil, nil)
	r.Send(t, federation.LaneRun, question.Wire)
	r.Answer(t, question.ID, commands.StateKind)
}

// What a hub, or whoever stands in its place, gets wrong is refused with one
// code and one line in the audit, and nothing else changes.
func TestBadCommands(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{}.Rogue(t)
	task := done(t, r)
	good := func() (commands.Body, *signing.Ref) {
		return &commands.Spawn{Task: meshtest.NewID(), Runtime: commands.RuntimeNoop}, nil
	}
	for _, bad := range r.Bad(t, good) {
		t.Run(bad.Name, func(t *testing.T) {
			but := []string{}
			if bad.Signed { // it is kept, and its sender is told
				but = []string{"inbox", "outbox", "sequences"}
			}
			before, end := r.Spoke.Sums(t, but...), r.Spoke.AuditEnd(t)

			r.Send(t, federation.LaneRun, bad.Wire)
			meshtest.Await(t, "a line in the audit", func() bool { return len(r.Spoke.Audit(t, end)) > 0 })

			require.Equal(t, before, r.Spoke.Sums(t, but...))
			ask(t, r, task)
			refused := r.Spoke.Audit(t, end)
			require.Len(t, refused, 1)
			require.Equal(t, string(bad.Code), refused[0].Code, refused[0].Why)
			require.Equal(t, bad.Signed, refused[0].Message != "", "only what is signed has a name")
		})
	}
	require.NotContains(t, r.Spoke.Log.String(), "panic")
}
