package transport

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// anybody may join, each under an invite of his own.
func anybody(joinID string, _ []byte) (invite string, ok bool) { return joinID, true }

// as is an id that was drawn before its connection.
func as(joinID string) func([]byte) string { return func([]byte) string { return joinID } }

func joinHub(t *testing.T, change func(*Hub)) *Hub {
	return startHub(t, func(h *Hub) {
		h.JoinUser = anybody
		if change != nil {
			change(h)
		}
	})
}

func dialJoin(t *testing.T, h *Hub, joinID string) *JoinConn {
	t.Helper()
	c, err := DialJoin(t.Context(), h.Addr(), []string{Pin(h.Certificate)}, as(joinID))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func echo(_ context.Context, r JoinRequest) []byte {
	return fmt.Appendf(nil, "%s %s %s", r.JoinID, r.Step, r.Body)
}

func TestBothEndsOfAJoinDeriveTheSameBinding(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string][]byte{}
	h := joinHub(t, func(h *Hub) {
		h.JoinUser = func(joinID string, exporter []byte) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			asked[joinID] = exporter
			return joinID, true
		}
	})
	served := make(chan JoinRequest, 8)
	run(t, func(ctx context.Context) error {
		return h.ServeJoin(ctx, func(ctx context.Context, r JoinRequest) []byte { served <- r; return echo(ctx, r) })
	})
	a, b := rand.Text(), rand.Text()
	first, second := dialJoin(t, h, a), dialJoin(t, h, b)

	answer, err := first.Request(t.Context(), "hello", []byte("I am new"))
	require.NoError(t, err)
	require.Equal(t, a+" hello I am new", string(answer))
	answer, err = second.Request(t.Context(), "proof", []byte("and I can show it"))
	require.NoError(t, err)
	require.Equal(t, b+" proof and I can show it", string(answer))

	require.Len(t, first.Exporter(), 32)
	require.NotEqual(t, first.Exporter(), second.Exporter())
	require.Equal(t, first.Exporter(), next(t, served).Exporter)
	require.Equal(t, second.Exporter(), next(t, served).Exporter)
	mu.Lock()
	require.Equal(t, map[string][]byte{a: first.Exporter(), b: second.Exporter()}, asked)
	mu.Unlock()
	_, err = first.Request(t.Context(), "accept", nil)
	require.Error(t, err)
}

// A hub that starts lets in who joins before it listens to what he says.
func TestAHubThatStartsAnswersWhoJoined(t *testing.T) {
	t.Parallel()
	h := joinHub(t, nil)
	id := rand.Text()
	c := dialJoin(t, h, id)
	_, err := c.conn.nc.RequestWithContext(t.Context(), joinSubject(id, "hello"), nil)
	require.ErrorIs(t, err, nats.ErrNoResponders)
	run(t, func(ctx context.Context) error {
		_ = wait.For(ctx, backoffMin/2)
		return h.ServeJoin(ctx, echo)
	})

	answer, err := c.Request(t.Context(), "hello", []byte("I am new"))

	require.NoError(t, err)
	require.Equal(t, id+" hello I am new", string(answer))
}

func TestSomebodyWhoJoinsCanDoNothingElse(t *testing.T) {
	t.Parallel()
	h := joinHub(t, nil)
	admit(t, h, "attic")
	requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueRun, "c")))
	var mu sync.Mutex
	served := map[string]int{}
	run(t, func(ctx context.Context) error {
		return h.ServeJoin(ctx, func(ctx context.Context, r JoinRequest) []byte {
			mu.Lock()
			defer mu.Unlock()
			served[r.JoinID]++
			return echo(ctx, r)
		})
	})
	var beats atomic.Int64
	present(t, h, func(context.Context, string, []byte) []byte { beats.Add(1); return nil })
	own, other := rand.Text(), rand.Text()
	dialJoin(t, h, other)
	nc := raw(t, h, nats.UserInfo(joinUser(own), ""), nats.CustomInboxPrefix(inbox(joinUser(own))))
	loot := make(chan *nats.Msg, 64)
	for _, s := range []string{">", "mesh.>", "mesh.join.*.hello", joinSubject(own, "hello"), "_INBOX.>", "_INBOX_" + joinUser(other) + ".>", "_INBOX_*.>", "$SYS.>", "$JS.>"} {
		_, err := nc.ChanSubscribe(s, loot)
		require.NoError(t, err)
	}
	answers := nc.NewInbox()
	_, err := nc.ChanSubscribe(answers+".*", loot)
	require.NoError(t, err)

	for _, s := range []string{
		joinSubject(other, "hello"), "mesh.join." + own + ".accept", "mesh.join.hello", "mesh.rpt.attic.evt", "mesh.hb.attic", "mesh.cmd.attic.run.spawn",
		"$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.hub.API.INFO", "HUB.API.CONSUMER.INFO.COMMANDS.attic_run", "HUB.API.CONSUMER.MSG.NEXT.COMMANDS.attic_run",
		"$JS.ACK.COMMANDS.attic_run.1.1.1.1.0", "$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.CONNZ",
	} {
		require.NoError(t, nc.PublishRequest(s, answers+".x", []byte("forged")))
	}
	require.NoError(t, nc.PublishRequest(joinSubject(other, "hello"), inbox(joinUser(other))+".x", []byte("forged")))
	// Having the hub answer somewhere else: under another id, or itself.
	require.NoError(t, nc.Publish(joinSubject(own, "hello"), []byte("forged")))
	for _, reply := range []string{joinSubject(other, "hello"), inbox(joinUser(other)) + ".x", "mesh.rpt.attic.evt"} {
		require.NoError(t, nc.PublishRequest(joinSubject(own, "hello"), reply, []byte("forged")))
	}

	answer, err := nc.Request(joinSubject(own, "hello"), []byte("honest"), patience)
	require.NoError(t, err)
	require.Equal(t, own+" hello honest", string(answer.Data))
	require.Empty(t, loot)
	mu.Lock()
	require.Equal(t, map[string]int{own: 1}, served)
	mu.Unlock()
	require.EqualValues(t, 1, waiting(t, h, streamCommands))
	require.Zero(t, waiting(t, h, groupReports.stream("attic")))
	require.Zero(t, beats.Load())
}

