package transport

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

func TestMessagesTravelBothWays(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic", "lab")
	attic, lab := startLink(t, h, "attic"), startLink(t, h, "lab")
	var toAttic, toLab basket[Command]
	var reports basket[Report]
	run(t, func(ctx context.Context) error { return attic.Commands(ctx, commands.QueueRun, most(32), toAttic.add) })
	run(t, func(ctx context.Context) error { return lab.Commands(ctx, commands.QueueRun, most(32), toLab.add) })
	run(t, func(ctx context.Context) error { return h.Reports(ctx, "attic", most(100), reports.add) })

	requireSent(t, h.Publish(t.Context(), append(spawns("attic", commands.QueueRun, ids("a", 200)...), spawns("lab", commands.QueueRun, ids("l", 200)...)...)))
	requireSent(t, attic.Publish(t.Context(), events(ids("r", 200)...)))

	require.Equal(t, ids("a", 200), commandIDs(toAttic.await(t, 200)))
	require.Equal(t, ids("l", 200), commandIDs(toLab.await(t, 200)))
	require.Equal(t, ids("r", 200), reportIDs(reports.await(t, 200)))
	require.Equal(t, Command{Conn: "attic", Queue: commands.QueueRun, Verb: "spawn", ID: "a-0", Envelope: []byte("body of a-0"), Deliveries: 1}, toAttic.all()[0])
	require.Equal(t, Report{Conn: "attic", Queue: commands.QueueEvents, ID: "r-0", Envelope: []byte("body of r-0"), Deliveries: 1}, reports.all()[0])
	require.NoError(t, h.Healthy(t.Context()))
	eventually(t, func() bool { return len(h.Peers()) == 2 }, "two links")
}
