package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

func (a *app) spokeCommand() *cobra.Command {
	c := &cobra.Command{Use: "spoke", Short: "Run a spoke, join a hub, decide what may run here"}
	c.AddCommand(a.spokeRunCommand(), a.spokeJoinCommand(), a.policyCommand())
	return c
}

func (a *app) spokeRunCommand() *cobra.Command {
	var s spoke.Spoke
	var ready string
	drain, lease, beat := days(10*time.Second), days(spoke.DefaultLease), days(spoke.DefaultInterval)
	run := &cobra.Command{
		Use: "run", Short: "Run a spoke in the foreground", Args: cobra.NoArgs,
		Long: `Run a spoke in the foreground until it is interrupted.

It then claims nothing more and waits --drain for running agents; a second interrupt
ends the wait. What still runs after that goes on without it, and is adopted when the
spoke runs again within its lease.`,
		Example: "  spawnmesh --data-dir S spoke run --slots 4",
		RunE: func(c *cobra.Command, _ []string) error {
			s.Drain, s.Lease, s.Interval = time.Duration(drain), time.Duration(lease), time.Duration(beat)
			if s.Slots < 1 || s.Slots > 10000 || s.Lease < time.Second || s.Interval < 100*time.Millisecond || s.Interval > time.Hour {
				return misuse("--slots is from 1 to 10000, --lease at least 1s, --heartbeat from 100ms to 1h")
			}
			return a.runSpoke(c.Context(), &s, ready)
		},
	}
	f := run.Flags()
	f.IntVar(&s.Slots, "slots", spoke.DefaultSlots, "run at most `N` agents at a time")
	f.Var(&lease, "lease", "how long an agent may outlive its spoke")
	f.Var(&beat, "heartbeat", "time between two signs of life")
	f.Var(&drain, "drain", "how long a stop waits for running agents")
	f.StringVar(&ready, "ready-file", "", "write this instance's id to `FILE` once the spoke works")
	return run
}

func (a *app) runSpoke(ctx context.Context, s *spoke.Spoke, ready string) (err error) {
	log := a.logger(slog.LevelInfo)
	hangups := make(chan os.Signal, 1) // from here on none ends the process
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	dir, err := a.dir()
	if err != nil {
		return err
	}
	if s.Policy, err = policy.Open(dir); err != nil {
		return misuse("%v", err)
	}
	in, err := a.open(ctx, log, false)
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
	s.DB, s.Keys, s.Dir, s.Log, s.Version, s.Hurry = in.DB, in.Keys, in.Dir, log, version(), a.hurry
	working := make(chan struct{})
	s.Ready = func() {
		close(working)
		fmt.Fprintf(a.out, "spoke is ready: %d slots, data %s\n", s.Slots, in.Dir)
		if err := writeReady(ready, string(in.Keys.InstanceID())); err != nil {
			log.ErrorContext(ctx, "telling that the spoke is ready", "err", err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return in.Watch(ctx) })
	g.Go(func() error { return s.Run(ctx) })
	g.Go(func() error { return reloadOnHangup(ctx, s, working, hangups) })
	return g.Wait()
}

// reloadOnHangup lets the spoke read its policy again at each SIGHUP, once it
// works. What is wrong with it is in the log: there is nobody to tell.
func reloadOnHangup(ctx context.Context, s *spoke.Spoke, working <-chan struct{}, hangups <-chan os.Signal) error {
	select {
	case <-ctx.Done():
		return nil
	case <-working:
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
			_, _ = s.ReloadPolicy(ctx, "SIGHUP")
		}
	}
}

func (a *app) spokeJoinCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "join", Short: "Join a hub with the token that it made", Args: cobra.NoArgs,
		Long: `Join a hub with the token that its operator made with: spawnmesh invite

A spoke serves as many hubs as it has joined; one that runs takes up a new one by
itself.

The token is read from a file or from standard input, never from the command
line, where others could see it. Compare the fingerprints with the hub's operator.`,
		Example: "  spawnmesh --data-dir S spoke join --token-file token\n  spawnmesh --data-dir S spoke join < token",
		RunE:    func(c *cobra.Command, _ []string) error { return a.join(c.Context(), file) },
	}
	c.Flags().StringVar(&file, "token-file", "", "read the token from `FILE` (default: standard input)")
	return c
}

func (a *app) join(ctx context.Context, file string) (err error) {
	token, err := a.readToken(file)
	if err != nil {
		return err
	}
	host, err := a.policy()
	if err != nil {
		return err
	}
	dir, err := a.dir()
	if err != nil {
		return err
	}
	runs := control.Runs(ctx, dir) // it takes up the connection by itself
	var j spoke.Joined
	err = a.withInstance(ctx, func(ctx context.Context, in *instance.Instance) (err error) {
		ctx, done := context.WithTimeout(ctx, 30*time.Second)
		defer done()
		j, err = spoke.Join(ctx, in.DB, in.Keys, token)
		return err
	})
	if err != nil {
		return err
	}
	a.did("hub %s was joined; see: %s", j.Connection.Name, a.line("keys", "list"))
	if !a.forPeople() {
		return a.print(j, []any{j}, table{names: []string{j.Connection.Name}})
	}
	fmt.Fprintf(a.out, "joined hub %s as %s\n", j.Connection.Name, token.Name)
	fmt.Fprintf(a.out, "hub fingerprint    %s\n", j.Hub)
	fmt.Fprintf(a.out, "our fingerprint    %s\n", j.Ours)
	fmt.Fprintln(a.err, "compare them with the hub's operator")
	if len(host.Runtimes) == 0 {
		fmt.Fprintf(a.err, "nothing may run here yet; decide what may: %s spoke policy init --preset commands\n", a.self())
	}
	if !runs {
		fmt.Fprintf(a.err, "then start the spoke: %s spoke run\n", a.self())
	}
	return nil
}

// readToken reads a token before anything is made for it on this host.
func (a *app) readToken(file string) (join.Token, error) {
	in := a.in
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return join.Token{}, misuse("reading the token: %v", err)
		}
		defer f.Close()
		in = f
	} else if terminal(a.in) {
		fmt.Fprintln(a.err, "paste the token here, one line:")
	}
	line, err := bufio.NewReader(io.LimitReader(in, 8<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return join.Token{}, misuse("reading the token: %v", err)
	}
	token, err := join.ParseToken(line)
	if err != nil {
		return token, err
	}
	return token, spoke.CheckToken(token, time.Now())
}
