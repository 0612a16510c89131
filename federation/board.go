package federation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/metrics"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// DefaultInterval is the time between two heartbeats.
const DefaultInterval = 10 * time.Second

// A Board owns the connections that this process serves. Its exported fields are
// set before Start and not changed afterwards.
type Board struct {
	DB       *store.DB
	Keys     signing.Keys
	Log      *slog.Logger   // required
	Dir      string         // the data directory: what it says tells whether the database was restored
	Process  string         // who serves the connections: the same again after a restart
	Version  string         // of the program, for people
	Server   *transport.Hub // where peers dial in; nil where nobody does
	Rate     Rate           // of each peer
	Interval time.Duration  // of heartbeats; 0 means DefaultInterval
	Quiet    time.Duration  // how long nothing is looked at that nobody says has changed; 0 means DefaultQuiet
	HoldFor  time.Duration  // how long nothing is started over a new link while the peer's newest controls may be on their way; 0 means DefaultHoldFor
	StillFor time.Duration  // how long messages may wait while none is taken before their queue is said to stand still; 0 means 45 s
	// Counters count what happens; nil = nobody does.
	Counters *metrics.Counters

	checkpoint atomic.Pointer[store.Checkpoint] // of the audit, newest; nil while there is none

	incarnation string          // random, of this start of the instance
	restored    bool            // the database was, before this start
	final       map[string]bool // connections that have ended, as the data directory says; reconcile alone changes it
	wake        wait.Signal     // sent when the table has changed
	telling     map[string]bool // ended connections whose peers were told, or are being told; reconcile alone changes it
	tellers     sync.WaitGroup  // who tells them

	mu        sync.Mutex // guards the rest
	roles     map[store.Authority]*role
	exchanges map[string]*Exchange
	known     map[string]store.Connection // every connection, ended ones too
	heldBy    map[string]error            // who serves what this process does not
	applied   map[string]string           // what the message server was told of each peer
	asked     int64                       // how often somebody asked for the table to be followed
	followed  int64                       // the last of those that was served by a reading that began after it
	failed    map[string]error            // why connections could not be followed then
	moved     chan struct{}               // closed when the table was followed once more
	onChange  []func(store.Wrote)
}

func (b *Board) interval() time.Duration {
	if b.Interval == 0 {
		return DefaultInterval
	}
	return b.Interval
}

// Start reads the table, starts the message server where there is one, and
// completes what a crash interrupted: who is not active is not let in, and
// nothing of an ended connection is left.
func (b *Board) Start(ctx context.Context) error {
	b.wake, b.moved, b.telling = wait.NewSignal(), make(chan struct{}), map[string]bool{}
	b.exchanges, b.known, b.applied = map[string]*Exchange{}, map[string]store.Connection{}, map[string]string{}
	b.heldBy = map[string]error{}
	if err := b.beginIncarnation(ctx); err != nil {
		return err
	}
	if err := b.readEnded(); err != nil {
		return err
	}
	failed := map[string]error{}
	table, err := b.serve(ctx, failed)
	if err := errors.Join(err, joined(failed)); err != nil {
		return err
	}
	for _, p := range table {
		b.known[p.ID] = p.Connection // who asks before the first reconcile finds them
	}
	if b.Server == nil {
		return nil
	}
	b.Server.NewLink = b.noteLink
	for _, p := range table {
		if p.Authority != store.Commands {
			continue
		}
		if err := b.letAsk(p.Connection); err != nil {
			return err
		}
		if p.State == store.Active {
			if err := b.admit(ctx, p.Connection); err != nil {
				return err
			}
		}
	}
	if err := b.Server.Start(ctx); err != nil {
		return fmt.Errorf("starting the message server: %w", err)
	}
	return b.sayLost(ctx)
}

// sayLost logs and audits that the message server has found messages which it did not read.
// Nothing is lost with them: both sides send what the other one has not confirmed.
func (b *Board) sayLost(ctx context.Context) error {
	why := b.Server.Lost()
	if why == "" {
		return nil
	}
	b.Log.WarnContext(ctx, "messages were found where the message server keeps none; they were removed, and what is not confirmed is sent again", "code", commands.StreamLoss, "what", why)
	return b.DB.Audit(ctx, store.AuditRow{Actor: "self", Action: "stream.loss", Code: string(commands.StreamLoss), Why: why})
}

// Run serves the connections until ctx ends, and returns after every exchange
// has ended. Start comes first.
func (b *Board) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.reconcileAll(ctx) })
	g.Go(func() error { return b.saveBeats(ctx) })
	g.Go(func() error { return b.watch(ctx) })
	g.Go(func() error { return b.watchMemory(ctx) })
	if b.Server != nil {
		g.Go(func() error { return b.serveBeats(ctx) })
		g.Go(func() error { return b.serveQuestions(ctx) })
		g.Go(func() error { return b.serveBlobs(ctx) })
	}
	return g.Wait()
}

// Close stops the message server. Run has returned before.
func (b *Board) Close() {
	if b.Server != nil {
		b.Server.Close()
	}
}

// Exchange returns the exchange of a connection that is served here, or nil.
func (b *Board) Exchange(conn string) *Exchange {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exchanges[conn]
}

// Exchanges returns all exchanges of this process, the oldest connection first.
func (b *Board) Exchanges() []*Exchange {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := slices.Collect(maps.Values(b.exchanges))
	slices.SortFunc(list, func(x, y *Exchange) int { return x.peer.Load().CreatedAt.Compare(y.peer.Load().CreatedAt) })
	return list
}

// Reread has the table read again: who calls it has changed the grant of a connection.
func (b *Board) Reread() { b.changed() }

// changed tells the board to read the table again.
func (b *Board) changed() { b.wake.Send() }

// Followed is closed when the table of connections was followed once more.
func (b *Board) Followed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.moved
}

// Await waits until what was committed about conns before is in force here; without conns,
// about all connections.
func (b *Board) Await(ctx context.Context, conns ...string) error {
	b.mu.Lock()
	b.asked++
	ticket := b.asked
	b.mu.Unlock()
	b.changed()
	for {
		b.mu.Lock()
		followed, moved, failed := b.followed, b.moved, joined(b.failed, conns...)
		b.mu.Unlock()
		if followed >= ticket && failed == nil {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the change of a connection to take effect: %w", errors.Join(context.Cause(ctx), failed))
		}
	}
}

// joined is what failed with conns, or with any connection where none is named.
func joined(failed map[string]error, conns ...string) error {
	if len(conns) == 0 {
		conns = slices.Sorted(maps.Keys(failed))
	}
	var list []error
	for _, conn := range conns {
		list = append(list, failed[conn])
	}
	return errors.Join(list...)
}
