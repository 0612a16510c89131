package transport

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// waiting is the number of messages in a stream of the hub.
func waiting(t testing.TB, h *Hub, stream string) uint64 {
	t.Helper()
	return streamState(t, h, stream).Msgs
}

func streamState(t testing.TB, h *Hub, stream string) jetstream.StreamState {
	t.Helper()
	s, err := h.main.get().js.Stream(t.Context(), stream)
	require.NoError(t, err)
	return s.CachedInfo().State
}

// A hub that was restarted is another message server: it holds nothing of what the last one
// held, takes it when it is sent again, and an answer that is for the last one does not
// reach its messages.
func TestARestartedHubIsAnotherServer(t *testing.T) {
	t.Parallel()
	first := startHub(t, nil)
	admit(t, first, "attic")
	k := startLink(t, first, "attic")
	was := k.Server()
	require.NotEmpty(t, was)
	requireSent(t, first.Publish(t.Context(), spawns("attic", commands.QueueRun, "c-0")))
	requireSent(t, k.Publish(t.Context(), events("r-0")))
	var taken basket[Command]
	stuck, goOn := make(chan struct{}, 1), make(chan struct{})
	run(t, func(ctx context.Context) error {
		return k.Commands(ctx, commands.QueueRun, most(1), func(ctx context.Context, c []Command) error {
			if c[0].ID == "c-0" {
				stuck <- struct{}{}
				select {
				case <-goOn:
				case <-ctx.Done():
				}
			}
			return taken.add(ctx, c)
		})
	})
	next(t, stuck)

	first.Close()
	eventually(t, func() bool { return k.Server() == "" }, "the end of the link")
	require.ErrorIs(t, first.Publish(t.Context(), spawns("attic", commands.QueueRun, "x"))[0], ErrUnavailable)
	second := startHub(t, func(h *Hub) {
		h.Dir, h.Listen = first.Dir, first.Addr()
		admit(t, h, "attic")
	})
	eventually(t, func() bool { return k.State().Up }, "the link")

	require.NotContains(t, []string{"", was}, k.Server())
	require.Zero(t, waiting(t, second, streamCommands))
	require.Zero(t, waiting(t, second, groupReports.stream("attic")))
	held, err := k.Queues(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, held[0].Messages, "what the spoke has in its hands")
	requireSent(t, second.Publish(t.Context(), spawns("attic", commands.QueueRun, "c-1")))
	requireSent(t, k.Publish(t.Context(), events("r-0")))
	require.EqualValues(t, 1, waiting(t, second, groupReports.stream("attic")))
	close(goOn)
	require.Equal(t, []string{"c-0", "c-1"}, commandIDs(taken.await(t, 2)))
	eventually(t, func() bool { return waiting(t, second, streamCommands) == 0 }, "an empty queue")
}

func TestPeersAdmittedBeforeTheStartAreServed(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) { admit(t, h, "attic") })
	k := startLink(t, h, "attic")
	var cmds basket[Command]
	run(t, func(ctx context.Context) error { return k.Commands(ctx, commands.QueueRun, most(10), cmds.add) })

	requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueRun, "c")))

	cmds.await(t, 1)
}

func TestABatchThatIsNotTakenComesAgain(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueRun, "c-0", "c-1")))
	requireSent(t, k.Publish(t.Context(), events("r-0", "r-1")))
	var cmds basket[Command]
	var reports basket[Report]

	run(t, func(ctx context.Context) error {
		return k.Commands(ctx, commands.QueueRun, most(1), func(ctx context.Context, c []Command) error {
			_ = cmds.add(ctx, c)
			if c[0].Deliveries < 3 {
				return errors.New("the database is away")
			}
			return nil
		})
	})
	run(t, func(ctx context.Context) error {
		return h.Reports(ctx, "attic", most(1), func(ctx context.Context, r []Report) error {
			_ = reports.add(ctx, r)
			if r[0].Deliveries < 2 {
				return errors.New("the database is away")
			}
			return nil
		})
	})

	require.Equal(t, []string{"c-0", "c-0", "c-0", "c-1", "c-1", "c-1"}, commandIDs(cmds.await(t, 6)))
	require.Equal(t, []string{"r-0", "r-0", "r-1", "r-1"}, reportIDs(reports.await(t, 4)))
	eventually(t, func() bool {
		return waiting(t, h, streamCommands) == 0 && waiting(t, h, groupReports.stream("attic")) == 0
	}, "empty queues")
	require.Len(t, cmds.all(), 6)
}

