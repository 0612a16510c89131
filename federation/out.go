package federation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/crash"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// slowRelay is the least that a relay sleeps when nothing wakes it: what went out and was
// not confirmed, or could not go out, is tried again so often at most.
const slowRelay = 5 * time.Second

// relay carries the outbox to the peer while both sides agree on their numbers. A
// message is open until the peer's database has confirmed it.
func (x *Exchange) relay(ctx context.Context) error {
	defer x.cursor.Close()
	for {
		changed := x.change()
		sent, err := x.relayOnce(ctx)
		if err != nil && ctx.Err() == nil {
			x.log.DebugContext(ctx, "relaying the outbox", "err", err)
			if wait.For(ctx, 200*time.Millisecond) != nil {
				return nil
			}
		}
		if sent == store.RelayBatch || sent > 0 && err != nil {
			continue // there may be more; for what is committed after a shorter batch was taken, Pending is sent
		}
		var due <-chan time.Time
		if at := x.cursor.Due(); !at.IsZero() && x.AgreedLink() != 0 { // an agreement is a change
			due = time.After(max(time.Until(at), slowRelay))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-x.cursor.Pending():
		case <-due:
		}
	}
}

// relayOnce returns how many messages were taken by the message server. One that it has not
// met before gets all that is open: what waited in the last one may have ended with it.
func (x *Exchange) relayOnce(ctx context.Context) (int, error) {
	if x.AgreedLink() == 0 {
		x.cursor.Forget()
		return 0, nil
	}
	if holder := x.way.holder(); holder != x.holder {
		x.holder = holder
		x.cursor.Restart()
	}
	again, err := x.cursor.Again(ctx) // first: a connection on which something new always waits would send nothing again
	if err == nil && len(again) > 0 {
		if resealed, failed := x.reseal(ctx, again); !resealed {
			_, err = x.publish(ctx, again) // what fails comes again by its turn
		} else {
			err = failed
		}
	}
	out, failed := x.cursor.Next(ctx)
	if failed != nil || len(out) == 0 {
		return 0, errors.Join(err, failed)
	}
	if resealed, failed := x.reseal(ctx, out); resealed {
		return store.RelayBatch, errors.Join(err, failed)
	}
	sent, failed := x.send(ctx, out)
	crash.Point("published messages")
	return sent, errors.Join(err, failed)
}

// reseal seals messages again that a clock which was ahead has sealed: they come from the cursor anew. It reports whether there were any.
func (x *Exchange) reseal(ctx context.Context, out []store.Outgoing) (bool, error) {
	if !slices.ContainsFunc(out, func(o store.Outgoing) bool { return o.Ahead }) {
		return false, nil
	}
	x.cursor.Reseal(out)
	return true, x.board.DB.SealAhead(ctx, x.id, out[0].Seq, out[len(out)-1].Seq)
}

// send returns how many of what is new were taken; all, where only a queue has no room for what starts work: the others go on.
func (x *Exchange) send(ctx context.Context, out []store.Outgoing) (int, error) {
	var full, failed []store.Outgoing
	var err error
	for i, e := range x.way.publish(ctx, out) {
		switch {
		case e == nil:
		case errors.Is(e, transport.ErrQuota) && out[i].Queue == commands.QueueRun:
			full = append(full, out[i])
		default:
			failed, err = append(failed, out[i]), e
		}
	}
	through := out[len(out)-1].Seq
	if len(failed) > 0 {
		through = failed[0].Seq - 1
	}
	x.cursor.Full(full, through)
	x.cursor.Back(failed)
	if err == nil && len(full) > 0 {
		return store.RelayBatch, nil
	}
	return len(out) - len(full) - len(failed), err
}

// publish sends out and returns what was not taken, with one of the reasons.
func (x *Exchange) publish(ctx context.Context, out []store.Outgoing) (failed []store.Outgoing, err error) {
	for i, e := range x.way.publish(ctx, out) {
		if e != nil {
			failed, err = append(failed, out[i]), e
		}
	}
	return failed, err
}

// again sends stored answers to messages that came again. If they are lost the
// messages come once more.
func (x *Exchange) again(ctx context.Context, list []store.Outgoing) {
	if len(list) == 0 {
		return
	}
	if _, err := x.publish(ctx, list); err != nil && ctx.Err() == nil {
		x.log.DebugContext(ctx, "sending answers again", "err", err)
	}
}

// confirmDelay is how long a confirmation waits for what comes meanwhile. Nobody waits for
// one: it only says that a message need not be sent again.
const confirmDelay = 100 * time.Millisecond

