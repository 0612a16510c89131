package federation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/streak"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A last message may be lost: the link is down, or is cut before it is read. So
// the side that dials asks. One whose link is refused asks what has become of the
// connection; one that has ended its connection says so until the other side has.
// A question goes neither over the link nor through a queue, and what both sides
// say there they sign with their identity keys, which no rotation ends.

// How often the dialling side asks: at once, and then ever more slowly.
const (
	askFirst = time.Second
	askMost  = 30 * time.Second
)

// tellFor is how long after its end a connection's peer is dialled to be told.
const tellFor = 7 * 24 * time.Hour

// letAsk lets a peer ask that dials us, whatever has become of its connection.
func (b *Board) letAsk(c store.Connection) error {
	if c.State == store.Pending {
		return nil
	}
	if err := b.Server.LetAsk(transport.Peer{ID: c.ID, NKey: c.LinkKey}); err != nil {
		return fmt.Errorf("letting %s ask: %w", c.Name, err)
	}
	return nil
}

// serveQuestions answers peers that ask, with the state of the connection or, where
// it has ended, with the last message.
func (b *Board) serveQuestions(ctx context.Context) error {
	return b.Server.Questions(ctx, func(ctx context.Context, conn string, envelope []byte) []byte {
		ctx, done := context.WithTimeout(ctx, lastMessageWait)
		defer done()
		answer, err := b.answer(ctx, conn, envelope)
		if err != nil {
			b.Log.DebugContext(ctx, "answering what has become of a connection", "conn", conn, "err", err)
			return nil
		}
		return answer
	})
}

func (b *Board) answer(ctx context.Context, conn string, envelope []byte) ([]byte, error) {
	s, _ := b.Status(conn)
	if s.State.Ended() {
		return b.sealBeside(s.Connection, lastMessage(s.Connection))
	}
	x := b.Exchange(conn)
	if x == nil {
		return nil, errors.New("the connection is not served here")
	}
	p := x.peer.Load()
	if len(envelope) == 0 {
		return b.sealBeside(p.Connection, &commands.Heartbeat{IntervalMS: b.interval().Milliseconds(), Version: b.Version, Incarnation: b.incarnation,
			Connection: viewOf(p.Connection)})
	}
	last, key, err := x.lastMessageOf(ctx, p, envelope)
	if err != nil {
		return nil, err
	}
	if err := b.revokedByPeer(ctx, p, key, last.Reason); err != nil {
		return nil, err
	}
	return b.sealBeside(p.Connection, last)
}

// lastMessageOf opens what must be the last message of the peer, and says with which key
// it was signed.
func (x *Exchange) lastMessageOf(ctx context.Context, p *Peer, envelope []byte) (*commands.Revoked, signing.KeyID, error) {
	o := x.open(ctx, p, envelope)
	if o.rejected == nil && o.in.Refusal != nil {
		o.rejected = o.in.Refusal
	}
	if o.rejected != nil {
		return nil, "", errors.Join(o.rejected, x.countRejected(ctx, p, []opening{o}))
	}
	last, ok := o.in.Body.(*commands.Revoked)
	if !ok {
		return nil, "", fmt.Errorf("%s is no last message", o.in.Header.Kind)
	}
	return last, o.in.Header.Kid, nil
}

// sealBeside signs what is said about a connection beside its link.
func (b *Board) sealBeside(c store.Connection, body commands.Body) ([]byte, error) {
	return b.sealOne(b.Keys.Identity, c, body)
}

// asks asks, while the link is refused, what has become of the connection. The hub
// answers one question of a connection at a time: two copies of one spoke must not ask
// in step.
func (x *Exchange) asks(ctx context.Context, d dialled) error {
	due, delay := time.Now(), askFirst
	for ctx.Err() == nil {
		changed := x.change()
		refused := errors.Is(d.State().Cause, transport.ErrRefused)
		if refused {
			if !time.Now().Before(due) {
				if err := x.ask(ctx, d); err != nil {
					x.log.DebugContext(ctx, "asking what has become of the connection", "err", err)
				}
				due, delay = time.Now().Add(wait.Spread(delay)), min(2*delay, askMost)
			}
		} else if d.State().Up {
			due, delay = time.Now(), askFirst
		}
		var again <-chan time.Time // while the link is up, its end is a change
		if !d.State().Up {
			again = time.After(max(time.Until(due), askFirst))
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again:
		}
	}
	return nil
}

// ask asks once, and follows the answer.
func (x *Exchange) ask(ctx context.Context, d dialled) error {
	answer, err := d.Ask(ctx, nil)
	if err != nil {
		return err
	}
	p := x.peer.Load()
	if o := x.open(ctx, p, answer); o.rejected == nil && o.in.Header.Kind == string(commands.RevokedKind) {
		return x.take(ctx, [][]byte{answer})
	}
	return x.heard(ctx, answer, 0)
}

// MayHaveToTell reports whether this side has ended a connection that it dialled, and
// the peer may not know it yet.
func MayHaveToTell(c store.Connection) bool {
	return c.State.Ended() && c.Authority == store.Obeys && c.By != byPeer && !c.EndTold && time.Since(c.Since) <= tellFor
}

// tellEnd begins to tell the peer that this side has ended a connection that it
// dialled, where the peer may not know it. Reconcile alone calls it.
func (b *Board) tellEnd(ctx context.Context, c store.Connection) {
	if !MayHaveToTell(c) || b.telling[c.ID] {
		return
	}
	b.telling[c.ID] = true
	ctx, done := context.WithDeadline(ctx, c.Since.Add(tellFor))
	b.tellers.Go(func() {
		defer done()
		link := &transport.Link{Address: c.LinkURL, Pins: []string{c.LinkPin}, ID: c.ID, Seed: b.Keys.LinkSeed}
		var failed streak.Failures
		for delay := askFirst; ctx.Err() == nil; delay = min(2*delay, askMost) {
			err := b.tellOnce(ctx, c, link)
			if err == nil {
				b.Log.InfoContext(ctx, "the peer knows that the connection has ended", "connection", c.Name)
				return
			}
			if failed.Note(err) {
				b.Log.WarnContext(ctx, "the peer has not taken that the connection has ended; it is told again and again for a week", "connection", c.Name, "err", err)
			}
			b.Log.DebugContext(ctx, "telling that a connection has ended", "connection", c.Name, "err", err)
			_ = wait.For(ctx, wait.Spread(delay))
		}
	})
}

// tellOnce returns nil when the peer has ended the connection, too.
func (b *Board) tellOnce(ctx context.Context, c store.Connection, link *transport.Link) error {
	last, err := b.sealBeside(c, lastMessage(c))
	if err != nil {
		return err
	}
	answer, err := link.Ask(ctx, last)
	if err != nil {
		return err
	}
	v, err := b.DB.Verifier(ctx, c)
	if err != nil {
		return err
	}
	o, err := v.Open(answer, time.Now())
	if err == nil && o.Header().Kind != string(commands.RevokedKind) {
		err = fmt.Errorf("the peer answers with %s", o.Header().Kind)
	}
	if err != nil {
		return err
	}
	return b.DB.NoteEndTold(ctx, c.ID)
}
