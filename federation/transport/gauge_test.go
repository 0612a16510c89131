package transport

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/spawnmesh/spawnmesh/commands"
)

// queueOf is what the hub knows of one queue.
func queueOf(t testing.TB, h *Hub, conn, name string) Queue {
	t.Helper()
	for _, q := range h.Queues() {
		if q.Conn == conn && q.Name == name {
			return q
		}
	}
	require.FailNow(t, "no such queue", "%s of %s", name, conn)
	return Queue{}
}

// still is longer than a queue that is read stands still in these tests.
const still = 200 * time.Millisecond

func TestAQueueThatIsNotReadStandsStill(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic", "lab")
	attic := startLink(t, h, "attic")
	var got basket[Report]
	run(t, h.reports("lab", &got)) // an empty queue that is read

	requireSent(t, attic.Publish(t.Context(), append(events("r-0", "r-1"), logs("l-0")...)))
	eventually(t, func() bool { return queueOf(t, h, "attic", "reports").Still(time.Now()) > still }, "a queue that stands still")

	reports := queueOf(t, h, "attic", "reports")
	require.Equal(t, 2, reports.Messages)
	require.Greater(t, reports.Bytes, int64(len("body of r-0")+len("body of r-1")))
	require.False(t, reports.Read)
	require.Positive(t, reports.Still(time.Now()))
	require.Equal(t, 1, queueOf(t, h, "attic", "logs").Messages)
	require.Zero(t, queueOf(t, h, "lab", "reports").Still(time.Now()))

	read := run(t, h.reports("attic", &got))
	got.await(t, 2)
	eventually(t, func() bool { return queueOf(t, h, "attic", "reports").Messages == 0 }, "an empty queue")
	require.False(t, queueOf(t, h, "attic", "reports").Progress.IsZero())
	eventually(t, func() bool { return queueOf(t, h, "attic", "logs").Still(time.Now()) > still }, "the other queue, which stands still on")
	run(t, h.logs("attic", &got))
	eventually(t, func() bool { return queueOf(t, h, "attic", "logs").Still(time.Now()) == 0 }, "progress")
	read()
	require.False(t, queueOf(t, h, "attic", "reports").Read)
}

func TestAQueueWhoseReaderTakesNothingStandsStill(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	run(t, func(ctx context.Context) error {
		return h.Reports(ctx, "attic", most(10), func(context.Context, []Report) error { return errors.New("the database is away") })
	})

	requireSent(t, k.Publish(t.Context(), events("r")))
	eventually(t, func() bool { return queueOf(t, h, "attic", "reports").Still(time.Now()) > still }, "a queue that stands still")

	require.True(t, queueOf(t, h, "attic", "reports").Read)
	require.Zero(t, queueOf(t, h, "attic", "reports").Progress)
}

func TestALinkKnowsWhatWaitsForIt(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	requireSent(t, h.Publish(t.Context(), append(spawns("attic", commands.QueueRun, "c-0"), spawns("attic", commands.QueueControl, "k-0")...)))
	k := startLink(t, h, "attic")
	var got basket[Command]
	run(t, func(ctx context.Context) error { return k.Commands(ctx, commands.QueueControl, most(10), got.add) })
	got.await(t, 1)

	var queues []Queue
	eventually(t, func() bool {
		var err error
		queues, err = k.Queues(t.Context())
		require.NoError(t, err)
		return queues[1].Messages == 0 && !queues[1].Progress.IsZero()
	}, "progress of the control queue")

	require.Equal(t, Queue{Conn: "attic", Name: commands.QueueRun, Messages: 1}, queues[0])
	require.True(t, queues[1].Read)
	h.Cut("attic")
	eventually(t, func() bool { _, err := k.Queues(t.Context()); return errors.Is(err, ErrUnavailable) }, "no answer")
}

func TestAQueueHasOneReader(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	var got basket[Report]
	run(t, h.reports("attic", &got))
	requireSent(t, k.Publish(t.Context(), events("r-0")))
	got.await(t, 1)

	err := h.Reports(t.Context(), "attic", most(10), got.add)

	require.ErrorContains(t, err, "stream R_attic: somebody else reads it already")
	requireSent(t, k.Publish(t.Context(), events("r-1")))
	require.Equal(t, []string{"r-0", "r-1"}, reportIDs(got.await(t, 2)))
	require.True(t, queueOf(t, h, "attic", "reports").Read)
}

// Handlers that do not come back hold up nobody else. What they hold is bounded
// for all of them together, but for the least that everybody gets.
func TestWhatIsInHandsIsBounded(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) {
		h.prepare()
		h.room.held = semaphore.NewWeighted(pullMost - leastBytes)
	})
	names := ids("peer", 4)
	admit(t, h, names...)
	held, leave := make(chan int, 16), make(chan struct{})
	for _, name := range names {
		requireSent(t, startLink(t, h, name).Publish(t.Context(), pile(commands.QueueEvents, "r", 8)))
	}
	hold := func(name string) {
		run(t, func(ctx context.Context) error {
			return h.Reports(ctx, name, Most{Messages: 100, Bytes: pullMost}, func(ctx context.Context, batch []Report) error {
				held <- len(batch)
				select {
				case <-leave:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
	}

	var batches []int
	for _, name := range names {
		hold(name)
		batches = append(batches, next(t, held))
	}

	require.Equal(t, []int{12, 1, 1, 1}, batches)
	close(leave)
	for sum := 15; sum < 4*16; sum += next(t, held) {
	}
	eventually(t, func() bool { return h.room.held.TryAcquire(pullMost - leastBytes) }, "all of it to be given back")
}

func linked(h *Hub, conn string) bool {
	_, is := h.Linked(conn)
	return is
}

func TestLinkedFollowsTheLink(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	require.False(t, linked(h, "attic"))
	require.False(t, linked(h, "nobody"))
	k := newLink(t, h, "attic")
	stop := run(t, k.Run)

	eventually(t, func() bool { return k.State().Up }, "the link")
	require.True(t, linked(h, "attic"))

	stop()
	eventually(t, func() bool { return !linked(h, "attic") }, "the end of the link")
}
