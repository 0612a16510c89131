package federation

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Change is what a person asks for: the verb that leads to a state, and why.
type Change struct {
	Verb   string
	Reason string
	Actor  string
}

// A Changed is a connection after a [Change].
type Changed struct {
	store.Connection
	Untold  bool                    `json:"untold,omitempty"`  // there is no link, so the peer is told of the change later
	Already bool                    `json:"already,omitempty"` // another word had suspended it before, which stays: nothing was changed
	Says    commands.ConnectionView `json:"peer_says"`         // what the peer last said about the connection
}

// Change changes the state of the connection that a person means, among those of
// these authorities, and returns when that is in force.
func (b *Board) Change(ctx context.Context, text string, c Change, of ...store.Authority) (Changed, error) {
	to, known := store.Verbs[c.Verb]
	if !known {
		return Changed{}, commands.Refuse(commands.NotFound, "a connection can be suspended, resumed and revoked")
	}
	if c.Reason == "" && to != store.Active {
		return Changed{}, commands.Refuse(commands.Validation, "this needs a reason").Hinting("say why; it is recorded")
	}
	s, err := b.Find(text, of...)
	if err != nil {
		return Changed{}, err
	}
	after := Changed{Says: s.Says}
	after.Connection, err = b.SetState(ctx, s.ID, to, c.Reason, c.Actor)
	after.Untold = !s.Linked && untold(s.State, after.Connection)
	after.Already = err == nil && to == store.Suspended && (after.By != c.Actor || after.Reason != c.Reason)
	return after, err
}

// untold reports whether the peer of a connection without a link may not know its state.
// The side that is dialled cuts the link by the change itself, and knows it of a change only.
func untold(before store.ConnState, c store.Connection) bool {
	switch {
	case c.Authority != store.Obeys:
		return c.State != before
	case c.State.Ended():
		return MayHaveToTell(c)
	}
	return true
}

// lastMessageWait is how long the last message of a connection, or an answer about it, may
// take to be sent.
const lastMessageWait = 2 * time.Second

// SetState changes the state of a connection and puts it into effect: the commit
// comes first, and from then on no transaction accepts what the state forbids. When
// SetState returns nil, the link is cut where the state says so. The peer of a connection
// that ends is sent a signed "revoked", which may reach it after that.
func (b *Board) SetState(ctx context.Context, conn string, to store.ConnState, reason, actor string) (store.Connection, error) {
	c, err := b.DB.SetConnectionState(ctx, conn, to, reason, actor, b.end)
	if err != nil {
		return c, err
	}
	// The decision stands: what follows must happen even if the caller leaves.
	ctx = context.WithoutCancel(ctx)
	if c.State.Ended() {
		b.sendRevoked(ctx, c)
		b.ended(ctx, c)
	}
	ctx, done := context.WithTimeout(ctx, 30*time.Second)
	defer done()
	return c, b.Await(ctx, c.ID)
}

// sendRevoked tells the peer over a link that is up that the connection has ended. It is
// best effort, because the link is cut at once: a peer that did not take it is told when one
// of the sides dials again; see told.go.
func (b *Board) sendRevoked(ctx context.Context, c store.Connection) {
	x := b.Exchange(c.ID)
	if x == nil || x.way.link() == 0 || c.By == byPeer {
		return
	}
	ctx, done := context.WithTimeout(ctx, lastMessageWait)
	defer done()
	if err := x.Send(ctx, x.ownQueue(), Note{Body: lastMessage(c)}); err != nil {
		x.log.WarnContext(ctx, "the peer was not told that the connection has ended; it is told at the next dial", "err", err)
	}
}

// byPeer is who changed a state that the other side has decided.
const byPeer = "peer"

// revokedByPeer ends a connection whose other side has sent its last message, signed
// with key.
func (b *Board) revokedByPeer(ctx context.Context, p *Peer, key signing.KeyID, reason string) error {
	end := func(ctx context.Context, tx *store.Tx, c store.Connection) error {
		if err := tx.Speaks(ctx, store.Speaker{Conn: p.ID, Key: key}); err != nil {
			return err
		}
		return b.end(ctx, tx, c)
	}
	c, err := b.DB.SetConnectionState(ctx, p.ID, store.Revoked, reason, byPeer, end)
	if err != nil {
		return err
	}
	b.ended(ctx, c)
	b.changed()
	return nil
}

// suspend stops a connection whose peer does what it must not.
func (b *Board) suspend(ctx context.Context, p *Peer, reason string) error {
	return b.changeBySelf(ctx, p, store.Suspended, reason, "self")
}

// changeBySelf changes a connection by this instance's own decision.
func (b *Board) changeBySelf(ctx context.Context, p *Peer, to store.ConnState, reason, by string) error {
	reason = commands.CleanReason(reason) // it may quote the peer
	if _, err := b.DB.SetConnectionState(ctx, p.ID, to, reason, by, nil); err != nil {
		return err
	}
	b.sayChanged(ctx, p, to, reason)
	b.changed()
	return nil
}

// sayChanged says in the log that this instance has changed a connection.
func (b *Board) sayChanged(ctx context.Context, p *Peer, to store.ConnState, reason string) {
	b.Log.WarnContext(ctx, "connection "+string(to)+" by this instance; the audit says more", "connection", p.Name, "reason", reason)
}