func TestJoiningIsLimited(t *testing.T) {
	t.Parallel()
	full := make(chan string, 8)
	h := joinHub(t, func(h *Hub) {
		h.JoinUser = func(joinID string, _ []byte) (string, bool) {
			invite, _, _ := strings.Cut(joinID, "of")
			return invite, joinID != "UNWANTEDUNWANTEDUNWANTED"
		}
		h.JoinFull = func(invite string) { full <- invite }
	})
	run(t, func(ctx context.Context) error { return h.ServeJoin(ctx, echo) })
	pins := []string{Pin(h.Certificate)}
	joinID := rand.Text()
	first := dialJoin(t, h, joinID)
	_, err := DialJoin(t.Context(), h.Addr(), pins, as(joinID))
	require.ErrorIs(t, err, ErrRefused, "an id twice")
	for range joinPerInvite {
		dialJoin(t, h, "SAMEof"+rand.Text())
	}
	_, err = DialJoin(t.Context(), h.Addr(), pins, as("SAMEof"+rand.Text()))
	require.ErrorIs(t, err, ErrRefused, "one more than there are places for an invite")
	require.Equal(t, "SAME", next(t, full))
	for range joinMost - 1 - joinPerInvite {
		dialJoin(t, h, rand.Text())
	}

	_, err = DialJoin(t.Context(), h.Addr(), pins, as("LASTof"+rand.Text()))
	require.ErrorIs(t, err, ErrRefused, "one more than there are places")
	require.Equal(t, "LAST", next(t, full))
	first.Close()
	eventually(t, func() bool {
		c, err := DialJoin(t.Context(), h.Addr(), pins, as(joinID))
		if err == nil {
			t.Cleanup(c.Close)
			first = c
		}
		return err == nil
	}, "the free place")
	for range joinRequests {
		_, err = first.Request(t.Context(), "hello", nil)
		require.NoError(t, err)
	}
	_, err = first.Request(t.Context(), "hello", nil)
	require.ErrorIs(t, err, ErrUnavailable, "one request too many")
	_, err = DialJoin(t.Context(), h.Addr(), pins, as("UNWANTEDUNWANTEDUNWANTED"))
	require.ErrorIs(t, err, ErrRefused, "an id the hub does not want")
	_, err = DialJoin(t.Context(), h.Addr(), pins, as("short"))
	require.Error(t, err)
}

func TestAHubWithoutInvitesTakesNobodyIn(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)

	_, err := DialJoin(t.Context(), h.Addr(), []string{Pin(h.Certificate)}, as(rand.Text()))

	require.ErrorIs(t, err, ErrRefused)
}

func TestAJoinEndsAfterItsTime(t *testing.T) {
	t.Parallel()
	h := joinHub(t, func(h *Hub) {
		h.prepare()
		require.Equal(t, 30*time.Second, h.gate.joinFor)
		h.gate.joinFor = time.Second
	})
	c := dialJoin(t, h, rand.Text())
	began := time.Now()

	select {
	case <-c.conn.gone:
	case <-time.After(patience):
	}

	require.InDelta(t, time.Second, time.Since(began), float64(900*time.Millisecond))
}
