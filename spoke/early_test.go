package spoke_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// early makes an answer of a hub one of a clock that is 10 minutes ahead of the spoke's.
func early(h *signing.Header) { h.Iat, h.Exp = h.Iat+600_000, h.Exp+600_000 }

// A freeze is heeded whoever's clock is wrong, over the link that is up, and the hub is told that it was. Only a higher number ends it.
func TestAFreezeIsHeededByAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{Policy: meshtest.Loose("version: 1\nruntimes: [noop]\n")}.Rogue(t)
	first, _ := r.Noop(t, nil)
	r.Send(t, commands.QueueRun, first.Envelope)
	r.Answer(t, first.ID, commands.ResultKind)
	frozen := func(n int) func() bool {
		return func() bool { return r.Spoke.Count(t, `SELECT count(*) FROM latches WHERE frozen`) == n }
	}
	says := func(number int64, is bool) {
		r.Says(func(b *commands.Heartbeat, h *signing.Header) {
			b.Connection.Freeze = &commands.Freeze{Number: number, Frozen: is, By: "root", Reason: "bad deploy"}
			early(h)
		})
	}

	says(7, true)

	meshtest.Await(t, "the freeze", frozen(1))
	meshtest.Await(t, "that the hub is told", func() bool { list := r.Beats(); return list[len(list)-1].Connection.Heeds == 7 })
	second, _ := r.Noop(t, nil)
	r.Send(t, commands.QueueRun, second.Envelope)
	r.Answer(t, second.ID, commands.AcceptedKind)
	says(6, false)
	heard := len(r.Beats())
	meshtest.Await(t, "heartbeats behind the older word", func() bool { return len(r.Beats()) > heard+2 })
	require.True(t, frozen(1)())
	says(8, false)
	r.Answer(t, second.ID, commands.ResultKind)
}

// Over a new link nothing starts for as long as the hub's clock is too far ahead for its controls to be taken.
func TestAClockThatIsBehindStartsNothingOverANewLink(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{Policy: meshtest.Loose("version: 1\nruntimes: [noop]\n")}.Rogue(t)
	r.Says(func(b *commands.Heartbeat, h *signing.Header) { b.Connection.Numbers = nil; early(h) })
	r.Restart(t)
	until := func() int {
		return r.Spoke.Count(t, `SELECT coalesce((extract(epoch FROM max(wait_until)) * 1000)::bigint, 0) FROM latches WHERE isfinite(wait_until)`)
	}
	meshtest.Await(t, "a start that is held", func() bool { return until() > 0 })
	begun := until()
	s, task := r.Noop(t, nil)
	r.Send(t, commands.QueueRun, s.Envelope)

	meshtest.Await(t, "that it is held for longer", func() bool { return until() > begun+500 })
	require.Zero(t, r.Spoke.Count(t, `SELECT coalesce(sum(attempt), 0) FROM tasks WHERE id = $1`, task))

	r.Says(nil)
	r.Answer(t, s.ID, commands.ResultKind)
}
