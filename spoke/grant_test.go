package spoke_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// A hub may ask for what its grant names, for as long as the grant holds.
func TestTheGrantBoundsWhatAHubMayAsk(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{}.Rogue(t)
	const whole = `UPDATE grants SET kinds = '{agent.spawn,agent.kill,agent.status}', runtimes = '{exec,noop}', expires_at = 'infinity'`
	for name, tt := range map[string]struct{ narrow, why string }{
		"another runtime": {`UPDATE grants SET runtimes = '{exec}'`, "the grant of this connection does not allow runtime noop"},
		"another kind":    {`UPDATE grants SET kinds = '{agent.status}'`, "the grant of this connection does not allow agent.spawn"},
		"it has expired":  {`UPDATE grants SET expires_at = now() - interval '1 second'`, "this connection has no grant, or it has expired"},
	} {
		t.Run(name, func(t *testing.T) {
			refused, _ := r.Noop(t, nil)
			r.Spoke.Exec(t, tt.narrow)

			r.Send(t, commands.QueueRun, refused.Envelope)

			refusal := r.Answer(t, refused.ID, commands.RefusedKind).(*commands.RefusedBody)
			require.Equal(t, commands.Grant, refusal.Code)
			require.Equal(t, tt.why, refusal.Why)
			r.Spoke.Exec(t, whole)
			taken, _ := r.Noop(t, nil)
			r.Send(t, commands.QueueRun, taken.Envelope)
			require.Equal(t, commands.Completed, r.Answer(t, taken.ID, commands.ResultKind).(*commands.Result).State)
		})
	}
}
