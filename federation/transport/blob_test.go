package transport

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

var blobText = bytes.Repeat([]byte("all that an agent needs "), 50_000)

// serveBlobs answers gets with what is there of blobText, and puts with where the next bytes go.
func serveBlobs(t *testing.T, h *Hub, told func(conn string, f BlobFrame)) {
	t.Helper()
	run(t, func(ctx context.Context) error {
		return h.Blobs(ctx, func(_ context.Context, conn string, f BlobFrame) BlobFrame {
			if told != nil {
				told(conn, f)
			}
			a := f.Answer(BlobGoesOn)
			if f.Put {
				a.Offset += int64(len(f.Data))
				return a
			}
			a.Data = blobText[f.Offset : f.Offset+int64(f.Want)]
			return a
		})
	})
}

func blobRequestOf(put bool, offset int64, n int) BlobFrame {
	f := BlobFrame{Put: put, Digest: sha256.Sum256(blobText), Size: int64(len(blobText)), Offset: offset, Want: n}
	if put {
		f.Want, f.Data = 0, blobText[offset:offset+int64(n)]
	}
	return f
}

func blobs(t *testing.T, h *Hub, name string) *BlobConn {
	t.Helper()
	c, err := newLink(t, h, name).Blobs(t.Context())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func askBlob(t *testing.T, c *BlobConn, f BlobFrame) (BlobFrame, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	call, err := c.Send(f)
	require.NoError(t, err)
	return call.Await(ctx)
}

func TestPiecesOfBlobsTravelInTheirOrder(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	serveBlobs(t, h, nil)
	admit(t, h, "attic")
	c := blobs(t, h, "attic")
	var calls []*BlobCall
	for i := range 4 {
		call, err := c.Send(blobRequestOf(false, int64(i)*MaxPiece, MaxPiece))
		require.NoError(t, err)
		calls = append(calls, call)
	}
	for i, call := range calls {
		f, err := call.Await(t.Context())
		require.NoError(t, err)
		require.True(t, bytes.Equal(blobText[i*MaxPiece:(i+1)*MaxPiece], f.Data))
	}
	f, err := askBlob(t, c, blobRequestOf(true, 100, MaxPiece))
	require.NoError(t, err)
	require.EqualValues(t, 100+MaxPiece, f.Offset)
	require.Empty(t, c.calls)
}

// The connection for blobs is admitted with the link, and ends with the right to it; it is no link itself.
func TestTheConnectionForBlobsGoesWithTheLink(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	serveBlobs(t, h, nil)
	k := newLink(t, h, "attic")
	_, err := k.Blobs(t.Context())
	require.ErrorIs(t, err, ErrRefused, "before it is admitted")
	admit(t, h, "attic", "cellar")
	c := blobs(t, h, "attic")
	require.Empty(t, h.Peers())
	_, linked := h.Linked("attic")
	require.False(t, linked)
	startLink(t, h, "attic")
	since, linked := h.Linked("attic")
	require.True(t, linked)

	second := blobs(t, h, "attic")
	next(t, c.Gone())
	_, err = askBlob(t, second, blobRequestOf(false, 0, 10))
	require.NoError(t, err, "a new login takes the place of the one before")
	still, linked := h.Linked("attic")
	require.True(t, linked && still.Equal(since), "and leaves the link alone")

	thief := newLink(t, h, "attic")
	thief.Seed = seed("cellar")
	_, err = thief.Blobs(t.Context())
	require.ErrorIs(t, err, ErrRefused, "with another's key")
	h.Cut("attic")
	next(t, second.Gone())
	_, err = k.Blobs(t.Context())
	require.ErrorIs(t, err, ErrRefused)
	admit(t, h, "attic")
	c = blobs(t, h, "attic")
	require.NoError(t, h.Admit(t.Context(), Peer{ID: "attic", NKey: nkeyOf(t, "another key")}))
	next(t, c.Gone())
	other := blobs(t, h, "cellar")
	require.NoError(t, h.Forget(t.Context(), "cellar"))
	next(t, other.Gone())
}

func rawBlobs(t *testing.T, h *Hub, name string) *nats.Conn {
	t.Helper()
	return raw(t, h, nats.UserInfo(blobUser(name), ""), nkeyLogin(nkeyOf(t, name), ed25519.NewKeyFromSeed(seed(name))), nats.CustomInboxPrefix(inbox(blobUser(name))))
}

// Nothing of the hub, and nothing of another peer, is open to a connection for blobs.
func TestAConnectionForBlobsCanDoNothingElse(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	var asked, beats atomic.Int64
	serveBlobs(t, h, func(string, BlobFrame) { asked.Add(1) })
	present(t, h, func(context.Context, string, []byte) []byte { beats.Add(1); return []byte("beat") })
	admit(t, h, "attic", "cellar")
	requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueRun, "c")))
	victim := rawBlobs(t, h, "cellar")
	heard := make(chan *nats.Msg, 64)
	_, err := victim.ChanSubscribe(inbox(blobUser("cellar"))+".>", heard)
	require.NoError(t, err)
	require.NoError(t, victim.Flush())
	before := waiting(t, h, groupReports.stream("attic"))
	nc := rawBlobs(t, h, "attic")
	loot := make(chan *nats.Msg, 64)
	for _, s := range []string{">", "mesh.>", "mesh.blob.*.*", "mesh.blob.attic.put", "_INBOX.>", "_INBOX_*.>", "_INBOX_attic.>", inbox(blobUser("cellar")) + ".>", "$JS.>", "$SYS.>"} {
		_, err := nc.ChanSubscribe(s, loot)
		require.NoError(t, err)
	}
	own := nc.NewInbox()
	_, err = nc.ChanSubscribe(own, loot)
	require.NoError(t, err)

	good := blobRequestOf(true, 0, 10).encode()
	pull := hubAPI + ".CONSUMER.MSG.NEXT." + streamCommands + "." + consumerName("attic", commands.QueueRun)
	for _, s := range []string{beatSubject("attic"), askSubject("attic"), reportSubject("attic", commands.QueueEvents), reportSubject("attic", commands.QueueResults), reportSubject("attic", commands.QueueLogs),
		pull, "$JS.API.STREAM.NAMES", "$SYS.REQ.SERVER.PING", joinSubject("aaaaaaaaaaaaaaaaaaaa", "hello"), blobSubject("cellar", false), blobSubject("cellar", true), "mesh.blob.attic.list", own, inbox(blobUser("cellar")) + ".x"} {
		require.NoError(t, nc.PublishRequest(s, own+".x", good))
	}
	for _, reply := range []string{inbox(blobUser("cellar")) + ".x", blobSubject("cellar", true), blobSubject("attic", true), inbox("attic") + ".x", "mesh.hb.attic"} {
		require.NoError(t, nc.PublishRequest(blobSubject("attic", true), reply, good))
	}
	require.NoError(t, nc.Flush())
	require.Zero(t, asked.Load())
	require.NoError(t, nc.PublishRequest(blobSubject("attic", true), own, good))

	m := next(t, loot)
	require.Equal(t, own, m.Subject)
	require.EqualValues(t, 1, asked.Load())
	require.Zero(t, beats.Load())
	require.Empty(t, loot)
	require.Empty(t, heard)
	require.Equal(t, before, waiting(t, h, groupReports.stream("attic")))
}

