// Package node runs an instance as what it is: a hub, a spoke, or both in one
// process, with one board of connections and one control socket.
//
// An instance with both roles commands its spokes and obeys its hubs. They share
// keys, database and data directory, and nothing else: a connection belongs to one
// of the roles by its authority, neither role sees messages of the other's peers,
// and what a hub orders is never passed on to a spoke.
package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/feed"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/internal/listener"
	"github.com/spawnmesh/spawnmesh/internal/metrics"
	"github.com/spawnmesh/spawnmesh/internal/tracing"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
)

// DefaultInterval is the time between two heartbeats.
const DefaultInterval = federation.DefaultInterval

// A Rate bounds what one peer may send.
type Rate = federation.Rate

// A Node is an opened instance that is to run. One of Hub and Spoke is set, or
// both; their fields that are the instance's are filled in by Run.
type Node struct {
	Instance *instance.Instance
	Version  string        // of the program, for people
	Interval time.Duration // of heartbeats; 0 means DefaultInterval
	Quiet    time.Duration // how long nothing is looked at that nobody says has changed; 0 means the default
	HoldFor  time.Duration // how long a spoke waits over a new link for what its hub has sent before it starts anything; 0 means the default
	StillFor time.Duration // how long messages may wait while none is taken before that is a problem; 0 means the default
	Rate     Rate          // of each peer; what is 0 is the default
	// HungAfter is how long an agent may show no sign before it counts as hung; 0 means [commands.HungAfter].
	HungAfter time.Duration
	Log       *slog.Logger    // required
	Tracer    *tracing.Tracer // nil = nobody is told
	Hub       *hub.Hub
	// Spoke without Hub wants a hub that was joined. With Hub, it begins to work when
	// there is one, be it later.
	Spoke *spoke.Spoke
	// API serves a hub's API to other programs. It may be nil.
	API *listener.Listener
	// Ready is called once every role works that has work, with the address of the
	// hub's link.
	Ready func(link string)
	// Working is called when the spoke works. Both may be nil.
	Working func()
	// Hurry ends what a stop waits for when it is closed. It may be nil.
	Hurry <-chan struct{}

	board   *federation.Board
	blobs   *blob.Store
	feed    *feed.Feed
	notary  *notary
	metrics *metrics.Registry
	ready   func() // what follows when every role works that has work; once
}

// seesProcesses refuses to start where everybody would be taken for an agent.
func seesProcesses() error {
	err := supervisor.SeesProcesses()
	if err == nil {
		return nil
	}
	r := commands.Refuse(commands.NotReady, "an instance tells agents from people by /proc, and does not see there what it was started by").
		Hinting("mount /proc, and let this user see the processes of others: gid= where it is mounted with hidepid=")
	r.Err = err
	return r
}

// Run works until ctx ends. A spoke then drains while everything else goes on; the
// links end last. Run returns after everything that it started has ended.
func (n *Node) Run(ctx context.Context) error {
	if err := seesProcesses(); err != nil {
		return err
	}
	in := n.Instance
	n.board = &federation.Board{DB: in.DB, Keys: in.Keys, Log: n.Log, Dir: in.Dir, Process: "instance:" + in.Dir, Version: n.Version, Interval: n.Interval, Quiet: n.Quiet, HoldFor: n.HoldFor, StillFor: n.StillFor, Rate: n.Rate}
	n.metrics = n.newMetrics()
	n.board.Counters = n.metrics.Counters
	n.feed = feed.New(in.DB, n.Log, eventText)
	n.board.OnChange(n.feed.Changed)
	n.notary = &notary{news: wait.NewSignal()}
	n.board.OnChange(n.notary.changed)
	if err := n.open(ctx); err != nil {
		return err
	}
	if err := n.board.Start(ctx); err != nil {
		return err
	}
	defer n.board.Close() // where nothing has been served
	socket, err := control.Listen(ctx, in.Dir)
	if err != nil {
		return err
	}
	defer socket.Close() // where nothing has been served
	if n.API != nil {
		defer n.API.Close() // where nothing has been served
	}
	late, stopLate := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLate()
	serving, late := errgroup.WithContext(late)
	serving.Go(func() error { return n.board.Run(late) })
	serving.Go(func() error { return n.feed.Run(late) })
	serving.Go(func() error { return n.signAudit(late) })
	serving.Go(func() error { return n.watchClock(late) })
	serving.Go(func() error { return n.forgetBlobs(late, n.blobs) })
	n.ready = sync.OnceFunc(func() {
		serving.Go(func() error { return control.Serve(late, socket, n.routes(), supervisor.Inside, n.Hurry, n.Log) })
		if n.API != nil {
			serving.Go(func() error { return n.API.Serve(late, n.routes(), in.DB, n.Hurry) })
		}
		if n.Ready != nil {
			n.Ready(n.link())
		}
	})
	if n.Hub != nil {
		serving.Go(func() error { return n.Hub.Run(late) })
	}
	err = n.work(ctx, late, serving)
	stopLate()
	err = errors.Join(err, serving.Wait())
	if n.Spoke != nil {
		n.Spoke.Close(ctx)
	}
	n.board.Close()
	if n.Hub != nil {
		n.Log.InfoContext(context.WithoutCancel(ctx), "hub has stopped")
	}
	return err
}

