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
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Defaults of a spoke.
const (
	DefaultSlots    = 4
	DefaultLease    = 60 * time.Second
	DefaultInterval = 10 * time.Second
)

// batch is how many messages or tasks one transaction takes at most.
const batch = 256

// ErrNoHub says that this instance has not joined a hub.
var ErrNoHub = errors.New("this spoke has not joined a hub; run: spawnmesh spoke join --token-file FILE")

// A Spoke is one running spoke. Its exported fields are set before Run and not
// changed afterwards.
type Spoke struct {
	DB       *store.DB
	Keys     signing.Keys
	Dir      string        // data directory: attempts, message store and control socket
	Policy   *policy.Live  // what may run here; required
	Slots    int           // agents at a time; 0 means DefaultSlots
	Lease    time.Duration // of a claim; renewed at a third of it; 0 means DefaultLease
	Interval time.Duration // of heartbeats; 0 means DefaultInterval
	Drain    time.Duration // how long a stop waits for running agents; they go on without us after it
	Version  string        // of the program, for people
	Log      *slog.Logger  // required
	// Ready is called once the spoke works through its backlog.
	Ready func()

	backlog  *backlog.Backlog
	hub      hubConn
	link     *transport.Link
	unlink   context.CancelFunc // ends the link for good
	node     *transport.Local
	level    string
	bootID   string
	live     live
	progress *store.Group[backlog.Progress, bool]
	cursor   *store.Cursor
	outbox   chan struct{} // rung after a commit that filled the outbox
	linkUp   chan struct{} // rung when the link came up
	work     chan struct{} // rung when tasks may have become claimable or a slot free
	attempts sync.WaitGroup
}

// hubConn is the connection to the hub with what it takes to open its messages.
type hubConn struct {
	mu       sync.RWMutex // guards the rest
	conn     store.Connection
	verifier signing.Verifier
}

func (h *hubConn) get() (store.Connection, signing.Verifier) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.conn, h.verifier
}

// Owner is the name under which this spoke's worker claims.
func (s *Spoke) owner() string { return string(s.Keys.InstanceID()) }

// Run works until ctx ends. It then claims nothing more, waits up to Drain for
// running agents, and leaves the rest to their shims for the next Run to adopt.
func (s *Spoke) Run(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	defer s.node.Close()
	socket, err := control.Listen(ctx, s.Dir)
	if err != nil {
		return err
	}
	// Attempts write their ends through the group, so it ends last.
	late, stopLate := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLate()
	writers, _ := errgroup.WithContext(late)
	writers.Go(func() error { return s.progress.Run(late) })
	writers.Go(func() error { return s.renew(late) })

	if err := s.adoptAll(ctx, late); err != nil {
		stopLate()
		return errors.Join(err, writers.Wait(), socket.Close())
	}
	g, ctx := errgroup.WithContext(ctx)
	linked, unlink := context.WithCancel(ctx)
	defer unlink()
	s.unlink = unlink
	g.Go(func() error { return s.link.Run(linked) })
	g.Go(func() error {
		return s.link.Commands(ctx, transport.LaneRun, transport.Most{Messages: batch}, s.intake)
	})
	g.Go(func() error {
		return s.link.Commands(ctx, transport.LaneControl, transport.Most{Messages: batch}, s.intake)
	})
	g.Go(func() error { return s.relay(ctx) })
	g.Go(func() error { return s.claimLoop(ctx, late) })
	g.Go(func() error { return s.sweep(ctx) })
	g.Go(func() error { return s.beats(ctx) })
	g.Go(func() error { return s.pumpLogs(ctx) })
	g.Go(func() error { return s.node.Forward(ctx, transport.Most{Messages: 64}, s.forwardLogs) })
	g.Go(func() error { return control.Serve(ctx, socket, s.control(), s.Log) })
	s.Log.InfoContext(ctx, "spoke is working", "instance", s.Keys.InstanceID(), "slots", s.Slots, "kill_level", s.level)
	if s.Ready != nil {
		s.Ready()
	}
	err = g.Wait()
	s.drain()
	stopLate()
	err = errors.Join(err, writers.Wait())
	s.Log.InfoContext(context.WithoutCancel(ctx), "spoke has stopped", "agents_left_running", s.live.count())
	s.live.letGo()
	return err
}

func (s *Spoke) start(ctx context.Context) (err error) {
	if s.Slots == 0 {
		s.Slots = DefaultSlots
	}
	if s.Lease == 0 {
		s.Lease = DefaultLease
	}
	if s.Interval == 0 {
		s.Interval = DefaultInterval
	}
	s.outbox, s.work, s.linkUp = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	s.live.byTask = map[string]*attempt{}
	s.backlog = backlog.Open(s.DB, Answer)
	s.progress, s.cursor = store.NewGroup(s.backlog.Record), s.DB.NewCursor()
	if s.level, err = supervisor.Level(); err != nil {
		return fmt.Errorf("looking at how agents can be supervised here: %w", err)
	}
	if s.bootID, err = bootID(); err != nil {
		return err
	}
	if err := s.loadHub(ctx); err != nil {
		return err
	}
	c, _ := s.hub.get()
	s.link = &transport.Link{Address: c.LinkURL, Pins: []string{c.LinkPin}, ID: string(s.Keys.InstanceID()), Seed: s.Keys.LinkSeed,
		Log: s.Log, Changed: s.linkChanged}
	s.node = &transport.Local{ID: string(s.Keys.InstanceID()), Dir: filepath.Join(s.Dir, "nats"), Log: s.Log}
	if err := s.node.Start(ctx); err != nil {
		return fmt.Errorf("starting the local message server: %w", err)
	}
	return nil
}

// loadHub reads the connection that this spoke obeys.
func (s *Spoke) loadHub(ctx context.Context) error {
	conns, err := s.DB.Connections(ctx)
	if err != nil {
		return err
	}
	for _, c := range conns {
		if c.Authority != store.Obeys || c.State == store.Revoked || c.State == store.Rejected {
			continue
		}
		v, err := s.DB.Verifier(ctx, c)
		if err != nil {
			return err
		}
		s.hub.mu.Lock()
		s.hub.conn, s.hub.verifier = c, v
		s.hub.mu.Unlock()
		return nil
	}
	return ErrNoHub
}

// linkChanged tells the operator and wakes the relay: what could not be sent
// while the link was down is due.
func (s *Spoke) linkChanged(st transport.LinkState) {
	if st.Up {
		s.Log.Info("link is up")
		ring(s.outbox)
		ring(s.linkUp)
		return
	}
	s.Log.Warn("link is down", "why", st.Cause)
}

// drain waits for running agents, but not longer than Drain.
func (s *Spoke) drain() {
	ended := make(chan struct{})
	go func() {
		s.attempts.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(s.Drain):
		s.live.abandon()
		<-ended
	}
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
