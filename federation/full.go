package federation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// noteFull notes whether messages of a batch were left to the peer because the inbox is full.
// The next heartbeat tells the peer, which sends them again when there is room.
func (x *Exchange) noteFull(ctx context.Context, batch []*store.Incoming) error {
	if !slices.ContainsFunc(batch, (*store.Incoming).Overflows) || x.full.Load() != nil {
		return nil
	}
	since, err := x.board.DB.NoteFull(ctx, x.id)
	if err != nil {
		return err
	}
	x.isFull(ctx, since)
	return nil
}

// isFull says so once.
func (x *Exchange) isFull(ctx context.Context, since time.Time) {
	if !x.full.CompareAndSwap(nil, &since) {
		return
	}
	x.beatSoon()
	x.log.WarnContext(ctx, "the inbox is full: no more messages of the peer are kept until there is room; they wait on its side", "code", commands.Full, "since", since,
		"next", "start this instance with a larger --inbox-per-peer or --inbox-total; or give up the signed bytes of old messages: "+x.board.line("retention", "envelopes", "7d"))
}

// lookForRoom looks whether there is room again for messages of peers of which none were
// kept, also by a process before this one.
func (b *Board) lookForRoom(ctx context.Context) error {
	if err := b.DB.MeasureInbox(ctx); err != nil {
		return err
	}
	list, err := b.DB.FullInboxes(ctx)
	for _, f := range list {
		if x := b.Exchange(f.Conn); x != nil && f.Room {
			err = errors.Join(err, x.hasRoom(ctx))
		} else if x != nil {
			x.isFull(ctx, f.Since)
		}
	}
	return err
}

func (x *Exchange) hasRoom(ctx context.Context) error {
	if err := x.board.DB.NoteRoom(ctx, x.id); err != nil {
		return err
	}
	x.full.Store(nil)
	x.beatSoon()
	x.log.InfoContext(ctx, "there is room for messages of the peer again")
	return nil
}

// beatSoon has a heartbeat sent early, where this side dials.
func (x *Exchange) beatSoon() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hurry.Store(true)
	x.broadcast()
}