// open prepares the roles, and refuses to run where one is missing.
func (n *Node) open(ctx context.Context) error {
	in := n.Instance
	if s := n.Spoke; s != nil {
		s.DB, s.Keys, s.Dir, s.Log, s.Hurry = in.DB, in.Keys, in.Dir, n.Log, n.Hurry
		s.Counters, s.Tracer, s.HungAfter = n.metrics.Counters, n.Tracer, n.HungAfter
		s.Open(n.board)
	}
	if h := n.Hub; h != nil {
		h.DB, h.Keys, h.Dir, h.Log, h.Counters = in.DB, in.Keys, in.Dir, n.Log, n.metrics.Counters
		h.Tracer, h.Webhooks.Feed, h.HungAfter = n.Tracer, n.feed, n.HungAfter
		err := h.Open(n.board)
		n.blobs = h.Blobs()
		if n.Spoke != nil {
			n.Spoke.Blobs = n.blobs // one store of the directory
		}
		return err
	}
	var err error
	if n.blobs, err = blob.Open(filepath.Join(in.Dir, "blobs")); err != nil {
		return err
	}
	n.Spoke.Blobs = n.blobs
	if err := n.commandsNobody(ctx); err != nil {
		return err
	}
	wanted, err := n.Spoke.Wanted(ctx)
	if err == nil && !wanted {
		return spoke.ErrNoHub
	}
	return err
}

// commandsNobody refuses to run as a spoke alone what has spokes of its own: nobody
// would serve them.
func (n *Node) commandsNobody(ctx context.Context) error {
	conns, err := n.Instance.DB.Connections(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, c := range conns {
		if c.Authority == store.Commands && !c.State.Ended() {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return commands.Refuse(commands.Conflict, "this instance has spokes of its own: %s", strings.Join(names, ", ")).
		Hinting("run it as their hub; it then works for the hubs that it has joined, too").Running("hub", "run")
}

// work returns when the instance is to stop, and its spoke has drained. What goes
// on until late ends fails before its time only with an error.
func (n *Node) work(ctx, late context.Context, serving *errgroup.Group) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(late, stop)()
	if n.Hub != nil {
		wanted, err := n.joined(working)
		if err != nil || !wanted {
			return err
		}
	}
	return n.Spoke.Run(working, late, serving, func() {
		if n.Working != nil {
			n.Working()
		}
		n.ready()
	})
}

// joined waits until there is work for the spoke of an instance that is a hub. It
// reports false when ctx ends before.
func (n *Node) joined(ctx context.Context) (bool, error) {
	if n.Spoke != nil {
		if wanted, err := n.Spoke.Wanted(ctx); wanted || err != nil {
			return wanted, err
		}
	}
	n.ready()
	for {
		followed := n.board.Followed()
		if n.Spoke != nil && slices.ContainsFunc(n.board.Statuses(store.Obeys), living) {
			return true, n.obeyTheFile(ctx)
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-followed:
		}
	}
}

// obeyTheFile puts in force what the join has shown for consent: the policy of the start may be
// older. One that cannot be used is in the log, and the one before stays.
func (n *Node) obeyTheFile(ctx context.Context) error {
	_, err := n.Spoke.ReloadPolicy(ctx, "spoke join", "")
	if commands.CodeOf(err) == commands.Validation {
		return nil
	}
	return err
}

func living(s federation.Status) bool { return !s.State.Ended() }

// link is where spokes dial, "" without a hub.
func (n *Node) link() string {
	if n.Hub == nil {
		return ""
	}
	return n.Hub.LinkAddress()
}
