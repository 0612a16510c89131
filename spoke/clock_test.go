package spoke_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// An order and a kill of a hub whose clock is ahead are not taken, and not lost: neither is answered, and both have their effect
// when they come again, sealed by a clock that was mended.
func TestAKillOfAClockThatIsAheadIsTakenWhenItIsMended(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{Policy: meshtest.Loose("version: 1\nruntimes: [exec]\ncommands: [sleep ...]\n")}.Rogue(t)
	task := meshtest.NewID()
	for _, step := range []struct {
		queue string
		body  commands.Body
		taken commands.Kind
	}{
		{commands.QueueRun, &commands.Spawn{Task: task, Runtime: commands.RuntimeExec, Argv: []string{"sleep", "600"}}, commands.StartedKind},
		{commands.QueueControl, &commands.Kill{Task: task, Reason: "the test says so", GraceMS: 100}, commands.ResultKind},
	} {
		end := r.Spoke.AuditEnd(t)
		ahead := r.Seal(t, step.body, nil, func(h *signing.Header) { h.Iat, h.Exp = h.Iat+600_000, h.Exp+599_000 })
		r.Send(t, step.queue, ahead.Envelope)
		meshtest.Await(t, "a line in the audit", func() bool { return len(r.Spoke.Audit(t, end)) > 0 })
		require.Equal(t, string(signing.TimeFuture), r.Spoke.Audit(t, end)[0].Code)
		require.Zero(t, r.Spoke.Count(t, `SELECT count(*) FROM outbox WHERE re = $1`, ahead.ID), "no answer is queued")

		mended := r.Seal(t, step.body, nil, func(h *signing.Header) { h.ID, h.Seq = ahead.ID, ahead.Seq })
		r.Send(t, step.queue, mended.Envelope)

		meshtest.Await(t, string(step.taken), func() bool {
			for _, c := range r.Heard() {
				if c.Body.Kind() == step.taken && c.Body.TaskID() == task {
					return true
				}
			}
			return false
		})
	}
}
