package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
)

// A consent is what joining a hub lets it do on this host.
type consent struct {
	token  join.Token
	dir    string
	file   string // of the token; "" = standard input
	preset string // that becomes the policy; "" = the one that is there
	rules  *policy.Policy
	held   policy.Found
	slots  int
	other  string   // the policy in force, where it is not rules
	hubs   []string // that this host obeys already
}

// consentTo puts together what a token's hub could do here. What is wrong with the policy or the
// settings is found here, and nothing is changed.
func (a *app) consentTo(ctx context.Context, token join.Token, file, preset string) (c consent, err error) {
	c = consent{token: token, file: file, preset: preset}
	if c.dir, err = a.dir(); err != nil {
		return c, err
	}
	if c.rules, err = a.rulesFor(c.dir, preset); err != nil {
		return c, err
	}
	client, err := a.client()
	if err != nil {
		return c, err
	}
	if v, err := askRunning(ctx, client); err == nil && v.Held != nil && v.Slots > 0 {
		c.slots, c.held = v.Slots, *v.Held
		if v.Policy != c.rules.ID() {
			c.other = v.Policy
		}
	} else if err := c.foresee(a); err != nil {
		return c, err
	}
	c.rules = c.rules.On(c.held)
	c.hubs, err = a.hubsHere(ctx, c.dir)
	return c, err
}

// hubsHere are the names of the hubs that this host obeys, also while nothing runs.
func (a *app) hubsHere(ctx context.Context, dir string) (names []string, err error) {
	if _, err := instance.LoadKeys(dir); errors.Is(err, signing.ErrNoKeys) {
		return nil, nil // nothing is made before somebody has agreed
	}
	err = a.withInstance(ctx, func(ctx context.Context, in *instance.Instance) error {
		conns, err := in.DB.Connections(ctx)
		for _, k := range conns {
			if k.Authority == store.Obeys && !k.State.Ended() {
				names = append(names, k.Name)
			}
		}
		return err
	})
	return names, err
}

// foresee finds out what a spoke that is started here would say.
func (c *consent) foresee(a *app) error {
	role := "spoke"
	if isHub(c.dir) {
		role = "hub"
	}
	r, err := a.runnerWith(role, nil)
	if err != nil {
		return err
	}
	c.slots = r.spoke.Slots
	c.held, err = spoke.TryHost(c.dir)
	return err
}

// rulesFor is the policy that applies after a join: a preset, where there is none yet, or the file.
func (a *app) rulesFor(dir, preset string) (*policy.Policy, error) {
	if preset == "" {
		return a.policy()
	}
	text, err := presetText(preset)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(policy.File(dir)); err == nil {
		return nil, commands.Refuse(commands.Conflict, "there is a policy already: %s", policy.File(dir)).Hinting("leave --preset out to join with it")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for a policy: %w", err)
	}
	return policy.Parse([]byte(text))
}

// words say it to people, a line for each thing.
func (c consent) words() []string {
	level, err := c.rules.Level()
	lines := []string{
		"joining lets a hub order agents on this host, as far as the policy allows, until the connection is revoked:",
		fmt.Sprintf("hub: %s, %s; this host is %s there", c.token.Address, c.token.Hub, c.token.Name),
		"policy: " + c.origin(),
	}
	if len(c.hubs) > 0 {
		lines = append(lines, "the policy is for all hubs of this host, so also for: "+strings.Join(c.hubs, ", "))
	}
	if c.other != "" {
		lines = append(lines, fmt.Sprintf("until now policy %s is in force here; joining puts policy.yaml in its place, for all hubs", c.other))
	}
	reach := c.rules.Whole(c.dir)
	if reach.Program == "" {
		return append(lines, "so nothing may run here until the policy says otherwise")
	}
	for _, line := range reach.Decided() {
		lines = append(lines, line)
		if strings.HasPrefix(line, "isolation: ") {
			lines = append(lines, c.lacks()...)
		}
	}
	if err == nil {
		lines = append(lines, "agents run as: "+agentUser(level))
	}
	return append(lines, fmt.Sprintf("agents at once: at most %d (--slots)", c.slots))
}

// origin says where the policy is from.
func (c consent) origin() string {
	path := policy.File(c.dir)
	if c.preset != "" {
		return fmt.Sprintf("the preset %s, which will be written to %s", c.preset, path)
	}
	if _, err := os.Lstat(path); err != nil {
		return fmt.Sprintf("none; there is no %s", path)
	}
	return fmt.Sprintf("%s, version %s", path, c.rules.ID())
}

// lacks names the levels of isolation that this host does not hold.
func (c consent) lacks() []string {
	var list []string
	for _, level := range commands.IsolationLevels {
		if c.held.Fault(level) != nil {
			list = append(list, level)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return []string{"isolation that does not hold on this host: " + strings.Join(list, ", ")}
}

// agentUser says which user agents at a level have, where whoever runs this runs the spoke.
func agentUser(level string) string {
	if commands.MeetsIsolation(level, commands.IsolationUser) {
		return "users of their own, which nobody else has"
	}
	name := fmt.Sprintf("user %d", os.Geteuid())
	if u, err := user.LookupId(fmt.Sprint(os.Geteuid())); err == nil {
		name = u.Username
	}
	return name + ", or whichever user runs the spoke"
}

// agree shows what joining means, and asks whether it is meant unless yes says so.
func (a *app) agree(ctx context.Context, c consent, yes bool) error {
	asks := !yes && terminal(a.in)
	if a.forPeople() || asks {
		for _, line := range c.words() {
			fmt.Fprintln(a.err, printable(line))
		}
	}
	switch {
	case yes || asks && a.asks(ctx, "join?"):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case asks:
		return misuse("%s was not joined; nothing was sent to it or stored here, and the token is still good", c.token.Address)
	}
	line := []string{"spoke", "join", "--yes", "--token-file", cmp.Or(c.file, "FILE")}
	if c.preset != "" {
		line = slices.Insert(line, 2, "--preset", c.preset)
	}
	return misuse("%s was not joined: joining lets it order agents here, and nobody is at a terminal to agree", c.token.Address).
		Hinting("nothing was sent or stored; to agree").Running(line...)
}