func TestFramesOfBlobsAreReadStrictly(t *testing.T) {
	t.Parallel()
	put, get := blobRequestOf(true, 100, 50), blobRequestOf(false, 100, 50)
	for _, f := range []BlobFrame{put, get} {
		got, err := parseBlobRequest(f.encode(), f.Put)
		require.NoError(t, err)
		if f.Put {
			require.Equal(t, f, got)
		} else {
			require.Equal(t, f.Want, got.Want)
		}
		_, err = parseBlobRequest(f.encode(), !f.Put)
		require.ErrorIs(t, err, errFrame)
	}
	at := func(b []byte, offset int, value uint64) []byte {
		b = bytes.Clone(b)
		binary.BigEndian.PutUint64(b[offset:], value)
		return b
	}
	b := put.encode()
	long := BlobFrame{Put: true, Size: 1 << 30, Data: make([]byte, MaxPiece+1)}
	for name, bad := range map[string][]byte{
		"nothing": nil, "half a header": b[:blobHeader-1], "another version": append([]byte{2}, b[1:]...), "a code": append([]byte{1, 1}, b[2:]...), "bytes too few": b[:len(b)-1], "bytes too many": append(bytes.Clone(b), 0),
		"behind its end": at(b, 34, uint64(put.Size)-49), "a negative offset": at(b, 34, 1<<63), "a negative size": at(b, 42, 1<<63), "too long": long.encode(), "nothing asked for": BlobFrame{Size: 1}.encode(),
	} {
		_, err := parseBlobRequest(bad, name != "nothing asked for")
		require.ErrorIs(t, err, errFrame, name)
	}

	good := get.Answer(BlobGoesOn)
	good.Data = blobText[100:150]
	_, err := parseBlobAnswer(good.encode(), get)
	require.NoError(t, err)
	for name, change := range map[string]func(*BlobFrame){
		"of another blob": func(f *BlobFrame) { f.Digest[0]++ }, "of another size": func(f *BlobFrame) { f.Size++ }, "from elsewhere": func(f *BlobFrame) { f.Offset-- },
		"more than was asked for": func(f *BlobFrame) { f.Data = blobText[100:151] }, "nothing": func(f *BlobFrame) { f.Data = nil }, "held": func(f *BlobFrame) { f.Code = BlobHeld },
	} {
		bad := good
		change(&bad)
		_, err := parseBlobAnswer(bad.encode(), get)
		require.ErrorIs(t, err, errFrame, name)
	}
	_, err = parseBlobAnswer(get.Answer(BlobNotFound).encode(), get)
	require.ErrorContains(t, err, "not there, or not for this connection")
	_, err = parseBlobAnswer(good.encode(), put)
	require.ErrorIs(t, err, errFrame)
}

