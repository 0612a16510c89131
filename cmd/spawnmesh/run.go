package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/config"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/internal/listener"
	"github.com/spawnmesh/spawnmesh/internal/node"
	"github.com/spawnmesh/spawnmesh/internal/tracing"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// A runner runs the instance of this call in the foreground: as a spoke alone, or
// as a hub that is a spoke where it has joined others.
type runner struct {
	a                  *app
	hub                *hub.Hub // nil for a spoke alone
	spoke              *spoke.Spoke
	drain, lease, beat days
	hung               days // how long an agent may show no sign, and
	over, patience     days // run beyond its estimate, and then tell no progress
	inbox              store.InboxBound
	ready              string // file
	logs               logChoice
	api                apiChoice
	webhooks           webhookChoice
	trace              string         // the collector's URL, "" for none
	command            *cobra.Command // hub run or spoke run

	flags    *pflag.FlagSet // that are settings
	settings []config.Setting
	log      *slog.Logger
	working  chan struct{} // closed once the spoke works
}

// spokeFlags adds the flags of who runs agents.
func (r *runner) spokeFlags(f *pflag.FlagSet) {
	r.drain, r.lease, r.beat = days(10*time.Second), days(spoke.DefaultLease), days(node.DefaultInterval)
	r.hung, r.over, r.patience = days(commands.HungAfter), days(spoke.DefaultOverrunAfter), days(spoke.DefaultOverrunPatience)
	f.IntVar(&r.spoke.Slots, "slots", spoke.DefaultSlots, "run at most `N` agents at a time")
	f.Var(&r.lease, "lease", "how long an agent may outlive its spoke")
	f.Var(&r.beat, "heartbeat", "time between two signs of life")
	f.Var(&r.hung, "hung-after", "how long an agent may show no sign of work before its verdict is hung")
	f.Var(&r.over, "overrun-after", "how long an agent may run beyond its estimate before that is warned of")
	f.Var(&r.patience, "overrun-patience", "how long it may then tell no progress before it is ended")
	f.Var(sizeVar(&r.inbox.Bytes, 16<<30), "inbox-per-peer", "keep `SIZE` of a peer's messages until they are old; more waits on its side")
	f.Var(sizeVar(&r.inbox.All, 64<<30), "inbox-total", "keep `SIZE` of the messages of all peers")
	f.Var(&r.drain, "drain", "how long a stop waits for running agents")
	f.StringVar(&r.trace, "trace-endpoint", "", "tell the collector at `URL` what orders go through (OpenTelemetry: OTLP over HTTP)")
	r.logs.add(f)
}

// runBy makes c the command of r: the flags that it has now are the settings.
func (r *runner) runBy(c *cobra.Command) *runner {
	r.command, r.flags = c, pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	r.flags.AddFlagSet(c.Flags())
	return r
}

// configure reads the settings that flags do not have, and checks all.
func (r *runner) configure() error {
	dir, err := r.a.dir()
	if err != nil {
		return err
	}
	r.settings, err = config.Load(r.flags, r.a.getenv, configFile(dir), nameOf(r.command))
	if err != nil {
		return err
	}
	return config.Explain(r.checkSettings(), r.settings)
}

func (r *runner) checkSettings() error {
	if r.hub != nil {
		if err := checkHub(r.hub); err != nil {
			return err
		}
		if err := r.api.check(); err != nil {
			return err
		}
		if err := r.webhooks.check(&r.hub.Webhooks); err != nil {
			return err
		}
	}
	s, beat := r.spoke, time.Duration(r.beat)
	s.Drain, s.Lease = time.Duration(r.drain), time.Duration(r.lease)
	s.OverrunAfter, s.OverrunPatience = time.Duration(r.over), time.Duration(r.patience)
	if s.Slots < 1 || s.Slots > 10000 || s.Lease < time.Second || s.Lease > backlog.MaxLease || beat < 100*time.Millisecond || beat > time.Hour {
		return misuse("--slots is from 1 to 10000, --lease from 1s to 24h, --heartbeat from 100ms to 1h")
	}
	if r.inbox.Bytes < 1<<20 || r.inbox.All < r.inbox.Bytes {
		return misuse("--inbox-per-peer is at least 1MiB, and --inbox-total not below it")
	}
	if r.trace != "" {
		if err := tracing.CheckEndpoint(r.trace); err != nil {
			return misuse("--trace-endpoint: %v", err)
		}
	}
	return r.logs.check()
}

// checkFiles says what is wrong with the addresses and the files that a start looks at; nothing is started for it.
func (r *runner) checkFiles() error {
	if r.hub != nil {
		if err := checkLinkAddress(r.hub.Listen); err != nil {
			return config.Explain(err, r.settings)
		}
		if err := r.api.checkFiles(r.a.logger(slog.LevelWarn)); err != nil {
			return config.Explain(err, r.settings)
		}
	}
	return r.openPolicy()
}

func (r *runner) openPolicy() error {
	dir, err := r.a.dir()
	if err != nil {
		return err
	}
	if r.spoke.Policy, err = policy.Open(dir); err != nil {
		return misuse("%v", err)
	}
	return nil
}