// Commands that a spoke had in its hands when it crashed are there again as
// soon as it is back, not when the acknowledgement has timed out.
func TestWhatACrashedSpokeHeldComesBackAtOnce(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueRun, ids("c", 5)...)))
	crashed := rawPeer(t, h, "attic")
	js, err := jetstream.NewWithAPIPrefix(crashed, hubAPI)
	require.NoError(t, err)
	consumer, err := js.Consumer(t.Context(), streamCommands, consumerName("attic", commands.QueueRun))
	require.NoError(t, err)
	batch, err := consumer.Fetch(5, jetstream.FetchMaxWait(patience))
	require.NoError(t, err)
	for range 5 {
		next(t, batch.Messages())
	}
	crashed.Close()

	began := time.Now()
	k := startLink(t, h, "attic")
	var cmds basket[Command]
	run(t, func(ctx context.Context) error { return k.Commands(ctx, commands.QueueRun, most(10), cmds.add) })

	require.Equal(t, ids("c", 5), commandIDs(cmds.await(t, 5)))
	t.Logf("back after %v", time.Since(began))
	require.Less(t, time.Since(began), ackWait/3)
}

// A batch is what came while the last one was handled.
func TestASlowHandlerGetsLargerBatches(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	const commit = 10 * time.Millisecond
	var sizes []int
	var total atomic.Int64
	stop := run(t, func(ctx context.Context) error {
		return h.Reports(ctx, "attic", most(50), func(ctx context.Context, r []Report) error {
			time.Sleep(commit)
			sizes = append(sizes, len(r))
			total.Add(int64(len(r)))
			return nil
		})
	})

	requireSent(t, k.Publish(t.Context(), events(ids("r", 300)...)))
	eventually(t, func() bool { return total.Load() == 300 }, "all reports")
	stop()

	require.LessOrEqual(t, len(sizes), 30, "sizes %v", sizes)
	for _, n := range sizes {
		require.LessOrEqual(t, n, 50)
	}
}

func TestAFullQueueIsToldApart(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) { h.CommandQuota, h.ReportQuota = 3, 2 })
	admit(t, h, "attic", "lab")
	attic, lab := startLink(t, h, "attic"), startLink(t, h, "lab")

	cmds := h.Publish(t.Context(), spawns("attic", commands.QueueRun, ids("c", 5)...))
	reports := attic.Publish(t.Context(), events(ids("r", 3)...))

	requireSent(t, cmds[:3])
	require.ErrorIs(t, cmds[3], ErrQuota)
	require.ErrorIs(t, cmds[4], ErrQuota)
	requireSent(t, reports[:2])
	require.ErrorIs(t, reports[2], ErrQuota)
	// Nobody else is held up: not the other peer, not another queue.
	requireSent(t, lab.Publish(t.Context(), events("l-0")))
	requireSent(t, attic.Publish(t.Context(), []Report{{Queue: commands.QueueResults, ID: "res"}}))
	requireSent(t, h.Publish(t.Context(), spawns("lab", commands.QueueRun, "l-1")))
	requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueControl, "ctl")))
	// What was refused can be sent again when there is room.
	var got basket[Report]
	run(t, h.reports("attic", &got))
	eventually(t, func() bool { return attic.Publish(t.Context(), events("r-2"))[0] == nil }, "room")
	require.Contains(t, reportIDs(got.await(t, 4)), "r-2")
}

func TestARepetitionCountsAsStoredAndIsNot(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	k := startLink(t, h, "attic")

	requireSent(t, h.Publish(t.Context(), append(spawns("attic", commands.QueueRun, "c", "c"), spawns("attic", commands.QueueRun, "c", "d")...)))
	requireSent(t, k.Publish(t.Context(), events("r", "r")))
	requireSent(t, k.Publish(t.Context(), events("r", "s")))

	require.EqualValues(t, 2, waiting(t, h, streamCommands))
	require.EqualValues(t, 2, waiting(t, h, groupReports.stream("attic")))
}

func TestAFullRunLaneDoesNotHoldUpControl(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueRun, ids("c", 2*queuePending)...)))
	stuck := make(chan struct{}, 1)
	run(t, func(ctx context.Context) error {
		return k.Commands(ctx, commands.QueueRun, most(queuePending), func(ctx context.Context, c []Command) error {
			stuck <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
	})
	next(t, stuck)
	var control basket[Command]
	run(t, func(ctx context.Context) error { return k.Commands(ctx, commands.QueueControl, most(10), control.add) })

	requireSent(t, h.Publish(t.Context(), []Command{{Conn: "attic", Queue: commands.QueueControl, Verb: "kill", ID: "k"}}))

	require.Equal(t, "kill", control.await(t, 1)[0].Verb)
	require.Error(t, k.Commands(t.Context(), "fast", most(1), control.add))
	require.Error(t, k.Commands(t.Context(), commands.QueueRun, most(0), control.add))
}

func TestAForgottenPeersMessagesAreGone(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic", "lab")
	requireSent(t, startLink(t, h, "attic").Publish(t.Context(), append(events("stale"), logs("stale")...)))
	requireSent(t, h.Publish(t.Context(), append(spawns("attic", commands.QueueRun, ids("c", 3)...), spawns("lab", commands.QueueRun, "l")...)))

	require.NoError(t, h.Forget(t.Context(), "attic"))
	require.NoError(t, h.Forget(t.Context(), "attic"))

	require.EqualValues(t, 1, waiting(t, h, streamCommands))
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	var cmds basket[Command]
	run(t, func(ctx context.Context) error { return k.Commands(ctx, commands.QueueRun, most(10), cmds.add) })
	requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueRun, "fresh")))
	require.Equal(t, []string{"fresh"}, commandIDs(cmds.await(t, 1)))
	for _, g := range groups {
		require.Zero(t, waiting(t, h, g.stream("attic")))
	}
}

