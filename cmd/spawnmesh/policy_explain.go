package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

func (a *app) policyExplainCommand() *cobra.Command {
	return asking(a.policyExplain, &cobra.Command{
		Use: "explain [flags] -- CMD [ARG...]", Short: "Say what the policy decides of a command, and what it could reach",
		Long: `Say what the policy decides of a command: by which entry, what its agent could reach
on this host (files, directories, variables, files of secrets) and what bounds it; or
why each entry does not fit. Nothing is started.

The exit code is 0 whatever is decided; spoke policy test tells it by its exit code.`,
		Example: "  spawnmesh spoke policy explain -- git clone https://example.org/x --depth 1",
	})
}

// An explanation says what a policy decides, and of what.
type explanation struct {
	Allowed bool          `json:"allowed"`
	Policy  string        `json:"policy"`
	Entry   string        `json:"entry,omitempty"` // of commands, the first that fits
	Line    int           `json:"line,omitempty"`
	Code    commands.Code `json:"code,omitempty"` // where it is refused
	Why     string        `json:"why,omitempty"`
	Near    []string      `json:"near,omitempty"` // why entries do not fit
	Reach   *policy.Reach `json:"reach,omitempty"`
}

func (a *app) policyExplain(s commands.Spawn, env map[string]string, args []string) error {
	if len(args) == 0 && s.Runtime == commands.RuntimeExec {
		return misuse("no command given").Hinting("put it after --, as in").Running("spoke", "policy", "explain", "--", "echo", "hi")
	}
	dir, err := a.dir()
	if err != nil {
		return err
	}
	p, err := a.policy()
	if err != nil {
		return err
	}
	s.Argv, s.Task = args, "00000000-0000-4000-8000-000000000000"
	if err := s.ValidateOrder(); err != nil {
		return err
	}
	v := explain(p, dir, &s, env)
	if a.wantsJSON() {
		return a.print(v, []any{v}, table{})
	}
	for _, line := range v.words() {
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
	if r := p.Judge(s, env); r != nil {
		v.Code, v.Why = r.Code, r.Why
		if exec && !fits {
			v.Near = p.Explain(s.Argv)
		}
		return v
	}
	reach := p.Reach(dir, s)
	v.Allowed, v.Reach = true, &reach
	return v
}

// words are an explanation for people, a line for each.
func (v explanation) words() []string {
	list := []string{"allowed"}
	if !v.Allowed {
		list = []string{fmt.Sprintf("refused (%s): %s", v.Code, v.Why)}
	}
	if v.Entry != "" {
		list = append(list, fmt.Sprintf("by line %d: %s", v.Line, v.Entry))
	}
	if v.Reach != nil {
		list = append(list, v.Reach.Words()...)
	}
	return append(list, v.Near...)
}