// check says what is wrong with this host before a database is started for nothing.
func (r *runner) check(ctx context.Context) error {
	dir, err := r.a.dir()
	if err != nil {
		return err
	}
	if e := postgres.Running(dir); e != nil { // it has these addresses, too
		return e
	}
	if r.hub != nil {
		if err := checkLink(ctx, r.hub.Listen); err != nil {
			return config.Explain(err, r.settings)
		}
		if err := r.api.look(ctx, r.log); err != nil {
			return config.Explain(err, r.settings)
		}
	}
	return r.openPolicy()
}

func (r *runner) run(ctx context.Context) (err error) {
	if err := keepPrivate(); err != nil {
		return err
	}
	if err := r.configure(); err != nil {
		return err
	}
	r.a.neverWait()
	_, restore := r.a.share(true)
	defer restore()
	r.log = r.logs.logger(r.a)
	r.a.tellLosses(r.log)
	r.working = make(chan struct{})
	hangups := make(chan os.Signal, 1) // from here on none ends the process
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if err := r.check(ctx); err != nil {
		return err
	}
	defer r.tellStop(ctx)()
	l := r.lasting("starting: opening the database")
	defer l.done()
	in, err := r.a.open(ctx, r.log, r.hub != nil, l)
	if errors.Is(err, signing.ErrNoKeys) {
		return spoke.ErrNoHub // the keys come with the first join
	}
	if err != nil {
		return err
	}
	defer func() {
		if e := in.Close(ctx); err == nil {
			err = e
		}
	}()
	in.DB.BoundInbox(r.inbox)
	served, err := r.api.open(ctx, r.log)
	if err != nil {
		return err
	}
	tracer, err := r.openTracer(in)
	if err != nil {
		return err
	}
	defer func() { r.closeTracer(ctx, tracer) }()
	n := node.Node{Instance: in, Tracer: tracer, API: served, Version: version(), Interval: time.Duration(r.beat), HungAfter: time.Duration(r.hung), Log: r.log, Hub: r.hub, Spoke: r.spoke, Hurry: r.a.hurry}
	n.Ready = func(link string) {
		l.done()
		r.sayReady(ctx, in, link, served)
	}
	n.Working = func() {
		l.done()
		close(r.working)
		fmt.Fprintf(r.a.out, "spoke is ready: %d slots, data %s\n", r.spoke.Slots, in.Dir)
	}
	l.now("starting: looking at what goes on, and at what was left open")
	defer paceHeap()()
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { r.notify(context.WithoutCancel(ctx), "STOPPING=1") })
	defer stop()
	g.Go(func() error { return in.Watch(ctx) })
	g.Go(func() error { return n.Run(ctx) })
	g.Go(func() error { return r.reloadOnHangup(ctx, hangups) })
	return g.Wait()
}

// openTracer returns who is told what orders go through, nil for nobody.
func (r *runner) openTracer(in *instance.Instance) (*tracing.Tracer, error) {
	if r.trace == "" {
		return nil, nil
	}
	t, err := tracing.Open(r.trace, tracing.Who{Instance: string(in.Keys.InstanceID()), Version: version(), Headers: r.a.getenv("OTEL_EXPORTER_OTLP_HEADERS")}, r.log)
	if err != nil {
		return nil, misuse("%v", err)
	}
	return t, nil
}

// traceTime is how long a stop waits for a collector.
const traceTime = 2 * time.Second

func (r *runner) closeTracer(ctx context.Context, t *tracing.Tracer) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), traceTime)
	defer done()
	if err := t.Close(ctx); err != nil {
		r.log.WarnContext(ctx, "the last traces were not sent", "err", err)
	}
}

// sayReady tells who waits for it, a person or a script, that every role works.
func (r *runner) sayReady(ctx context.Context, in *instance.Instance, link string, api *listener.Listener) {
	text := link
	if r.hub == nil {
		text = string(in.Keys.InstanceID())
	} else {
		where := ""
		if api != nil {
			where = ", api " + api.URL()
		}
		fmt.Fprintf(r.a.out, "hub is ready: link %s%s, data %s\n", link, where, in.Dir)
	}
	if err := writeReady(r.ready, text); err != nil {
		r.log.Error("telling that the instance is ready", "err", err)
	}
	r.notify(ctx, "READY=1")
}

// notify tells systemd how the process stands. What it does not hear it finds out by its timeouts.
func (r *runner) notify(ctx context.Context, state string) {
	if err := r.a.notify(ctx, state); err != nil {
		r.log.WarnContext(ctx, "systemd could not be told how this process stands", "state", state, "err", err)
	}
}

// reloadOnHangup lets the spoke read its policy again at each SIGHUP, once it
// works. What is wrong with it is in the log: there is nobody to tell.
func (r *runner) reloadOnHangup(ctx context.Context, hangups <-chan os.Signal) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.working:
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
			_, _ = r.spoke.ReloadPolicy(ctx, "SIGHUP", "")
		}
	}
}
