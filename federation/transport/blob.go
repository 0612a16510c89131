package transport

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// blobWrite is how long one write of a connection for blobs may take: a line that carries nothing ends it.
const blobWrite = 20 * time.Second

// A BlobConn is a connection of a spoke over which nothing but blobs travel: commands and heartbeats have another
// socket, and wait for none of it. It does not reconnect.
type BlobConn struct {
	id    string // of the connection that it belongs to
	l     *natsConn
	inbox string

	mu    sync.Mutex
	next  int
	calls map[string]*BlobCall // under way, by the last token of their reply subject
}

// A BlobCall is a request that was sent.
type BlobCall struct {
	conn    *BlobConn
	token   string
	request BlobFrame
	answer  chan []byte
}

// Blobs opens a connection for blobs beside the link. The hub has one of a peer, the newest, and ends it with the peer's right
// to link. The error wraps ErrPin, ErrRefused or ErrUnavailable.
func (k *Link) Blobs(ctx context.Context) (*BlobConn, error) {
	public, err := NKey(k.Seed)
	if err != nil {
		return nil, err
	}
	key, user := ed25519.NewKeyFromSeed(k.Seed), blobUser(k.ID)
	l, err := dialHub(ctx, k.Address, k.Pins, "", nats.UserInfo(user, ""), nkeyLogin(public, key), nats.CustomInboxPrefix(inbox(user)), nats.FlusherTimeout(blobWrite))
	if err != nil {
		return nil, fmt.Errorf("connecting for blobs: %w", err)
	}
	c := &BlobConn{id: k.ID, l: l, inbox: l.nc.NewInbox(), calls: map[string]*BlobCall{}}
	if _, err := l.nc.Subscribe(c.inbox+".*", c.take); err != nil {
		l.sever()
		return nil, fmt.Errorf("connecting for blobs: %w: %w", ErrUnavailable, err)
	}
	return c, nil
}

// Gone is closed when the connection has ended.
func (c *BlobConn) Gone() <-chan struct{} { return c.l.gone }

// Close ends the connection, also while something is being sent.
func (c *BlobConn) Close() { c.l.sever() }

// Send sends a request, behind those that were sent before. It waits while the line takes no more.
func (c *BlobConn) Send(request BlobFrame) (*BlobCall, error) {
	call := &BlobCall{conn: c, request: request, answer: make(chan []byte, 1)}
	c.mu.Lock()
	call.token = strconv.Itoa(c.next)
	c.next++
	c.calls[call.token] = call
	c.mu.Unlock()
	if err := c.l.nc.PublishRequest(blobSubject(c.id, request.Put), c.inbox+"."+call.token, request.encode()); err != nil {
		call.Forget()
		return nil, fmt.Errorf("%w: asking about a blob: %w", ErrUnavailable, err)
	}
	return call, nil
}

// Await returns the answer. The error is a [BlobRefused], or wraps ErrUnavailable where there is none.
func (call *BlobCall) Await(ctx context.Context) (BlobFrame, error) {
	defer call.Forget()
	select {
	case b := <-call.answer:
		f, err := parseBlobAnswer(b, call.request)
		if errors.Is(err, errFrame) {
			return f, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return f, err
	case <-call.conn.l.gone:
		return BlobFrame{}, fmt.Errorf("%w: the connection for blobs was lost", ErrUnavailable)
	case <-ctx.Done():
		return BlobFrame{}, fmt.Errorf("%w: no answer about a blob: %w", ErrUnavailable, context.Cause(ctx))
	}
}

// Forget is for a call whose answer nobody awaits any more.
func (call *BlobCall) Forget() {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	delete(call.conn.calls, call.token)
}

// take hands an answer to whom it is for. What was not asked for goes.
func (c *BlobConn) take(m *nats.Msg) {
	c.mu.Lock()
	call := c.calls[strings.TrimPrefix(m.Subject, c.inbox+".")]
	c.mu.Unlock()
	if call != nil {
		select {
		case call.answer <- m.Data:
		default: // a second one
		}
	}
}
