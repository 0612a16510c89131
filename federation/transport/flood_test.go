package transport

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// pile makes reports of half a megabyte each.
func pile(kind, prefix string, megabytes int) (all []Report) {
	for _, id := range ids(prefix, 2*megabytes) {
		all = append(all, Report{Kind: kind, ID: id, Body: bytes.Repeat([]byte("x"), 500<<10)})
	}
	return all
}

// A server drops a connection for which more waits than fits. That several times
// as much has piled up, for several readers, drops none.
func TestAHubReadsWhatPiledUp(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) { h.ReportBytes = 64 << 20 })
	names := []string{"attic", "lab", "shed"}
	admit(t, h, names...)
	before := h.main.get()
	for _, name := range names {
		k := startLink(t, h, name)
		requireSent(t, k.Publish(t.Context(), pile(KindEvent, "r", 24)))
		requireSent(t, k.Publish(t.Context(), pile(KindLog, "l", 24)))
	}
	var baskets [6]basket[Report]
	var largest atomic.Int64
	into := func(b *basket[Report]) func(context.Context, []Report) error {
		return func(ctx context.Context, batch []Report) error {
			size := 0
			for _, r := range batch {
				size += len(r.Body)
			}
			largest.Store(max(largest.Load(), int64(size)))
			return b.add(ctx, batch)
		}
	}
	limit := Most{Messages: 1000, Bytes: 4 << 20}

	for i, name := range names {
		run(t, func(ctx context.Context) error { return h.Reports(ctx, name, limit, into(&baskets[2*i])) })
		run(t, func(ctx context.Context) error { return h.Logs(ctx, name, limit, into(&baskets[2*i+1])) })
	}

	for i := range names {
		require.Equal(t, ids("r", 48), reportIDs(baskets[2*i].await(t, 48)))
		require.Equal(t, ids("l", 48), reportIDs(baskets[2*i+1].await(t, 48)))
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
	for _, id := range ids("c", 200) {
		large = append(large, Command{Peer: "attic", Lane: LaneRun, Verb: "spawn", ID: id, Body: bytes.Repeat([]byte("x"), 250<<10)})
	}
	requireSent(t, h.Publish(t.Context(), large))
	k := startLink(t, h, "attic")
	before := k.lines.get()
	var got basket[Command]

	run(t, func(ctx context.Context) error { return k.Commands(ctx, LaneRun, most(1000), got.add) })

	require.Equal(t, ids("c", 200), commandIDs(got.await(t, 200)))
	require.Same(t, before, k.lines.get(), "the link was dropped")
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

	for _, lost := range []*latest[line]{&h.main, &h.beats, &h.joins} {
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

func TestALostConnectionToTheOutboxIsReplaced(t *testing.T) {
	t.Parallel()
	n := startLocal(t, t.TempDir(), nil)
	var got basket[Report]
	run(t, func(ctx context.Context) error { return n.Forward(ctx, most(10), got.add) })
	l := n.lines.get()
	cid, err := l.nc.GetClientID()
	require.NoError(t, err)

	require.NoError(t, n.engine.running.DisconnectClientByID(cid))
	next(t, l.gone)

	eventually(t, func() bool { return n.Put(t.Context(), logs("r")) == nil }, "the outbox")
	require.Equal(t, "r", got.await(t, 1)[0].ID)
}
