package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) spokeCommand() *cobra.Command {
	c := &cobra.Command{Use: "spoke", Short: "Run a spoke, join a hub, decide what may run here"}
	c.AddCommand(a.spokeRunner().command, a.spokeJoinCommand(), a.policyCommand(), a.installCommand("spoke"))
	return c
}

func (a *app) spokeRunner() *runner {
	r := &runner{a: a, spoke: &spoke.Spoke{}}
	run := &cobra.Command{
		Use: "run", Short: "Run a spoke in the foreground", Args: cobra.NoArgs,
		Long: `Run a spoke in the foreground until it is interrupted.

It then claims nothing more and waits --drain for running agents; a second interrupt
ends the wait. What still runs after that goes on without it, and is adopted when the
spoke runs again within its lease.

It logs to standard error, a line per event; docs/operating.md has them all.

` + settingsHelp,
		Example: "  spawnmesh --data-dir S spoke run --slots 4",
		RunE:    func(c *cobra.Command, _ []string) error { return r.run(c.Context()) },
	}
	r.spokeFlags(run.Flags())
	run.Flags().StringVar(&r.ready, "ready-file", "", "write this instance's id to `FILE` once the spoke works")
	return r.runBy(run)
}

func (a *app) spokeJoinCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "join", Short: "Join a hub with the token that it made", Args: cobra.NoArgs,
		Long: `Join a hub with the token that its operator made with: spawnmesh invite

A spoke serves as many hubs as it has joined; one that runs takes up a new one by
itself. So does a hub: it is then the spoke of that one, too, and needs a policy.

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
	err = a.makingInstance(ctx, func(ctx context.Context, in *instance.Instance) (err error) {
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
	if held := heldBack(j); held != "" {
		fmt.Fprintf(a.out, "connection         %s by %s\n", printable(j.Says.State), printable(j.Connection.Name))
		fmt.Fprintln(a.err, printable(held))
	}
	fmt.Fprintln(a.err, "compare them with the hub's operator")
	if len(host.Runtimes) == 0 {
		fmt.Fprintf(a.err, "nothing may run here yet; decide what may: %s spoke policy init --preset commands\n", a.self())
	}
	switch _, err := os.Stat(filepath.Join(dir, "nats")); {
	case runs:
	case err == nil: // it is a hub
		fmt.Fprintf(a.err, "then start the hub, which serves this one, too: %s hub run\n", a.self())
	default:
		fmt.Fprintf(a.err, "then start the spoke: %s spoke run\n", a.self())
	}
	return nil
}

// heldBack says that the hub lets nothing over the connection yet; "" where it does.
func heldBack(j spoke.Joined) string {
	if j.Says.State == string(store.Active) {
		return ""
	}
	return fmt.Sprintf("%s says that the connection is %s: nothing goes over it until the hub's operator resumes it, with: spawnmesh connections resume %s",
		j.Connection.Name, j.Says.State, j.Connection.ID)
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
	if strings.TrimSpace(line) == "" {
		return join.Token{}, misuse("there is no join token: %s is empty", cmp.Or(file, "standard input")).Hinting("its hub's operator makes one: spawnmesh invite --name NAME")
	}
	token, err := join.ParseToken(line)
	if err != nil {
		return token, err
	}
	return token, spoke.CheckToken(token, time.Now())
}
