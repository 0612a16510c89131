package transport

import (
	"context"
	"crypto/ed25519"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// questions answers what is asked with the name of who asks and the question.
func questions(t *testing.T, h *Hub) {
	t.Helper()
	run(t, func(ctx context.Context) error {
		return h.Questions(ctx, func(_ context.Context, conn string, body []byte) []byte {
			return []byte(conn + " asks " + string(body))
		})
	})
}

func letAsk(t *testing.T, h *Hub, name string) *Link {
	t.Helper()
	nkey, err := NKey(seed(name))
	require.NoError(t, err)
	require.NoError(t, h.LetAsk(Peer{ID: name, NKey: nkey}))
	return &Link{Address: h.Addr(), Pins: []string{Pin(h.Certificate)}, ID: name, Seed: seed(name)}
}

func TestWhoMayNotLinkMayAsk(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) {
		h.prepare()
		h.gate.askEvery = time.Hour
	})
	questions(t, h)
	admit(t, h, "attic")
	attic, cellar := letAsk(t, h, "attic"), letAsk(t, h, "cellar")
	h.Cut("attic")

	thief := &Link{Address: h.Addr(), Pins: []string{Pin(h.Certificate)}, ID: "attic", Seed: seed("cellar")}
	_, err := thief.Ask(t.Context(), nil)
	require.ErrorIs(t, err, ErrRefused, "with another's key")
	answer, err := attic.Ask(t.Context(), []byte("why"))
	require.NoError(t, err)
	require.Equal(t, "attic asks why", string(answer))
	_, err = attic.Ask(t.Context(), []byte("why"))
	require.ErrorIs(t, err, ErrRefused, "not at once again")
	answer, err = cellar.Ask(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "cellar asks ", string(answer), "who never was admitted, too")

	stranger := &Link{Address: h.Addr(), Pins: []string{Pin(h.Certificate)}, ID: "stranger", Seed: seed("stranger")}
	_, err = stranger.Ask(t.Context(), nil)
	require.ErrorIs(t, err, ErrRefused)
}

// A peer that asks has one request; queues, heartbeats and others' subjects are
// closed to it, and it does not count as linked.
func TestAPeerThatAsksCanDoNothingElse(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	var asked, beats atomic.Int64
	run(t, func(ctx context.Context) error {
		return h.Questions(ctx, func(_ context.Context, conn string, body []byte) []byte {
			asked.Add(1)
			return []byte("told")
		})
	})
	present(t, h, func(context.Context, string, []byte) []byte { beats.Add(1); return []byte("beat") })
	admit(t, h, "attic")
	requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueRun, "c")))
	letAsk(t, h, "cellar")
	k := letAsk(t, h, "attic")
	h.Cut("attic")
	before := waiting(t, h, groupReports.stream("attic"))
	public, err := NKey(k.Seed)
	require.NoError(t, err)
	nc := raw(t, h, nats.UserInfo(askUser("attic"), ""), nkeyLogin(public, ed25519.NewKeyFromSeed(k.Seed)), nats.CustomInboxPrefix(inbox(askUser("attic"))))
	loot := make(chan *nats.Msg, 64)
	for _, s := range []string{">", "mesh.>", "mesh.ask.*", "_INBOX.>", "_INBOX_*.>", "_INBOX_attic.>", "_INBOX_" + askUser("cellar") + ".>", "$JS.>", "$SYS.>"} {
		_, err := nc.ChanSubscribe(s, loot)
		require.NoError(t, err)
	}
	own := nc.NewInbox()
	_, err = nc.ChanSubscribe(own, loot)
	require.NoError(t, err)

	next := hubAPI + ".CONSUMER.MSG.NEXT." + streamCommands + "." + consumerName("attic", commands.QueueRun)
	for _, s := range []string{beatSubject("attic"), askSubject("cellar"), reportSubject("attic", commands.QueueEvents), reportSubject("attic", commands.QueueResults), reportSubject("attic", commands.QueueLogs),
		next, "$JS.API.CONSUMER.MSG.NEXT." + streamCommands + "." + consumerName("attic", commands.QueueRun), "$JS.API.STREAM.NAMES", joinSubject("aaaaaaaaaaaaaaaaaaaa", "hello")} {
		require.NoError(t, nc.PublishRequest(s, own, []byte("x")))
	}
	require.NoError(t, nc.PublishRequest(askSubject("attic"), inbox(askUser("cellar"))+".x", nil))
	require.NoError(t, nc.PublishRequest(askSubject("attic"), own, nil))
	require.NoError(t, nc.PublishRequest(askSubject("attic"), own, nil))
	require.NoError(t, nc.Flush())

	m := <-loot
	require.Equal(t, own, m.Subject)
	require.Equal(t, "told", string(m.Data))
	_, linked := h.Linked("attic")
	require.False(t, linked)
	require.Empty(t, h.Peers())
	require.Zero(t, beats.Load())
	require.Eventually(t, nc.IsClosed, patience, 10*time.Millisecond, "it does not last")
	require.EqualValues(t, 1, asked.Load())
	require.Empty(t, loot)
	require.Equal(t, before, waiting(t, h, groupReports.stream("attic")))
}

// A question does not take the place of the link.
func TestAQuestionLeavesTheLinkAlone(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	questions(t, h)
	admit(t, h, "attic")
	k := letAsk(t, h, "attic")
	rawPeer(t, h, "attic")
	since, linked := h.Linked("attic")
	require.True(t, linked)

	_, err := k.Ask(t.Context(), nil)

	require.NoError(t, err)
	still, linked := h.Linked("attic")
	require.True(t, linked)
	require.Equal(t, since, still)
}
