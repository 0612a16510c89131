package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

const (
	joinMost      = 16 // connections of those who join, at once
	joinPerInvite = 2  // of them under one invite: one, and one that has just lost its connection
	joinRequests  = 8  // requests of one such connection
)

// A JoinRequest is one step of somebody who has no key at this hub yet.
type JoinRequest struct {
	JoinID   string // the connection it came on; nobody else can send under it
	Step     string // "hello" or "proof"
	Exporter []byte // channel binding of that connection, see JoinConn.Exporter
	Body     []byte
}

// ServeJoin answers those who join, one request after another, until ctx
// ends. A nil answer is not sent. It needs Hub.JoinUser: without it nobody
// gets as far as asking.
func (h *Hub) ServeJoin(ctx context.Context, answer func(context.Context, JoinRequest) []byte) error {
	for {
		l, err := h.joins.await(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := h.serveJoinOn(ctx, l, answer); err != nil {
			h.Log.WarnContext(ctx, "joining was interrupted", "err", err)
		}
		if wait.For(ctx, backoffMin) != nil {
			return nil
		}
	}
}

func (h *Hub) serveJoinOn(ctx context.Context, l *natsConn, answer func(context.Context, JoinRequest) []byte) error {
	requests := make(chan *nats.Msg, joinMost*joinRequests)
	sub, err := l.nc.ChanSubscribe(joinSubject("*", "*"), requests)
	if err != nil {
		return fmt.Errorf("listening for those who join: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.gone:
			return errors.New("the message server restarts")
		case m, ok := <-requests:
			if !ok {
				return errors.New("the message server restarts")
			}
			req, ok := h.gate.joinRequest(m)
			if !ok {
				continue
			}
			if body := answer(ctx, req); body != nil {
				if err := l.nc.Publish(m.Reply, body); err != nil {
					return fmt.Errorf("answering join %s: %w", req.JoinID, err)
				}
			}
		}
	}
}

// joinRequest checks what a joiner can make up: the subject is enforced by
// the server, the reply subject is not.
func (g *gate) joinRequest(m *nats.Msg) (JoinRequest, bool) {
	joinID, step, ok := parseJoin(m.Subject)
	if !ok || !strings.HasPrefix(m.Reply, inbox(joinUser(joinID))+".") {
		return JoinRequest{}, false
	}
	g.mu.Lock()
	j := g.joining[joinID]
	if j == nil {
		g.mu.Unlock()
		return JoinRequest{}, false
	}
	j.requests++
	tooMany := j.requests > joinRequests
	exporter := slices.Clone(j.exporter)
	g.mu.Unlock()
	if tooMany {
		g.drop(j.client)
		return JoinRequest{}, false
	}
	return JoinRequest{JoinID: joinID, Step: step, Exporter: exporter, Body: m.Data}, true
}

// admitJoiner lets c into the account JOIN, where it can send two subjects to
// the hub and hear its own inbox. Whoever cannot show an invite is refused
// before anything is kept of the connection.
func (g *gate) admitJoiner(c server.ClientAuthentication, user string) bool {
	joinID, ok := parseJoinUser(user)
	if !ok || g.joinUser == nil {
		return false
	}
	value, err := exporter(*c.GetTLSConnectionState())
	if err != nil {
		return false
	}
	invite, ok := g.joinUser(joinID, slices.Clone(value))
	if !ok {
		return false
	}
	acc, full, ok := g.reserve(joinID, &joiner{client: c, invite: invite, exporter: value})
	if full && g.joinFull != nil {
		g.joinFull(invite)
	}
	if !ok {
		return false
	}
	p := &server.Permissions{
		Publish:   &server.SubjectPermission{},
		Subscribe: &server.SubjectPermission{Allow: []string{inbox(user) + ".>"}},
	}
	for _, step := range steps {
		p.Publish.Allow = append(p.Publish.Allow, joinSubject(joinID, step))
	}
	c.RegisterUser(&server.User{
		Username:           user,
		Account:            acc,
		Permissions:        p,
		ConnectionDeadline: time.Now().Add(g.joinFor),
	})
	return true
}

// reserve takes one of the few places for joiners; full says that there is none.
// A join has one connection, and a connection one join.
func (g *gate) reserve(joinID string, j *joiner) (acc *server.Account, full, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	same := 0
	for s, old := range g.joining {
		switch {
		case !g.alive(old.client):
			delete(g.joining, s)
		case old.client.GetID() == j.client.GetID():
			return nil, false, false
		case old.invite == j.invite:
			same++
		}
	}
	acc, ok = g.account(accountJoin)
	if !ok || !g.opened || g.joining[joinID] != nil {
		return nil, false, false
	}
	if len(g.joining) >= joinMost || same >= joinPerInvite {
		return nil, true, false
	}
	g.joining[joinID] = j
	return acc, false, true
}

// A JoinConn is the connection of somebody who joins a hub. The hub ends it
// after half a minute.
type JoinConn struct {
	conn     *natsConn
	joinID   string
	exporter []byte
}

// DialJoin connects to the hub at address, which must hold the key of one of
// pins, under the id that joinID makes of the connection's exporter: 16 to
// 64 letters and digits. It returns ErrPin for another key and ErrRefused when
// the hub does not take it in now. ctx bounds the dialling.
func DialJoin(ctx context.Context, address string, pins []string, joinID func(exporter []byte) string) (*JoinConn, error) {
	c := &JoinConn{}
	var err error
	c.conn, err = dialBound(ctx, address, pins, "", func(s tls.ConnectionState) (login []nats.Option, err error) {
		if c.exporter, err = exporter(s); err != nil {
			return nil, err
		}
		if c.joinID = joinID(c.Exporter()); !validJoinID(c.joinID) {
			return nil, errors.New("the id of a join is 16 to 64 letters and digits")
		}
		user := joinUser(c.joinID)
		return []nats.Option{nats.UserInfo(user, ""), nats.CustomInboxPrefix(inbox(user))}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("joining: %w", err)
	}
	return c, nil
}

// Exporter is what only the two ends of this connection can derive from it.
// What both sign over it cannot be carried to another connection.
func (c *JoinConn) Exporter() []byte { return slices.Clone(c.exporter) }

// Request sends body as step "hello" or "proof" and returns the answer. Where a hub that
// has just started does not listen yet, nothing was sent, and it is sent again.
func (c *JoinConn) Request(ctx context.Context, step string, body []byte) ([]byte, error) {
	if !slices.Contains(steps, step) {
		return nil, fmt.Errorf("joining: there is no step %q", step)
	}
	answer, err := c.conn.nc.RequestWithContext(ctx, joinSubject(c.joinID, step), body)
	for errors.Is(err, nats.ErrNoResponders) && wait.For(ctx, backoffMin) == nil {
		answer, err = c.conn.nc.RequestWithContext(ctx, joinSubject(c.joinID, step), body)
	}
	if err != nil {
		return nil, fmt.Errorf("joining, step %s: %w: %w", step, ErrUnavailable, err)
	}
	return answer.Data, nil
}

// Close ends the connection.
func (c *JoinConn) Close() { c.conn.close() }
