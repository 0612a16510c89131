package federation

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/crash"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// slowRelay is how long a relay sleeps when nobody rings: for what went out and
// was not confirmed.
const slowRelay = 5 * time.Second

// relay carries the outbox to the peer while both sides agree on their numbers. A
// row stays open until the peer's database has confirmed it.
func (x *Exchange) relay(ctx context.Context) error {
	for {
		sent, err := x.relayOnce(ctx)
		if err != nil && ctx.Err() == nil {
			x.log.DebugContext(ctx, "relaying the outbox", "err", err)
			if !pause(ctx, 200*time.Millisecond) {
				return nil
			}
		}
		if sent > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-x.bell:
		case <-time.After(slowRelay):
		}
	}
}

// relayOnce returns how many messages were taken by the message server.
func (x *Exchange) relayOnce(ctx context.Context) (int, error) {
	if !x.agreed() {
		return 0, nil
	}
	out, err := x.cursor.Next(ctx)
	if err == nil && len(out) == 0 {
		out, err = x.cursor.Again(ctx)
	}
	if err != nil || len(out) == 0 {
		return 0, err
	}
	failed, err := x.publish(ctx, out)
	crash.Point("published messages")
	x.cursor.Back(failed)
	return len(out) - len(failed), err
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
	if err := x.Carry(ctx, list...); err != nil && ctx.Err() == nil {
		x.log.DebugContext(ctx, "sending answers again", "err", err)
	}
}

// confirm tells the peer what is stored here. A lost confirmation costs nothing:
// the next one, and every heartbeat, says the same and more.
func (x *Exchange) confirm(ctx context.Context, stored commands.Numbers) {
	if stored.Through == 0 || x.peer.Load().Authority == store.Obeys {
		return // whom we obey learns it from the answers and the heartbeats
	}
	if err := x.say(ctx, store.LaneCtl, &commands.Received{Numbers: stored}); err != nil && ctx.Err() == nil {
		x.log.DebugContext(ctx, "confirming messages", "err", err)
	}
}

// Seal signs a message that is kept in no outbox and meets no inbox. Repeating
// one is harmless, so its sequence number only has to be positive.
func (x *Exchange) Seal(body commands.Body, re *signing.Ref) (wire []byte, id string, err error) {
	raw, err := signing.EncodeBody(body)
	if err != nil {
		return nil, "", err
	}
	p, kind, now := x.peer.Load(), body.Kind(), time.Now()
	id = uuid.Must(uuid.NewV7()).String()
	s, err := x.board.Keys.Signing.Seal(commands.Types[kind], signing.Header{ID: id, Kind: string(kind), Iss: x.board.Keys.InstanceID(),
		Aud: p.Peer, Conn: p.ID, Epoch: p.Epoch, Seq: now.UnixMilli(), Iat: now.UnixMilli(),
		Exp: now.Add(commands.Types[kind].Lifetime()).UnixMilli(), Wsp: store.Workspace, Re: re}, raw)
	return s.Wire, id, err
}

// Carry hands messages that are not stored to the message server.
func (x *Exchange) Carry(ctx context.Context, list ...store.Outgoing) error {
	_, err := x.publish(ctx, list)
	return err
}

// say seals and carries one message that is not stored here.
func (x *Exchange) say(ctx context.Context, lane string, body commands.Body) error {
	wire, id, err := x.Seal(body, nil)
	if err != nil {
		return err
	}
	return x.Carry(ctx, store.Outgoing{ID: id, Conn: x.id, Lane: lane, Kind: string(body.Kind()), Wire: wire})
}
