package transport

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A peer that may not link, and one that has ended its connection, asks: it logs
// in under another name, gets one request and one answer, and nothing else. It has
// no part in the accounts that hold queues and heartbeats, and is not linked.

const askFor = 5 * time.Second // how long a connection that asks lasts

// An asker is a peer that may ask, and its last connection for that.
type asker struct {
	nkey   string
	client server.ClientAuthentication // nil before the first
	since  time.Time
	asked  bool
}

// LetAsk lets a peer ask from now on what has become of its connection, whether it
// is admitted or not. It may be called before Start, and again, also to replace the
// peer's key. Cut and Forget do not change it.
func (h *Hub) LetAsk(p Peer) error {
	h.prepare()
	if err := checkID("peer", p.ID); err != nil {
		return fmt.Errorf("letting a peer ask: %w", err)
	}
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	if a := h.gate.askers[p.ID]; a == nil || a.nkey != p.NKey {
		h.gate.askers[p.ID] = &asker{nkey: p.NKey}
	}
	return nil
}

// Questions hands what peers ask to handle and sends back what it returns, unless
// that is empty, until ctx ends; it then returns nil. A peer asks about twice a
// second at most. Up to 64 questions are handled at once.
func (h *Hub) Questions(ctx context.Context, handle func(ctx context.Context, conn string, body []byte) (answer []byte)) error {
	h.prepare()
	return h.serve(ctx, &h.joins, askSubject("*"), &presence{handle: handle, sender: h.gate.question})
}

// question checks what a peer that asks can make up: the subject is enforced by the
// server, the reply subject is not. A connection has one question.
func (g *gate) question(m *nats.Msg) (conn string, ok bool) {
	conn, ok = parseAsk(m.Subject)
	if !ok || !strings.HasPrefix(m.Reply, inbox(askUser(conn))+".") {
		return "", false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.askers[conn]
	if a == nil || a.asked {
		return "", false
	}
	a.asked = true
	return conn, true
}

// admitAsker lets c into the account JOIN, where there are no queues, to send one
// subject and hear its own inbox.
func (g *gate) admitAsker(c server.ClientAuthentication, conn, nkey string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.askers[conn]
	acc, ready := g.account(accountJoin)
	if a == nil || a.nkey != nkey || !ready || !g.opened || time.Since(a.since) < g.askEvery || a.client != nil && g.alive(a.client) {
		return false
	}
	a.client, a.since, a.asked = c, time.Now(), false
	user := askUser(conn)
	c.RegisterUser(&server.User{
		Username: user,
		Account:  acc,
		Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{askSubject(conn)}},
			Subscribe: &server.SubjectPermission{Allow: []string{inbox(user) + ".>"}},
		},
		ConnectionDeadline: time.Now().Add(askFor),
	})
	return true
}

// Ask asks the hub once, on a connection of its own, what has become of this
// connection: body is this side's last message, or empty. It neither needs the link
// nor disturbs it. The error wraps ErrRefused where the hub does not know the
// connection, or was asked a moment ago.
func (k *Link) Ask(ctx context.Context, body []byte) (answer []byte, err error) {
	public, err := NKey(k.Seed)
	if err != nil {
		return nil, err
	}
	key, user := ed25519.NewKeyFromSeed(k.Seed), askUser(k.ID)
	l, err := dialHub(ctx, k.Address, k.Pins, "", nats.UserInfo(user, ""), nkeyLogin(public, key), nats.CustomInboxPrefix(inbox(user)))
	if err != nil {
		return nil, fmt.Errorf("asking about the connection: %w", err)
	}
	defer l.close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := l.nc.RequestWithContext(ctx, askSubject(k.ID), body)
	if err != nil {
		return nil, fmt.Errorf("asking about the connection: %w: %w", ErrUnavailable, err)
	}
	return m.Data, nil
}