// Hundreds of requests at once are refused beyond a few, handled one after another, and end the connection in the end.
func TestManyRequestsAboutBlobsAreBounded(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	release := make(chan struct{})
	var handled, atOnce atomic.Int64
	run(t, func(ctx context.Context) error {
		return h.Blobs(ctx, func(ctx context.Context, conn string, f BlobFrame) BlobFrame {
			if conn == "attic" {
				handled.Add(1)
				if atOnce.Add(1) > 1 {
					t.Error("two of one peer at once")
				}
				defer atOnce.Add(-1)
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return f.Answer(BlobNotFound)
		})
	})
	admit(t, h, "attic", "cellar")
	c, other := blobs(t, h, "attic"), blobs(t, h, "cellar")
	var calls []*BlobCall
	for range blobQueued + 10 {
		call, err := c.Send(blobRequestOf(true, 0, 10))
		require.NoError(t, err)
		calls = append(calls, call)
	}
	soon, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, call := range calls[blobQueued:] {
		_, err := call.Await(soon)
		require.ErrorContains(t, err, BlobBusy.String())
	}
	_, err := askBlob(t, other, blobRequestOf(false, 0, 10))
	require.ErrorContains(t, err, BlobNotFound.String(), "another peer does not wait for it")
	require.EqualValues(t, 1, handled.Load())
	close(release)
	for _, call := range calls[:blobQueued] {
		_, err := call.Await(soon)
		require.ErrorContains(t, err, BlobNotFound.String())
	}
	require.EqualValues(t, blobQueued, handled.Load())

	nc := rawBlobs(t, h, "attic")
	for range 300 {
		if nc.PublishRequest(blobSubject("attic", false), nc.NewInbox(), []byte("rubbish")) != nil {
			break // it has ended
		}
	}
	eventually(t, nc.IsClosed, "the end of a connection that sends rubbish only")
	_, err = askBlob(t, blobs(t, h, "attic"), blobRequestOf(false, 0, 10))
	require.ErrorContains(t, err, BlobNotFound.String(), "it may dial again")
}

// What a peer asks for and does not read is not piled up for it.
func TestAPeerThatReadsNothingIsSentNoMore(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	var handled atomic.Int64
	serveBlobs(t, h, func(string, BlobFrame) { handled.Add(1) })
	admit(t, h, "attic")
	c := dialWire(t, h)
	c.write(fmt.Sprintf("CONNECT {\"user\":%q,\"nkey\":%q,\"sig\":%q,\"protocol\":1,\"verbose\":false}\r\nPING\r\n", blobUser("attic"), nkeyOf(t, "attic"), base64url(ed25519.Sign(ed25519.NewKeyFromSeed(seed("attic")), []byte(c.nonce)))))
	require.Equal(t, "PONG", c.read())
	ask := blobRequestOf(false, 0, MaxPiece).encode()
	reply := inbox(blobUser("attic")) + ".x"
	c.write("SUB " + reply + " 1\r\n")
	for range 200 {
		c.write(fmt.Sprintf("PUB %s %s %d\r\n%s\r\n", blobSubject("attic", false), reply, len(ask), ask))
		time.Sleep(5 * time.Millisecond) // it asks no faster than it is answered
	}
	eventually(t, func() bool { return handled.Load() > 5 }, "answers")
	most := 0
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		z, err := h.gate.server().Connz(nil)
		require.NoError(t, err)
		for _, c := range z.Conns {
			most = max(most, c.Pending)
		}
	}
	require.LessOrEqual(t, most, blobUnread+(blobQueued+1)*MaxPiece)
}
