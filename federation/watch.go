package federation

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
)

// An idle instance sleeps until something is written to its database, by whichever
// process, and looks by itself only now and then.

// DefaultQuiet is how long an instance looks at nothing in its database that nobody says
// has changed: a notification may be lost.
const DefaultQuiet = 30 * time.Second

// QuietFor is Quiet, or its default.
func (b *Board) QuietFor() time.Duration { return cmp.Or(b.Quiet, DefaultQuiet) }

// OnChange has fn called when the database may have changed. fn must not block.
func (b *Board) OnChange(fn func(store.Wrote)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onChange = append(b.onChange, fn)
}

// watch follows what is written to the database until ctx ends. What this process sends is
// handed to the cursors.
func (b *Board) watch(ctx context.Context) error {
	return b.DB.Watch(ctx, store.Watcher{
		Changed: func(c store.Wrote) {
			if c != store.ByThis {
				b.lookForMessages(ctx)
			}
			if c == store.ByAnother { // else the table is read soon enough
				b.changed()
			}
			b.mu.Lock()
			list := b.onChange
			b.mu.Unlock()
			for _, fn := range list {
				fn(c)
			}
		},
		Every: b.QuietFor(),
	})
}

// lookForMessages has exchanges send what other processes put into the outbox.
func (b *Board) lookForMessages(ctx context.Context) {
	last, err := b.DB.LastNumbers(ctx)
	if err != nil {
		b.Log.DebugContext(ctx, "looking for new messages", "err", err)
		return
	}
	for conn, n := range last {
		if x := b.Exchange(conn); x != nil {
			x.cursor.Reread(n)
		}
	}
}

// memoryPeriod is how often what is known in memory only is looked at.
const memoryPeriod = 2 * time.Second

// watchMemory looks at what nobody tells of: leases that end, and links that went.
func (b *Board) watchMemory(ctx context.Context) error {
	for wait.For(ctx, memoryPeriod) == nil {
		b.endLeases(ctx)
		if slices.ContainsFunc(b.Exchanges(), func(x *Exchange) bool {
			return x.peer.Load().Authority == store.Commands && x.linkedLogged.Load() != (x.way.link() != 0)
		}) {
			b.changed()
		}
	}
	return nil
}