func TestMessagesThatCannotTravelAreRefusedOneByOne(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	good := Command{Conn: "attic", Queue: commands.QueueRun, Verb: "spawn", ID: "c"}
	bad := map[string]func(*Command){
		"a peer with a wildcard":  func(c *Command) { c.Conn = "*" },
		"a peer with a dot":       func(c *Command) { c.Conn = "attic.run" },
		"no peer":                 func(c *Command) { c.Conn = "" },
		"an unknown queue":        func(c *Command) { c.Queue = ">" },
		"a verb with a dot":       func(c *Command) { c.Verb = "a.b" },
		"no id":                   func(c *Command) { c.ID = "" },
		"an id with a line break": func(c *Command) { c.ID = "c\r\nNats-Rollup: all" },
		"a body too large":        func(c *Command) { c.Envelope = make([]byte, MaxCommand+1) },
	}
	for name, spoil := range bad {
		t.Run(name, func(t *testing.T) {
			c := good
			spoil(&c)

			errs := h.Publish(t.Context(), []Command{c, {Conn: "attic", Queue: commands.QueueRun, Verb: "spawn", ID: "good"}})

			require.Error(t, errs[0])
			require.NotErrorIs(t, errs[0], ErrUnavailable)
			require.NoError(t, errs[1])
		})
	}
	for name, r := range map[string]Report{
		"an unknown kind":  {Queue: "*", ID: "r"},
		"no id":            {Queue: commands.QueueLogs},
		"a body too large": {Queue: commands.QueueLogs, ID: "r", Envelope: make([]byte, MaxReport+1)},
	} {
		errs := k.Publish(t.Context(), []Report{r, {Queue: commands.QueueLogs, ID: "good"}})
		require.Error(t, errs[0], name)
		require.NoError(t, errs[1], name)
	}
	largest := strings.Repeat("i", 128)
	requireSent(t, h.Publish(t.Context(), []Command{{Conn: "attic", Queue: commands.QueueRun, Verb: strings.Repeat("v", 63), ID: largest, Envelope: make([]byte, MaxCommand)}}))
	requireSent(t, k.Publish(t.Context(), []Report{{Queue: commands.QueueLogs, ID: largest, Envelope: make([]byte, MaxReport)}}))
}

func TestAClosedHubEndsWhatReadsFromIt(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) { h.JoinUser = anybody })
	ended := make(chan error, 3)
	go func() {
		ended <- h.Reports(t.Context(), "attic", most(10), func(context.Context, []Report) error { return nil })
	}()
	go func() { ended <- h.Presence(t.Context(), func(context.Context, string, []byte) []byte { return nil }) }()
	go func() {
		ended <- h.ServeJoin(t.Context(), func(context.Context, JoinRequest) []byte { return nil })
	}()
	require.NotEmpty(t, h.Addr())
	require.Error(t, h.Start(t.Context()))

	h.Close()

	for range 3 {
		require.ErrorIs(t, next(t, ended), ErrClosed)
	}
	require.ErrorIs(t, h.Healthy(t.Context()), ErrUnavailable)
	require.ErrorIs(t, h.Forget(t.Context(), "attic"), ErrUnavailable)
	require.Empty(t, h.Peers())
	h.Close()
}

func TestAHubThatCannotServeSaysSo(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	wrong := map[string]*Hub{
		"no certificate":    {Listen: "127.0.0.1:0", Dir: t.TempDir()},
		"no directory":      {Listen: "127.0.0.1:0", Certificate: h.Certificate},
		"no port":           {Listen: "127.0.0.1", Dir: t.TempDir(), Certificate: h.Certificate},
		"a file as store":   {Listen: "127.0.0.1:0", Dir: "hub_test.go", Certificate: h.Certificate},
		"an address in use": {Listen: h.Addr(), Dir: t.TempDir(), Certificate: h.Certificate},
	}
	for name, hub := range wrong {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(hub.Close)

			began := time.Now()

			require.Error(t, hub.Start(t.Context()))
			require.Less(t, time.Since(began), startTimeout/2)
		})
	}
}

func TestAProbeLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) { h.CommandQuota, h.ReportQuota = 1, 1 })
	admit(t, h, "attic")
	var reports basket[Report]
	run(t, h.reports("attic", &reports))

	for range 3 {
		require.NoError(t, h.Healthy(t.Context()))
	}

	require.Zero(t, waiting(t, h, streamCommands))
	require.Zero(t, waiting(t, h, groupReports.stream("attic")))
	require.Empty(t, reports.all())
}
