// Package spoke runs agents on this host for the hubs it obeys, as far as its
// own policy allows.
//
// A spoke trusts nobody else's check: it opens and judges every command itself,
// stores what it accepts in its own backlog, and works through that backlog
// whether or not the link is up. What it decides it tells in signed messages
// that wait in its outbox until the other database has them.
//
// Agents run under shims that outlive this process. After a crash or a restart
// the same agents are adopted again; an attempt is given up only when it is
// proven that nothing of it runs, and only then can the task be claimed again.
package spoke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/git"
	"github.com/spawnmesh/spawnmesh/internal/metrics"
	"github.com/spawnmesh/spawnmesh/internal/streak"
	"github.com/spawnmesh/spawnmesh/internal/tracing"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/isolation"
	"github.com/spawnmesh/spawnmesh/spoke/output"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/spoke/transfer"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

// Defaults of a spoke.
const (
	DefaultSlots = 4
	DefaultLease = commands.DefaultLease

	DefaultOverrunAfter    = 30 * time.Minute
	DefaultOverrunPatience = 10 * time.Minute
)

// batch is how many messages or tasks one transaction takes at most.
const batch = 256

// ErrNoHub says that this instance has not joined a hub.
var ErrNoHub = errors.New("this spoke has not joined a hub")

// A Spoke is one running spoke. Its exported fields are set before Open and not
// changed afterwards.
type Spoke struct {
	DB     *store.DB
	Keys   signing.Keys
	Dir    string        // data directory: attempts
	Policy *policy.Live  // what may run here; required
	Blobs  *blob.Store   // what travels beside messages; required
	Slots  int           // agents at a time; 0 means DefaultSlots
	Lease  time.Duration // of a claim; renewed at a third of it; 0 means DefaultLease
	Idle   time.Duration // how often it tries to claim tasks that stand ready and were not to be had; 0 means 2 s
	Drain  time.Duration // how long a stop waits for running agents; they go on without us after it
	Log    *slog.Logger  // required
	// HungAfter is how long an agent may show no sign before it counts as hung; 0 means [commands.HungAfter].
	HungAfter time.Duration
	// OverrunAfter is how long an agent may run beyond its estimate until that is warned of, and OverrunPatience how long from then
	// it may tell no progress until it is ended; 0 means DefaultOverrunAfter, DefaultOverrunPatience.
	OverrunAfter, OverrunPatience time.Duration
	// LeaveFor is how long an order is left that a fault of this host keeps from being judged; 0 means a minute.
	LeaveFor time.Duration
	// Hurry ends the wait for running agents when it is closed. It may be nil.
	Hurry <-chan struct{}
	// Counters count what happens; nil = nobody does.
	Counters *metrics.Counters
	// Tracer is told what orders go through; nil = nobody is.
	Tracer *tracing.Tracer

	backlog   *backlog.Backlog
	messages  *messages.Log
	board     *federation.Board
	output    *output.Sender
	kernel    supervisor.Kernel    // set by Run
	isolates  *isolation.Isolation // set by Run
	git       *git.Git             // nil where it cannot be used
	transfers *transfer.Transfers
	bootID    string
	live      live
	progress  *store.Group[backlog.Progress, bool]
	starts    unrecorded
	left      left
	work      wait.Signal // sent when tasks may have become claimable or a slot free
	written   wait.Signal // sent when something was written that may be due
	ready     readiness
	attempts  sync.WaitGroup
	working   atomic.Bool  // Run has begun
	stopping  atomic.Bool  // nothing more is claimed
	estimate  backlog.Look // what was due of attempts with an estimate; of the goroutine that sweeps
	swept     atomic.Int64 // when the last sweep ended that has not failed, in ms since 1970; 0 = none has
	full      bool         // the disk has less than its reserve, and that was logged; of the goroutine that claims
	stuck     stuck        // directories of old attempts that cannot be removed
	kept      stuck        // users of agents that are over
	untold    stuck        // orders that do not expire, as it cannot be told whether they had begun
	news      bell         // what agents wait for may have happened
	claims    streak.Failures
	unsure    bool // a claim failed, and what it took was not looked for yet; of the goroutine that claims
}

// owner is the name under which this spoke's worker claims.
func (s *Spoke) owner() string { return string(s.Keys.InstanceID()) }

// Open prepares the spoke, whose connections b is to serve.
func (s *Spoke) Open(b *federation.Board) {
	if s.Slots == 0 {
		s.Slots = DefaultSlots
	}
	if s.Lease == 0 {
		s.Lease = DefaultLease
	}
	s.OverrunAfter, s.OverrunPatience = cmp.Or(s.OverrunAfter, DefaultOverrunAfter), cmp.Or(s.OverrunPatience, DefaultOverrunPatience)
	s.left.most = s.LeaveFor
	s.work, s.written = wait.NewSignal(), wait.NewSignal()
	s.live = newLive(func() { s.output.Begun() })
	s.backlog, s.messages = Backlog(s.DB, s.Dir), messages.Open(s.DB)
	s.backlog.InputsMost = func() int64 { return s.Policy.Now().Limits.HeldInputs() }
	s.progress = store.NewGroup(s.record)
	s.board, s.output = b, output.New(s.backlog)
	s.output.Board, s.output.Dir, s.output.Cap, s.output.Live, s.output.Log = b, func(f backlog.Fence) string { return ControlDir(s.attemptDir(f)) }, s.outputCap, s.live.asked, s.Log
	s.output.Lives, s.output.Mends = s.live.has, s.left.patience
	s.output.Others = func(conn string, f backlog.Fence) (bool, error) { return anothers(s.attemptDir(f), conn) }
}

