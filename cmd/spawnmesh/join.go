package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) spokeJoinCommand() *cobra.Command {
	var file, preset string
	var yes bool
	c := &cobra.Command{
		Use: "join", Short: "Join a hub with the token that it made", Args: cobra.NoArgs,
		Long: `Join a hub with the token that its operator made with: spawnmesh invite

A spoke serves as many hubs as it has joined; one that runs takes up a new one by
itself. So does a hub: it is then the spoke of that one, too, and needs a policy.

The token is read from a file or from standard input, never from the command
line, where others could see it. Compare the fingerprints with the hub's operator.

Before anything is sent it shows what the hub could do here, by the policy and by
what this host holds, and asks whether that is meant. Nobody is asked where
standard input is no terminal: then --yes says it. What runs here then reads its
policy again: what was shown is in force, for all its hubs.`,
		Example: `  spawnmesh --data-dir S spoke join
  spawnmesh --data-dir S spoke join --token-file token --preset commands
  spawnmesh --data-dir S spoke join --yes < token`,
		RunE: func(c *cobra.Command, _ []string) error { return a.join(c.Context(), file, preset, yes) },
	}
	c.Flags().StringVar(&file, "token-file", "", "read the token from `FILE` (default: standard input)")
	c.Flags().StringVar(&preset, "preset", "", "where there is no policy yet, write the preset `NAME`: "+presetNames)
	c.Flags().BoolVar(&yes, "yes", false, "do not ask whether it is meant")
	return c
}

func (a *app) join(ctx context.Context, file, preset string, yes bool) error {
	token, err := a.readToken(ctx, file)
	if err != nil {
		return err
	}
	c, err := a.consentTo(ctx, token, file, preset)
	if err != nil {
		return err
	}
	if err := a.agree(ctx, c, yes); err != nil {
		return err
	}
	reread := false
	if preset == "" { // before the hub can order anything
		if reread, err = a.obeyShown(ctx, c); err != nil {
			return fmt.Errorf("%s was not joined: %w", token.Address, err)
		}
	}
	var j spoke.Joined
	err = a.makingInstance(ctx, func(ctx context.Context, in *instance.Instance) (err error) {
		ctx, done := context.WithTimeout(ctx, 30*time.Second)
		defer done()
		l := a.lasting("joining the hub at " + token.Address + ": waiting for its answer")
		defer l.done()
		j, err = spoke.Join(ctx, in.DB, in.Keys, token)
		return err
	})
	if err != nil {
		return err
	}
	a.did("hub %s was joined; see: %s", j.Connection.Name, a.line("keys", "list"))
	if preset != "" {
		if err := writePolicy(policy.File(c.dir), policy.Presets[preset], false); err != nil {
			return fmt.Errorf("hub %s was joined, but nothing may run here: %w", j.Connection.Name, err)
		}
		if reread, err = a.obeyShown(ctx, c); err != nil {
			return fmt.Errorf("hub %s was joined, but what runs here does not obey the policy that was written: %w", j.Connection.Name, err)
		}
	}
	if !a.forPeople() {
		v := joinedView{j, c.rules.ID(), reread}
		return a.print(v, []any{v}, table{names: []string{j.Connection.Name}})
	}
	a.sayJoined(ctx, c, j)
	return nil
}

// A joinedView is what a program learns of a join.
type joinedView struct {
	spoke.Joined
	Policy string `json:"policy"`        // that was agreed to
	Reread bool   `json:"policy_reread"` // by what runs here, which obeys it now
}

// obeyShown has what runs here, if anything does, read its policy again: what was shown is in force then.
func (a *app) obeyShown(ctx context.Context, c consent) (reread bool, err error) {
	there, err := policy.Load(c.dir)
	if err != nil {
		return false, err
	}
	if there.ID() != c.rules.ID() {
		return false, policyChanged("policy "+there.ID(), c)
	}
	if !control.Runs(ctx, c.dir) {
		return false, nil
	}
	now, err := control.Read[policy.Change](a.here(c.dir).API().ReloadPolicy(ctx, &api.ReloadPolicyParams{Expected: c.rules.ID()}))
	if commands.CodeOf(err) == commands.Conflict { // changed since it was read here
		return false, policyChanged("another one", c)
	}
	if err != nil {
		return false, err
	}
	if now.Policy != now.Was {
		fmt.Fprintf(a.err, "policy %s is in force here, for all hubs; it was %s%s\n", now.Policy, now.Was, confinedBy(now.Level))
	}
	return true, nil
}

func policyChanged(now string, c consent) error {
	return commands.Refuse(commands.Conflict, "policy.yaml was changed meanwhile: it is %s, and policy %s was shown", now, c.rules.ID()).Hinting("look at it, and join again")
}

// sayJoined says what a join led to, and what comes next: nothing is started.
func (a *app) sayJoined(ctx context.Context, c consent, j spoke.Joined) {
	fmt.Fprintf(a.out, "joined hub %s as %s\n", j.Connection.Name, c.token.Name)
	fmt.Fprintf(a.out, "hub fingerprint    %s\n", j.Hub)
	fmt.Fprintf(a.out, "our fingerprint    %s\n", j.Ours)
	if held := heldBack(j); held != "" {
		fmt.Fprintf(a.out, "connection         %s by %s\n", printable(j.Says.State), printable(j.Connection.Name))
		fmt.Fprintln(a.err, printable(held))
	}
	fmt.Fprintln(a.err, "compare them with the hub's operator")
	runs := control.Runs(ctx, c.dir) // it takes up the connection by itself
	if len(c.rules.Runtimes) == 0 {
		fmt.Fprintf(a.err, "nothing may run here yet; decide what may: %s spoke policy init --preset commands\n", a.self())
	}
	switch {
	case runs:
	case isHub(c.dir):
		fmt.Fprintf(a.err, "then start the hub, which serves this one, too: %s hub run\n", a.self())
	default:
		fmt.Fprintf(a.err, "then start the spoke: %s spoke run\n", a.self())
	}
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
func (a *app) readToken(ctx context.Context, file string) (join.Token, error) {
	if file == "" && terminal(a.in) {
		fmt.Fprintln(a.err, "paste the token here, one line:")
	}
	s := source{what: "--token-file", path: file, input: file == "", most: 8 << 10, line: true}
	if s.input {
		s.what = "the token"
	}
	line, err := a.readNamed(ctx, s)
	if err != nil {
		return join.Token{}, err
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
