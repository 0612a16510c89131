package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// pile makes reports of half a megabyte each.
func pile(queue, prefix string, megabytes int) (all []Report) {
	for _, id := range ids(prefix, 2*megabytes) {
		all = append(all, Report{Queue: queue, ID: id, Envelope: bytes.Repeat([]byte("x"), 500<<10)})
	}
	return all
}

// A server drops a connection for which more waits than fits. That several times
// as much has piled up, for several readers, drops none.
func TestAHubReadsWhatPiledUp(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	names := ids("peer", 4)
	admit(t, h, names...)
	before := h.main.get()
	for _, name := range names {
		k := startLink(t, h, name)
		requireSent(t, k.Publish(t.Context(), pile(commands.QueueEvents, "r", 8)))
		requireSent(t, k.Publish(t.Context(), pile(commands.QueueLogs, "l", 8)))
	}
	var baskets [8]basket[Report]
	var largest atomic.Int64
	into := func(b *basket[Report]) func(context.Context, []Report) error {
		return func(ctx context.Context, batch []Report) error {
			size := 0
			for _, r := range batch {
				size += len(r.Envelope)
			}
			largest.Store(max(largest.Load(), int64(size)))
			return b.add(ctx, batch)
		}
	}
	limit := Most{Messages: 1000, Bytes: pullMost}

	for i, name := range names {
		run(t, func(ctx context.Context) error { return h.Reports(ctx, name, limit, into(&baskets[2*i])) })
		run(t, func(ctx context.Context) error { return h.Logs(ctx, name, limit, into(&baskets[2*i+1])) })
	}

	for i := range names {
		require.Equal(t, ids("r", 16), reportIDs(baskets[2*i].await(t, 16)))
		require.Equal(t, ids("l", 16), reportIDs(baskets[2*i+1].await(t, 16)))
	}
	require.Same(t, before, h.main.get(), "a connection was dropped")
	require.LessOrEqual(t, largest.Load(), int64(limit.Bytes))
	require.Greater(t, largest.Load(), int64(1<<20))
}

// The same for a spoke that was away while large commands were given.
func TestALinkReadsWhatPiledUp(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	var large []Command
	for _, id := range ids("c", 100) {
		large = append(large, Command{Conn: "attic", Queue: commands.QueueRun, Verb: "spawn", ID: id, Envelope: bytes.Repeat([]byte("x"), 250<<10)})
	}
	requireSent(t, h.Publish(t.Context(), large))
	k := startLink(t, h, "attic")
	before := k.conns.get()
	var got basket[Command]

	run(t, func(ctx context.Context) error { return k.Commands(ctx, commands.QueueRun, most(1000), got.add) })

	require.Equal(t, ids("c", 100), commandIDs(got.await(t, 100)))
	require.Same(t, before, k.conns.get(), "the link was dropped")
}

// Orders for one peer that does not read fill the queues that all share, but for what kills need.
func TestOrdersLeaveRoomForKills(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) { h.CommandBytes = 16 << 20 })
	admit(t, h, "away", "attic")
	command := func(conn, queue, id string) Command {
		return Command{Conn: conn, Queue: queue, Verb: map[string]string{commands.QueueRun: "spawn", commands.QueueControl: "kill"}[queue], ID: id, Envelope: bytes.Repeat([]byte("x"), 200<<10)}
	}
	full := 0
	for _, id := range ids("c", 100) {
		err := h.Publish(t.Context(), []Command{command("away", commands.QueueRun, id)})[0]
		if err != nil {
			require.ErrorIs(t, err, ErrQuota)
			full++
		}
	}
	require.Positive(t, full)
	require.Less(t, full, 50)

	require.ErrorIs(t, h.Publish(t.Context(), []Command{command("attic", commands.QueueRun, "an-order")})[0], ErrQuota)
	requireSent(t, h.Publish(t.Context(), []Command{command("away", commands.QueueControl, "a-kill"), command("attic", commands.QueueControl, "another")}))
}