// Wanted reports whether there is a hub to work for, one that may have to be told
// that it was revoked, or an agent of such a one to be followed to its end.
func (s *Spoke) Wanted(ctx context.Context) (bool, error) {
	conns, err := s.DB.Connections(ctx)
	if err != nil || slices.ContainsFunc(conns, func(c store.Connection) bool {
		return c.Authority == store.Obeys && !c.State.Ended() || federation.MayHaveToTell(c)
	}) {
		return err == nil, err
	}
	open, err := s.backlog.OpenAttempts(ctx, s.owner(), nil, "")
	return len(open) > 0, err
}

// Run works until ctx ends. It then claims nothing more and waits up to Drain
// for running agents; orders to kill them are obeyed meanwhile. What still runs
// is left to its shims for the next Run to adopt. What has to go on during that
// wait, and until late ends, runs in g. The board has started; it serves the hubs
// once every attempt of an earlier process was taken over; then ready is called.
func (s *Spoke) Run(ctx, late context.Context, g *errgroup.Group, ready func()) error {
	if err := s.begin(ctx, late, g); err != nil {
		return err
	}
	s.Log.InfoContext(ctx, "spoke is working", "instance", s.Keys.InstanceID(), "slots", s.Slots, "kill_level", s.kernel.Level, "isolation", cmp.Or(s.isolation(), commands.IsolationUnmet))
	ready()
	err := s.claimLoop(ctx, late)
	s.stopping.Store(true)
	s.board.Beat() // no hub is to order anything more from this spoke
	s.drain()
	s.sayLast(late)
	return err
}

func (s *Spoke) begin(ctx, late context.Context, g *errgroup.Group) (err error) {
	if s.kernel, err = supervisor.Look(); err != nil {
		return fmt.Errorf("looking at how agents can be supervised here: %w", err)
	}
	if s.bootID, err = supervisor.BootID(); err != nil {
		return err
	}
	s.isolate(ctx)
	s.openTransfers(ctx)
	g.Go(func() error { return s.progress.Run(late) })
	g.Go(func() error { return s.renew(late) })
	g.Go(func() error { return s.output.Run(late) })
	if err := s.backlog.LookForRestore(ctx); err != nil {
		return err
	}
	if err := s.reconcile(ctx, late); err != nil {
		return err
	}
	if err := s.lookForAttempts(ctx); err != nil {
		return err
	}
	s.board.Serve(store.Obeys, federation.Role{Handlers: s.handlers(), Load: s.load, End: s.endWork, Ended: s.workEnded, Recalled: s.takeRecalled, MayStart: s.mayStart, Changed: s.transfers.Look,
		Lease: func() time.Duration { return s.Policy.Now().Lease() }})
	s.working.Store(true)
	s.board.OnChange(func(c store.Wrote) {
		s.news.tell()
		s.transfers.Look()
		if c != store.PerhapsLost { // the sweep looks by itself after a while, and says what is ready
			s.written.Send()
		}
		if c == store.ByAnother || s.backlog.Opened() {
			s.work.Send()
		}
	})
	g.Go(func() error { return s.transfers.Run(late) })
	g.Go(func() error { return s.tryLevels(ctx) })
	g.Go(func() error { return s.sweep(late) })
	g.Go(func() error { return s.pruneAgain(late) })
	return nil
}

// Close lets go of the agents that go on without this process. Everything that
// Run has started has ended.
func (s *Spoke) Close(ctx context.Context) {
	if s.working.Load() {
		s.Log.InfoContext(context.WithoutCancel(ctx), "spoke has stopped", "agents_left_running", s.live.count())
		s.live.letGo()
	}
	if s.isolates != nil {
		if err := s.isolates.Close(); err != nil {
			s.Log.WarnContext(context.WithoutCancel(ctx), "giving back the users of agents", "err", err)
		}
	}
}

// load is what a heartbeat tells a hub about the work that is done here: how many slots all hubs
// together have in use, which agents are its own, and what is not taken of it.
func (s *Spoke) load(conn string, g store.GrantTerms) commands.Heartbeat {
	rules, told := s.Policy.Now(), s.ready.forHubs()
	return commands.Heartbeat{Slots: s.Slots, Running: s.live.count(), Queued: told.Waiting[conn], Capabilities: rules.Offers(), Policy: rules.ID(),
		KillLevel: s.kernel.Level, Isolation: cmp.Or(s.isolation(), commands.IsolationUnmet), Stopping: s.stopping.Load(), StartsNone: s.startsNone(), LeaseMS: s.Lease.Milliseconds(), Declines: append(declines(g, rules, time.Now()), waits(told)...), Agents: s.live.beats(conn)}
}

// endWork ends, in the transaction that ends a connection, what its peer asked
// for and does not run. What runs loses its lease or, where the policy lets it
// finish, goes on to its end.
func (s *Spoke) endWork(ctx context.Context, tx *store.Tx, c store.Connection) error {
	return s.backlog.RevokeWork(ctx, tx, c.ID, s.Policy.Now().KillOnRevoke())
}

// workEnded ends the agents of a connection that have lost their leases to its end.
func (s *Spoke) workEnded(ctx context.Context, c store.Connection) {
	runs, err := s.backlog.RevokedRuns(ctx, c.ID)
	if err != nil {
		s.Log.ErrorContext(ctx, "looking for the agents of an ended connection; their leases end", "connection", c.Name, "err", err)
	}
	for _, k := range runs {
		s.live.kill(k)
	}
	if err := s.output.Forget(ctx, c.ID); err != nil {
		s.Log.WarnContext(ctx, "forgetting the output for an ended connection; the next start does", "connection", c.Name, "err", err)
	}
}
