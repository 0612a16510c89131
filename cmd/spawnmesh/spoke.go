package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/spoke"
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

It then claims nothing more and waits --drain for running agents. What still runs
after that goes on without it, and is adopted when the spoke runs again within its
lease.`,
		Example: "  spawnmesh --data-dir S spoke run --slots 4",
		RunE: func(c *cobra.Command, _ []string) error {
			s.Drain, s.Lease, s.Interval = time.Duration(drain), time.Duration(lease), time.Duration(beat)
			if s.Slots < 1 || s.Slots > 10000 || s.Lease < time.Second || s.Interval < 100*time.Millisecond {
				return misuse(errors.New("--slots is from 1 to 10000, --lease at least 1s, --heartbeat at least 100ms"))
			}
			return a.runSpoke(c.Context(), &s, ready)
		},
	}
	f := run.Flags()
	f.IntVar(&s.Slots, "slots", spoke.DefaultSlots, "agents that may run at a time")
	f.Var(&lease, "lease", "how long a claim lasts unless it is renewed; an agent outlives its spoke by this much")
	f.Var(&beat, "heartbeat", "time between two signs of life")
	f.Var(&drain, "drain", "how long a stop waits for running agents")
	f.StringVar(&ready, "ready-file", "", "file to write to once the spoke works")
	return run
}

func (a *app) runSpoke(ctx context.Context, s *spoke.Spoke, ready string) (err error) {
	log := a.logger()
	dir, err := a.dir()
	if err != nil {
		return err
	}
	if s.Policy, err = spoke.LoadPolicy(dir); err != nil {
		return misuse(err)
	}
	in, err := a.open(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() {
		if e := in.close(ctx); err == nil {
			err = e
		}
	}()
	s.DB, s.Keys, s.Dir, s.Log, s.Version = in.db, in.keys, in.dir, log, version()
	s.Ready = func() {
		fmt.Fprintf(a.out, "spoke is ready: %d slots, data %s\n", s.Slots, in.dir)
		if err := writeReady(ready, string(in.keys.InstanceID())); err != nil {
			log.ErrorContext(ctx, "telling that the spoke is ready", "err", err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return in.watch(ctx) })
	g.Go(func() error { return s.Run(ctx) })
	return g.Wait()
}

func (a *app) spokeJoinCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "join", Short: "Join a hub with the token that it made", Args: cobra.NoArgs,
		Long: `Join a hub with the token that its operator made with: spawnmesh invite

The token is read from a file or from standard input, never from the command
line, where others could see it. Compare the fingerprints with the hub's operator.`,
		Example: "  spawnmesh --data-dir S spoke join --token-file token\n  spawnmesh --data-dir S spoke join < token",
		RunE:    func(c *cobra.Command, _ []string) error { return a.join(c.Context(), file) },
	}
	c.Flags().StringVar(&file, "token-file", "", "file that holds the token (default: standard input)")
	return c
}

func (a *app) join(ctx context.Context, file string) (err error) {
	in := a.in
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return misuse(fmt.Errorf("reading the token: %w", err))
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, 8<<10))
	if err != nil {
		return fmt.Errorf("reading the token: %w", err)
	}
	token, err := federation.ParseToken(string(raw))
	if err != nil {
		return err
	}
	node, err := a.open(ctx, a.logger(), true)
	if err != nil {
		return err
	}
	defer func() {
		if e := node.close(ctx); err == nil {
			err = e
		}
	}()
	ctx, done := context.WithTimeout(ctx, 30*time.Second)
	defer done()
	j, err := spoke.Join(ctx, node.db, node.keys, token)
	if err != nil {
		return err
	}
	if a.output == "json" || a.output == "ndjson" {
		return a.printJSON(j)
	}
	fmt.Fprintf(a.out, "joined hub %s as %s\n", j.Connection.Name, token.Name)
	fmt.Fprintf(a.out, "hub fingerprint    %s\n", j.Hub)
	fmt.Fprintf(a.out, "our fingerprint    %s\n", j.Ours)
	fmt.Fprintf(a.err, "compare them with the hub's operator; then start the spoke: spawnmesh spoke run\n")
	if p, err := spoke.LoadPolicy(node.dir); err == nil && len(p.Runtimes) == 0 {
		fmt.Fprintf(a.err, "nothing may run here yet; decide what may: spawnmesh spoke policy init --preset commands\n")
	}
	return nil
}

func (a *app) policyCommand() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Decide what may run on this host"}
	var preset string
	var force bool
	set := &cobra.Command{
		Use: "init", Short: "Write a policy file to begin with", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.policyInit(preset, force) },
	}
	set.Flags().StringVar(&preset, "preset", "deny", "deny (nothing), commands (a list to edit) or open (anything: own machine)")
	set.Flags().BoolVar(&force, "force", false, "replace the policy that is there")
	show := &cobra.Command{
		Use: "show", Short: "Show the policy in force", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.policyShow() },
	}
	var s commands.Spawn
	test := &cobra.Command{
		Use: "test [flags] -- CMD [ARG...]", Short: "Ask the policy whether it would let a command run",
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error { return a.policyTest(s, args) },
	}
	test.Flags().StringVar(&s.Dir, "dir", "", "directory to run in")
	test.Flags().StringVar(&s.Runtime, "runtime", commands.RuntimeExec, "runtime")
	test.Flags().StringArrayVar(&s.Capabilities, "capability", nil, "required capability (repeatable)")
	c.AddCommand(set, show, test)
	return c
}

func (a *app) policyInit(preset string, force bool) error {
	text, ok := spoke.Presets[preset]
	if !ok {
		return misuse(fmt.Errorf("preset %q is not one of deny, commands, open", preset))
	}
	dir, err := a.dir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	path := spoke.PolicyFile(dir)
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if !force {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if os.IsExist(err) {
		return commands.Refuse(commands.Conflict, "there is a policy already: %s", path).Hinting("edit it, or replace it with --force")
	}
	if err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	if _, err := f.WriteString(text); err != nil {
		return errors.Join(fmt.Errorf("writing the policy: %w", err), f.Close())
	}
	fmt.Fprintf(a.out, "%s\n", path)
	fmt.Fprintln(a.err, "a running spoke reads it when it is started again")
	return f.Close()
}

func (a *app) policyShow() error {
	p, err := a.policy()
	if err != nil {
		return err
	}
	if a.output == "json" || a.output == "ndjson" {
		return a.printJSON(p)
	}
	return a.printPolicy(p)
}

func (a *app) policy() (*spoke.Policy, error) {
	dir, err := a.dir()
	if err != nil {
		return nil, err
	}
	p, err := spoke.LoadPolicy(dir)
	if err != nil {
		return nil, misuse(err)
	}
	return p, nil
}

func (a *app) printPolicy(p *spoke.Policy) error {
	raw, err := p.Text()
	if err != nil {
		return err
	}
	_, err = a.out.Write(raw)
	return err
}

func (a *app) policyTest(s commands.Spawn, args []string) error {
	p, err := a.policy()
	if err != nil {
		return err
	}
	s.Argv, s.Task = args, "00000000-0000-4000-8000-000000000000"
	if err := s.Validate(); err != nil {
		return err
	}
	if r := p.Judge(&s); r != nil {
		return r
	}
	fmt.Fprintln(a.out, "allowed")
	return nil
}
