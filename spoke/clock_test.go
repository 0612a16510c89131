package spoke_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// An order of a hub whose clock is ahead, and a kill of one that is more than a day ahead, are not taken, and not lost: neither is answered, and both have their effect
// when they come again, sealed by a clock that was mended.
func TestAKillOfAClockThatIsAheadIsTakenWhenItIsMended(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{Policy: meshtest.Loose("version: 1\nruntimes: [exec]\ncommands: [sleep ...]\n")}.Rogue(t)
	task := meshtest.NewID()
	for _, step := range []struct {
		queue string
		body  commands.Body
		taken commands.Kind
		ahead int64 // ms
	}{
		{commands.QueueRun, &commands.Spawn{Task: task, Runtime: commands.RuntimeExec, Argv: []string{"sleep", "600"}}, commands.StartedKind, 600_000},
		{commands.QueueControl, &commands.Kill{Task: task, Reason: "the test says so", GraceMS: 100}, commands.ResultKind, 25 * 3600_000},
	} {
		end := r.Spoke.AuditEnd(t)
		ahead := r.Seal(t, step.body, nil, func(h *signing.Header) { h.Iat, h.Exp = h.Iat+step.ahead, h.Exp+step.ahead-1000 })
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

// A kill ends an agent although the clock of the spoke is behind that of its hub, and is answered. The same kill, sealed anew by a
// clock that was mended, changes nothing more.
func TestAKillIsTakenByAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{Policy: meshtest.Loose("version: 1\nruntimes: [exec]\ncommands: [sleep ...]\n")}.Rogue(t)
	task := meshtest.NewID()
	spawn := r.Seal(t, &commands.Spawn{Task: task, Runtime: commands.RuntimeExec, Argv: []string{"sleep", "600"}}, nil, nil)
	r.Send(t, commands.QueueRun, spawn.Envelope)
	r.Answer(t, spawn.ID, commands.StartedKind)
	body := &commands.Kill{Task: task, Reason: "the test says so", GraceMS: 100}
	kill := r.Seal(t, body, nil, func(h *signing.Header) { h.Iat, h.Exp = h.Iat+600_000, h.Exp+600_000 })

	r.Send(t, commands.QueueControl, kill.Envelope)

	require.Equal(t, commands.Cancelled, r.Answer(t, kill.ID, commands.KilledKind).(*commands.Killed).State)
	require.Equal(t, commands.KillRequested, r.Answer(t, spawn.ID, commands.ResultKind).(*commands.Result).Reason)
	mended := r.Seal(t, body, nil, func(h *signing.Header) { h.ID, h.Seq = kill.ID, kill.Seq })
	r.Send(t, commands.QueueControl, mended.Envelope)
	meshtest.Await(t, "the new seal", func() bool {
		return r.Spoke.Count(t, `SELECT count(*) FROM inbox WHERE id = $1 AND digest = $2`, kill.ID, mended.Digest[:]) == 1
	})
	require.Zero(t, r.Spoke.Count(t, `SELECT count(*) FROM audit WHERE code IN ('TIME_FUTURE', 'REPLAY_DIFF')`))
}
