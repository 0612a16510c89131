package federation

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
)

// saveBeats writes the newest beats to the database every few seconds, one row
// per connection, whatever their number in between, and what else was counted.
func (b *Board) saveBeats(ctx context.Context) error {
	for wait.For(ctx, 5*time.Second) == nil {
		if err := b.saveUnsaved(ctx); err != nil && ctx.Err() == nil {
			b.Log.WarnContext(ctx, "saving heartbeats", "err", err)
		}
		if err := b.lookForRoom(ctx); err != nil && ctx.Err() == nil {
			b.Log.WarnContext(ctx, "looking whether there is room for messages", "err", err)
		}
		if err := b.auditRefusals(ctx); err != nil && ctx.Err() == nil {
			b.Log.WarnContext(ctx, "auditing what was refused", "err", err)
		}
	}
	return nil
}

// saveUnsaved writes the newest beats that are not in the database. What an error kept from it is tried again with the next;
// what the database refuses of one peer for ever is not, and is said once until one is saved.
func (b *Board) saveUnsaved(ctx context.Context) error {
	exchanges := b.Exchanges()
	var list []store.Beat
	for _, x := range exchanges {
		if beat, ok := x.unsavedBeat(); ok {
			list = append(list, beat)
		}
	}
	refused, err := b.DB.SaveBeats(ctx, list)
	for _, beat := range list {
		i := slices.IndexFunc(exchanges, func(x *Exchange) bool { return x.id == beat.Conn })
		exchanges[i].savedBeat(ctx, beat, err, refused[beat.Conn])
	}
	return err
}

// unsavedBeat returns the newest beat where it is not in the database.
func (x *Exchange) unsavedBeat() (store.Beat, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.unsaved {
		return store.Beat{}, false
	}
	beat := *x.beat
	beat.Age = time.Since(beat.At)
	return beat, true
}

// savedBeat notes what became of a beat: it is saved, is to be tried again after err, or was refused for ever.
func (x *Exchange) savedBeat(ctx context.Context, beat store.Beat, err, refused error) {
	x.mu.Lock()
	if x.beat.At.Equal(beat.At) && (refused != nil || err == nil) { // else a newer one has come
		x.unsaved = false
	}
	known := x.unsavable
	x.unsavable = refused != nil || known && err != nil
	x.mu.Unlock()
	if refused != nil && !known {
		x.log.WarnContext(ctx, "the database refuses the last heartbeat of the peer; it is kept in memory only", "err", refused)
	}
}