// confirms tells the peer what is stored here, some batches at a time.
func (x *Exchange) confirms(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-x.unconfirmed:
		}
		if wait.For(ctx, confirmDelay) != nil {
			return nil // the next heartbeat says it
		}
		if err := x.confirm(ctx); err != nil && ctx.Err() == nil {
			x.log.DebugContext(ctx, "confirming messages", "err", err)
		}
		crash.Point("confirmed messages")
	}
}

// confirm tells the peer what the database has stored now: it may have less than a moment ago,
// after a restore. A lost confirmation costs nothing: the next one, and every heartbeat, says
// the same and more.
func (x *Exchange) confirm(ctx context.Context) error {
	if x.losesKey() {
		return nil // heartbeats say it: it would refuse this
	}
	stored, err := x.board.DB.StoredOf(ctx, x.id)
	calls := x.calls.Swap(false) // should it be lost, the peer sends a heartbeat soon enough
	if err != nil || stored.Through == 0 && !calls {
		return err
	}
	refused, err := x.board.DB.RefusedOf(ctx, x.id)
	if err != nil {
		return err
	}
	return x.Send(ctx, x.ownQueue(), Note{Body: &commands.Received{Numbers: stored, Refused: refused, Beat: calls}})
}

// ownQueue is the one for what instances say to each other.
func (x *Exchange) ownQueue() string {
	if x.peer.Load().Authority == store.Obeys {
		return commands.QueueEvents
	}
	return commands.QueueControl
}

// A Note is a message that is in no outbox and in no inbox: its loss or its
// repetition must be harmless.
type Note struct {
	Body commands.Body
	Re   *signing.Ref // what it is about; nil where its type names nothing
}

// Send carries notes over one of the connection's queues. An error says that some
// of them may not have been taken by the message server.
func (x *Exchange) Send(ctx context.Context, queue string, notes ...Note) error {
	sealed, err := x.seal(notes)
	if err != nil {
		return err
	}
	list := make([]store.Outgoing, len(notes))
	for i, n := range notes {
		list[i] = store.Outgoing{ID: sealed[i].ID, Conn: x.id, Queue: queue, Kind: string(n.Body.Kind()), Envelope: sealed[i].Envelope}
	}
	_, err = x.publish(ctx, list)
	return err
}

// seal signs notes together, with the key that is in use for the peer. A heartbeat, which
// may need another one, is sealed by [Exchange.sealBeat].
func (x *Exchange) seal(notes []Note) ([]signing.Sealed, error) {
	p := x.peer.Load()
	signer, err := x.board.DB.SignerOf(p.signs)
	if err != nil {
		return nil, err
	}
	return x.board.seal(signer, p.Connection, notes)
}

// sealOne signs what is said at once, and alone.
func (b *Board) sealOne(signer *signing.Signer, c store.Connection, body commands.Body) ([]byte, error) {
	sealed, err := b.seal(signer, c, []Note{{Body: body}})
	if err != nil {
		return nil, err
	}
	return sealed[0].Envelope, nil
}

// seal signs notes together. Repeating one is harmless, so its sequence number only has
// to be positive.
func (b *Board) seal(signer *signing.Signer, c store.Connection, notes []Note) ([]signing.Sealed, error) {
	now, list := time.Now(), make([]signing.Unsealed, len(notes))
	for i, n := range notes {
		raw, err := commands.BodyToSend(n.Body)
		if err != nil {
			return nil, err
		}
		kind := n.Body.Kind()
		list[i] = signing.Unsealed{Type: kind.Type(), Body: raw, Header: signing.Header{ID: uuid.Must(uuid.NewV7()).String(), Kind: string(kind),
			Iss: b.Keys.InstanceID(), Aud: c.Peer, Conn: c.ID, Epoch: c.Epoch, Seq: now.UnixMilli(), Iat: now.UnixMilli(),
			Exp: now.Add(kind.Type().Lifetime()).UnixMilli(), Wsp: store.Workspace, Re: n.Re}}
	}
	return signer.SealAll(list)
}

// AgreedLink names the present link once both sides have agreed on their histories on
// it: a number that no other link of this connection has. It is 0 while nothing
// may go out.
func (x *Exchange) AgreedLink() int64 {
	link := x.way.link()
	x.mu.Lock()
	defer x.mu.Unlock()
	if link == 0 || x.history.link != link || !x.relays() {
		return 0
	}
	return link
}