// A peer that sends as much as it can, to a hub that chokes on it, fills its own
// queues. Others are read, answered and stored as ever.
func TestAFloodTakesOnlyItsOwnShare(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) { h.ReportBytes = 8 << 20 })
	admit(t, h, "thief", "victim")
	thief, victim := startLink(t, h, "thief"), startLink(t, h, "victim")
	present(t, h, func(context.Context, string, []byte) []byte { return []byte("seen") })
	stuck := make(chan struct{}, 2)
	choke := func(ctx context.Context, _ []Report) error {
		stuck <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	run(t, func(ctx context.Context) error { return h.Reports(ctx, "thief", most(1000), choke) })
	run(t, func(ctx context.Context) error { return h.Logs(ctx, "thief", most(1000), choke) })
	for _, queue := range []string{commands.QueueEvents, commands.QueueLogs} {
		require.ErrorIs(t, errors.Join(thief.Publish(t.Context(), pile(queue, "flood-"+queue, 10))...), ErrQuota)
	}
	for range 2 {
		next(t, stuck)
	}
	shouting, hush := context.WithCancel(t.Context())
	var shouts sync.WaitGroup
	shouts.Go(func() {
		for body := make([]byte, maxBeat/2); shouting.Err() == nil; {
			_ = thief.conns.get().nc.Publish(beatSubject("thief"), body)
			_ = thief.conns.get().nc.Publish(reportSubject("thief", commands.QueueLogs), body)
		}
	})
	defer shouts.Wait()
	defer hush()
	var got basket[Report]
	run(t, h.reports("victim", &got))
	run(t, h.logs("victim", &got))

	for i := range 20 {
		requireSent(t, victim.Publish(t.Context(), append(pile(commands.QueueEvents, fmt.Sprintf("r-%d", i), 1), pile(commands.QueueLogs, fmt.Sprintf("l-%d", i), 1)...)))
		_, err := victim.Beat(t.Context(), nil)
		require.NoError(t, err)
		got.await(t, 4*(i+1))
	}

	requireSent(t, h.Publish(t.Context(), spawns("victim", commands.QueueRun, "c")))
	require.LessOrEqual(t, queueOf(t, h, "thief", "logs").Bytes, h.ReportBytes)
}

// Logs that nobody can store keep neither out nor up what ends an agent.
func TestLogsDoNotHoldUpResults(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) { h.ReportBytes = 2 << 20 })
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	run(t, func(ctx context.Context) error {
		return h.Logs(ctx, "attic", most(100), func(context.Context, []Report) error { return errors.New("no room for logs") })
	})
	require.ErrorIs(t, errors.Join(k.Publish(t.Context(), pile(commands.QueueLogs, "l", 4))...), ErrQuota)
	var got basket[Report]
	run(t, h.reports("attic", &got))

	requireSent(t, k.Publish(t.Context(), []Report{{Queue: commands.QueueResults, ID: "r", Envelope: []byte("done")}}))

	require.Equal(t, "r", got.await(t, 1)[0].ID)
}

// Whatever ends a connection inside the process, another takes its place.
func TestALostConnectionInsideIsReplaced(t *testing.T) {
	t.Parallel()
	log, lines := newTestLog(t)
	h := startHub(t, func(h *Hub) { h.Log = log })
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	var reports basket[Report]
	run(t, h.reports("attic", &reports))
	present(t, h, func(context.Context, string, []byte) []byte { return []byte("seen") })
	requireSent(t, k.Publish(t.Context(), events("before")))
	reports.await(t, 1)

	for _, lost := range []*latest[natsConn]{&h.main, &h.beats, &h.joins} {
		l := lost.get()
		cid, err := l.nc.GetClientID()
		require.NoError(t, err)
		require.NoError(t, h.gate.server().DisconnectClientByID(cid))
		next(t, l.gone)
	}

	requireSent(t, k.Publish(t.Context(), events("after")))
	require.Equal(t, []string{"before", "after"}, reportIDs(reports.await(t, 2)))
	eventually(t, func() bool { _, err := k.Beat(t.Context(), nil); return err == nil }, "an answer to a heartbeat")
	eventually(t, func() bool { return h.joins.get() != nil }, "somebody to answer those who join")
	admit(t, h, "lab")
	require.NoError(t, h.Healthy(t.Context()))
	for _, what := range []string{"messages", "heartbeats", "joining"} {
		require.Equal(t, 1, strings.Count(lines.String(), fmt.Sprintf("is replaced\" connection=%s", what)))
	}
}
