package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

func (a *app) policyExplainCommand() *cobra.Command {
	return asking(a.policyExplain, &cobra.Command{
		Use: "explain [flags] -- CMD [ARG...]", Short: "Say what the policy decides of a command, and what it could reach",
		Long: `Say what the policy decides of a command: by which entry, what its agent could reach
on this host (files, directories, variables, files of secrets), what it is confined
by and what bounds it; or why each entry does not fit. Nothing is started. What holds
on this host is asked of the spoke that runs here; without one it is not known.

The exit code is 0 whatever is decided; spoke policy test tells it by its exit code.`,
		Example: "  spawnmesh spoke policy explain -- git clone https://example.org/x --depth 1",
	})
}

// An explanation says what a policy decides, and of what.
type explanation struct {
	Allowed bool          `json:"allowed"`
	Policy  string        `json:"policy"`
	InForce string        `json:"in_force,omitempty"` // in the spoke that runs, where that is another one
	Entry   string        `json:"entry,omitempty"`    // of commands, the first that fits
	Line    int           `json:"line,omitempty"`
	Code    commands.Code `json:"code,omitempty"` // where it is refused
	Why     string        `json:"why,omitempty"`
	Near    []string      `json:"near,omitempty"` // why entries do not fit, or agents cannot be confined
	Reach   *policy.Reach `json:"reach,omitempty"`
}

func (a *app) policyExplain(ctx context.Context, s commands.Spawn, env map[string]string) error {
	dir, err := a.dir()
	if err != nil {
		return err
	}
	p, inForce, err := a.policyHere(ctx)
	if err != nil {
		return err
	}
	v := explain(p, dir, &s, env)
	v.InForce = inForce
	if a.wantsJSON() {
		return a.print(v, []any{v}, table{})
	}
	for _, line := range append(v.words(), a.ofTheFile(inForce)...) {
		fmt.Fprintln(a.out, printable(line))
	}
	return nil
}

func explain(p *policy.Policy, dir string, s *commands.Spawn, env map[string]string) explanation {
	v := explanation{Policy: p.ID()}
	exec := s.Runtime == commands.RuntimeExec
	c, fits := p.Match(s.Argv)
	if exec && fits {
		v.Entry, v.Line = c.String(), c.Line()
	}
	if r := p.Foresee(s, env); r != nil {
		v.Code, v.Why = r.Code, r.Why
		switch {
		case exec && !fits:
			v.Near = p.Explain(s.Argv)
		case r.Code == commands.Capability:
			v.Near = []string{r.Hint}
		case r.Code == commands.BadPath:
			if text := p.ExplainDir(s); text != "" {
				v.Near = []string{text}
			}
		}
		return v
	}
	reach := p.Reach(dir, s)
	v.Allowed, v.Reach = true, &reach
	return v
}

// words are an explanation for people, a line for each.
func (v explanation) words() []string {
	var list []string
	if v.Allowed {
		list = []string{allowed(v.Reach.Program, v.Reach.Missing)}
	} else {
		list = []string{fmt.Sprintf("refused (%s): %s", v.Code, v.Why)}
	}
	if v.Entry != "" {
		list = append(list, byEntry(v.Line, v.Entry))
	}
	if v.Reach != nil {
		list = append(list, v.Reach.Words()...)
	}
	return append(list, v.Near...)
}
