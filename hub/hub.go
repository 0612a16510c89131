// Package hub takes orders from operators, sends them signed to the spokes they
// are for, and keeps what the spokes' signed answers say.
//
// An order that was answered is stored: it reaches its spoke whatever happens to
// this process, the link or the message server, and its end comes back. The hub
// can ask, never compel: nothing here writes to a spoke's backlog. The database
// is the record; what is kept in memory (connections, last heartbeats, waiting
// callers) can be lost at any moment.
package hub

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/hub/output"
	"github.com/spawnmesh/spawnmesh/hub/transfer"
	"github.com/spawnmesh/spawnmesh/hub/webhook"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/metrics"
	"github.com/spawnmesh/spawnmesh/internal/tracing"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Hub is one running hub. Its exported fields are set before Open and not
// changed afterwards.
type Hub struct {
	DB        *store.DB
	Keys      signing.Keys
	Dir       string        // data directory: message store and output
	Name      string        // what this hub calls itself towards spokes
	Listen    string        // host:port of the link; port 0 picks one
	Advertise string        // host:port that join tokens name; default: where it listens
	Isolation string        // what every agent is to be confined by, or more, one of commands.IsolationLevels; "" = what its order demands
	Output    output.Bounds // of what is kept of agents' output
	MaxBlob   int64         // how many bytes an input may have; 0 means DefaultMaxBlob
	Webhooks  webhook.Sender
	HungAfter time.Duration // how long an agent may show no sign before it counts as hung; 0 means [commands.HungAfter]
	Log       *slog.Logger  // required
	// Counters count what happens; nil = nobody does.
	Counters *metrics.Counters
	// Tracer is told what orders go through; nil = nobody is.
	Tracer *tracing.Tracer

	board    *federation.Board
	server   *transport.Hub
	output   *output.Store
	blobs    *blob.Store
	desk     *transfer.Desk
	era      atomic.Int64 // of the database, when the hub runs
	watch    watchers
	lacking  lacking
	refusers refusers
	schedule wait.Signal // sent when a schedule was changed
	orders   *store.Group[store.SpawnOrder, store.Ordered]
	reads    *store.Group[string, store.Mirror] // of those who wait for a task
	join     joins
	pin      string
}

// Open prepares the hub, and gives b its message server and what it is for spokes.
// Nobody reaches it before b has started.
func (h *Hub) Open(b *federation.Board) error {
	cert, err := h.certificate()
	if err != nil {
		return err
	}
	if err := h.openBlobs(filepath.Join(h.Dir, "blobs")); err != nil {
		return err
	}
	h.pin = transport.Pin(cert)
	h.join.start()
	h.lacking.news, h.schedule = wait.NewSignal(), wait.NewSignal()
	h.watch.byTask = map[string]map[wait.Signal]bool{}
	h.orders = store.NewGroup(h.orderAll)
	h.reads = store.NewGroup(h.readAll)
	w := &h.Webhooks
	w.DB, w.Secret, w.Log, w.Counters = h.DB, h.Keys.LinkSeed, h.Log, h.Counters
	w.Open()
	h.output = &output.Store{DB: h.DB, Dir: filepath.Join(h.Dir, "logs"), Bounds: h.Output, Log: h.Log}
	h.server = &transport.Hub{Listen: h.Listen, Dir: filepath.Join(h.Dir, "nats"), Certificate: cert, Log: h.Log,
		JoinUser: h.mayJoin, JoinFull: h.joinFull}
	h.board, b.Server = b, h.server
	h.desk = &transfer.Desk{Blobs: h.blobs, Rights: transfer.Rows{DB: h.DB, Blobs: h.blobs, Most: DefaultMaxWork}, Log: h.Log}
	b.Serve(store.Commands, federation.Role{Handlers: h.handlers(), End: h.endWork, Ended: h.workEnded, Recalled: h.takeRecalled, Blobs: h.desk.Handle, Holds: h.holds})
	return nil
}

// LinkAddress is where spokes dial, host:port, once the board has started.
func (h *Hub) LinkAddress() string { return h.server.Addr() }

