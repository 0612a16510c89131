package federation

import (
	"context"
	"errors"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// noteFull notes whether messages of a batch were left to the peer because the inbox is full.
// The next heartbeat tells the peer, which sends them again when there is room.
func (x *Exchange) noteFull(ctx context.Context, p *Peer, batch []*store.Incoming) error {
	if !slices.ContainsFunc(batch, (*store.Incoming).Overflows) || x.full.Swap(true) {
		return nil
	}
	x.beatSoon()
	x.log.WarnContext(ctx, "the inbox is full: no more messages of the peer are kept until older ones are removed; they wait on its side", "code", commands.Full,
		"next", x.board.line("retention", "inbox", "2h"))
	return x.board.DB.Audit(ctx, store.AuditRow{Actor: "self", Action: "connection.full", Object: p.Name, Conn: p.ID, Code: string(commands.Full),
		Why: "no more messages of the peer are kept here until older ones are removed; they wait on its side"})
}

// lookForRoom looks whether there is room again for messages of peers that were told that
// there is none.
func (b *Board) lookForRoom(ctx context.Context) error {
	err := b.DB.MeasureInbox(ctx)
	for _, x := range b.Exchanges() {
		if x.full.Load() {
			err = errors.Join(err, x.lookForRoom(ctx))
		}
	}
	return err
}

func (x *Exchange) lookForRoom(ctx context.Context) error {
	room, err := x.board.DB.InboxRoom(ctx, x.id)
	if err != nil || !room {
		return err
	}
	x.full.Store(false)
	x.beatSoon()
	x.log.InfoContext(ctx, "there is room for messages of the peer again")
	return x.board.DB.Audit(ctx, store.AuditRow{Actor: "self", Action: "connection.room", Object: x.peer.Load().Name, Conn: x.id, Why: "messages of the peer are kept again"})
}

// beatSoon has a heartbeat sent early, where this side dials.
func (x *Exchange) beatSoon() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.early.Store(true)
	x.broadcast()
}
