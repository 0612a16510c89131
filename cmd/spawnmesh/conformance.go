package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/internal/conformance"
)

func (a *app) conformanceCommand() *cobra.Command {
	var spoke, list bool
	o := conformance.Options{}
	c := &cobra.Command{
		Use: "conformance --spoke -- COMMAND [ARG...]", Short: "Play hub against a spoke; say which rules it keeps",
		Long: `Play hub against a spoke program and say which rules of docs/protocol.md it keeps.

The program is started with a join token in SPAWNMESH_TOKEN and a directory for its
keys and state in SPAWNMESH_STATE, several times with directories of their own. It
joins when the directory is empty, and goes on from there when it is not: it is
killed and started again. It must allow the runtime noop, and sh, and have 2 slots.

The exit code is 0 when every rule is kept, 1 when one is broken, 2 for misuse.`,
		Example: "  spawnmesh conformance --spoke -- node docs/examples/spoke.mjs\n  spawnmesh conformance --spoke --rule spawn --rule duplicate -- ./my-spoke",
		RunE: func(c *cobra.Command, args []string) error {
			if list {
				return a.printRules(conformance.Rules())
			}
			if !spoke {
				return misuse("what is tried was not said").Hinting("spawnmesh conformance --spoke -- COMMAND")
			}
			if o.Command = args; len(args) == 0 {
				return misuse("the spoke program is missing").Hinting("spawnmesh conformance --spoke -- COMMAND")
			}
			return a.conformance(c.Context(), o)
		},
	}
	c.Flags().BoolVar(&spoke, "spoke", false, "the program is a spoke")
	c.Flags().BoolVar(&list, "list", false, "list the rules, and try none")
	c.Flags().StringSliceVar(&o.Rules, "rule", nil, "try only the rule `NAME`, and what it needs; may be repeated")
	c.Flags().DurationVar(&o.Patience, "patience", 30*time.Second, "how long an answer is waited for")
	return c
}

func (a *app) conformance(ctx context.Context, o conformance.Options) error {
	for _, name := range o.Rules {
		if !conformance.Has(name) {
			return misuse("there is no rule %q", name).Hinting("list them: spawnmesh conformance --list")
		}
	}
	if o.Patience < time.Second {
		return misuse("--patience is at least 1s")
	}
	if a.forPeople() {
		o.Say = func(v conformance.Verdict) { fmt.Fprintf(a.err, "%-9s  %s\n", v.Verdict, v.Rule) }
	}
	list, err := conformance.Run(ctx, o)
	if err != nil {
		return err
	}
	if err := a.printVerdicts(list); err != nil {
		return err
	}
	for _, v := range list {
		if v.Verdict == conformance.Broken {
			return exitCode(exitUnexpected)
		}
	}
	return nil
}

// printVerdicts prints a line for each rule, and below them why some are not kept.
func (a *app) printVerdicts(list []conformance.Verdict) error {
	t := table{head: []string{"RULE", "SECTION", "VERDICT", "SAYS"}, whole: true}
	count := map[string]int{}
	var why strings.Builder
	for _, v := range list {
		count[v.Verdict]++
		t.rows = append(t.rows, []string{v.Rule, v.Section, v.Verdict, v.Says})
		t.names = append(t.names, v.Rule)
		if v.Why != "" {
			fmt.Fprintf(&why, "%s is %s: %s\n", v.Rule, v.Verdict, v.Why)
		}
	}
	if err := a.print(list, anys(list), t); err != nil {
		return err
	}
	if a.forPeople() {
		fmt.Fprintf(a.out, "\n%s%d kept, %d broken, %d not tried\n", printable(why.String()), count[conformance.Kept], count[conformance.Broken], count[conformance.NotTried])
	}
	return nil
}

func (a *app) printRules(list []conformance.Rule) error {
	t := table{head: []string{"RULE", "SECTION", "SAYS"}, whole: true}
	for _, r := range list {
		t.rows = append(t.rows, []string{r.Name, r.Section, r.Says})
		t.names = append(t.names, r.Name)
	}
	return a.print(list, anys(list), t)
}