// Run serves until ctx ends, and returns after everything it started has ended.
// Its board has started, and runs meanwhile.
func (h *Hub) Run(ctx context.Context) error {
	defer h.desk.Close()
	era, err := h.DB.Era(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	h.era.Store(max(1, era))
	if err := h.output.NoteBounds(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	for _, s := range h.board.Statuses(store.Commands) {
		if !s.State.Ended() {
			h.lacking.add(s.ID, time.Now())
		}
	}
	h.board.OnChange(func(c store.Wrote) {
		if c != store.ByThis { // another process may have moved a task that somebody waits for
			h.watch.notifyAll()
			h.schedule.Send()
			h.Webhooks.Changed()
		}
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.orders.Run(ctx) })
	g.Go(func() error { return h.reads.Run(ctx) })
	g.Go(func() error { return h.server.ServeJoin(ctx, h.answerJoin) })
	g.Go(func() error { return h.join.refusals.Write(ctx, h.DB, h.Log) })
	g.Go(func() error { return h.sweep(ctx) })
	g.Go(func() error { return h.askForAllOutput(ctx) })
	g.Go(func() error { return h.endAllUnanswered(ctx) })
	g.Go(func() error { return h.fireSchedules(ctx) })
	g.Go(func() error { return h.Webhooks.Run(ctx) })
	h.Log.InfoContext(ctx, "hub is serving", "link", h.LinkAddress(), "instance", h.Keys.InstanceID())
	if _, _, err := h.reach(); err != nil {
		h.Log.WarnContext(ctx, "nobody can be invited to this hub", "why", err, "next", "start it with --advertise HOST:PORT, where HOST is how spokes reach it")
	}
	return g.Wait()
}

// endWork ends what was ordered over a connection that ends.
func (h *Hub) endWork(ctx context.Context, tx *store.Tx, c store.Connection) error {
	return store.EndMirrors(ctx, tx, c.ID)
}

// takeRecalled takes over the orders that this hub no longer knows.
func (h *Hub) takeRecalled(ctx context.Context, tx *store.Tx, c store.Connection, r *commands.Recalled) (strange []error, err error) {
	if strange, err = tx.Adopt(ctx, c, r.From, r.Orders); err != nil || !r.Done {
		return strange, err
	}
	h.lacking.restored(c.ID)
	return strange, nil
}

// workEnded wakes whoever waits for an agent: its connection may have ended.
func (h *Hub) workEnded(_ context.Context, c store.Connection) {
	h.refusers.forget(c.ID)
	h.watch.notifyAll()
}

// certificate derives the TLS key from the link key, so that one key file keeps
// both. They are different keys: neither gives away the other.
func (h *Hub) certificate() (cert tls.Certificate, err error) {
	seed, err := hkdf.Key(sha256.New, h.Keys.LinkSeed, nil, "spawnmesh tls v1", ed25519.SeedSize)
	if err != nil {
		return cert, fmt.Errorf("deriving the TLS key: %w", err)
	}
	return transport.Certificate(ed25519.NewKeyFromSeed(seed))
}

// sweep prunes old rows and output, and closes what agents have asked that have ended, now and then.
func (h *Hub) sweep(ctx context.Context) error {
	var prune, closed time.Time
	return every(ctx, time.Minute, func() {
		if !time.Now().Before(prune) {
			removed, err := h.DB.Prune(ctx, time.Minute/2, time.Minute/2)
			if err != nil && ctx.Err() == nil {
				h.Log.ErrorContext(ctx, "pruning old rows", "err", err)
			}
			prune = time.Now().Add(store.PruneAgain(removed, err))
		}
		if err := h.output.Sweep(ctx); err != nil && ctx.Err() == nil {
			h.Log.ErrorContext(ctx, "dropping old output", "err", err)
		}
		_, looked, err := h.DB.CloseInquiries(ctx, closed)
		if err != nil && ctx.Err() == nil {
			h.Log.ErrorContext(ctx, "closing questions of agents that have ended", "err", err)
		}
		if err == nil {
			closed = looked
		}
	})
}

// endPeriod is how often the hub looks at least for orders that nobody will answer. It is
// shorter than [signing.Skew], which every order has: so none ends unseen before it.
const endPeriod = 30 * time.Second

// endAllUnanswered ends each when its time has come.
func (h *Hub) endAllUnanswered(ctx context.Context) error {
	for ctx.Err() == nil {
		next, err := h.DB.NextUnanswered(ctx, endPeriod)
		if err != nil && ctx.Err() == nil {
			h.Log.ErrorContext(ctx, "ending unanswered orders", "err", err)
		}
		if err == nil && next <= 0 {
			h.endUnanswered(ctx)
		}
		_ = wait.For(ctx, max(next, time.Second)) // others may hold what is left
	}
	return nil
}

// endUnanswered ends orders that nobody will answer in bounded batches, and wakes who waits for them.
func (h *Hub) endUnanswered(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := h.DB.EndUnanswered(ctx)
		if err != nil && ctx.Err() == nil {
			h.Log.ErrorContext(ctx, "ending unanswered orders", "err", err)
		}
		tasks := make([]string, len(list))
		for i, o := range list {
			tasks[i] = o.Task
		}
		h.watch.notify(tasks)
		if err == nil {
			h.sayUnanswered(ctx, list)
		}
		if len(list) < store.EndBatch {
			return
		}
	}
}

// every calls fn now and then each period until ctx ends.
func every(ctx context.Context, period time.Duration, fn func()) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		fn()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
