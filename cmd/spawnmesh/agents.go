package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) agentsCommand() *cobra.Command {
	var f agentFlags
	var watching bool
	c := &cobra.Command{
		Use: "agents", Aliases: []string{"ps", "ls"}, Short: "List agents, newest first", Args: cobra.NoArgs,
		Long: `List agents, newest first: in a hub's data directory those that it ordered, in a
spoke's those that run or ran on this host, also while no spoke runs; where an
instance is both, all of them.

STATE is how people say it; -o wide shows the machine's state and reason, too, which
JSON has. --state takes either: cancelled has all that were, killed those that were
killed, and 'failed: exit 4' those that ended with that code.

` + selectorHelp + `

The states are: ` + strings.Replace(statesText(), ", in_review", ",\nin_review", 1) + `.`,
		Example: "  spawnmesh agents --open --spoke attic\n  spawnmesh agents -l app=web,tier!=db\n  spawnmesh agents -l '!app' --state failed --since 2h",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			more, empty := false, "no such agents; all of them: "+a.line("agents")
			list := func(ctx context.Context, c *control.Client) (found []agentView, err error) {
				found, more, err = f.list(ctx, c)
				if err == nil && len(found) == 0 && !f.narrow() {
					empty, err = a.noAgents(ctx, c)
				}
				return found, err
			}
			show := func(found []agentView) error {
				if err := a.printAgents(found, empty); err != nil {
					return err
				}
				a.sayMore(more && !a.bare, "agents", "--limit N")
				return nil
			}
			if watching {
				return a.watchAgents(c.Context(), list, show)
			}
			var found []agentView
			err := a.withReader(c.Context(), func(ctx context.Context, c *control.Client) (err error) {
				found, err = list(ctx, c)
				return err
			})
			if err != nil {
				return err
			}
			return show(found)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.spoke, "spoke", "", "only those on the spoke `NAME`")
	fl.StringVar(&f.hub, "hub", "", "only those that the hub `NAME` ordered")
	fl.BoolVar(&f.open, "open", false, "only those that have not ended")
	fl.BoolVar(&f.archived, "archived", false, "of a hub: those that are archived, which are not listed else")
	fl.StringArrayVarP(&f.labels, "selector", "l", nil, "only those with labels as `SELECTOR` says (repeatable)")
	fl.StringSliceVar(&f.states, "state", nil, "only those in `STATE` (repeatable)")
	fl.Var(&f.since, "since", "only those ordered in the last DURATION, or since TIME")
	fl.BoolVarP(&watching, "watch", "w", false, "of a hub: show it again when something changes")
	fl.IntVar(&f.limit, "limit", 50, "at most `N`")
	return c
}

// watchAgents shows a list of agents until it is interrupted.
func (a *app) watchAgents(ctx context.Context, list func(context.Context, *control.Client) ([]agentView, error), show func([]agentView) error) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return watchList(ctx, a, c, watched[agentView]{
		list:  func(ctx context.Context) ([]agentView, error) { return list(ctx, c) },
		print: show,
		key:   func(v agentView) string { return v.Task },
		about: func(e api.Event) string { return e.Task },
	})
}

// statesText lists the states of agents.
func statesText() string {
	var list []string
	for _, s := range commands.States {
		list = append(list, string(s))
	}
	return strings.Join(list, ", ")
}

// printMirrors lists agents as their hub knows them.
func (a *app) printMirrors(list []store.Mirror) error {
	views := make([]agentView, len(list))
	for i, m := range list {
		views[i].Mirror = m
	}
	return a.printAgents(views, "no agents yet")
}

// noAgents says where the first agent comes from, or that all are archived.
func (a *app) noAgents(ctx context.Context, c *control.Client) (string, error) {
	list, more, err := agentFlags{archived: true, limit: pageLength}.list(ctx, c)
	switch dir, wrong := a.dir(); {
	case err != nil:
		return "", err
	case len(list) > 0:
		return a.onlyArchived("agents", len(list), more, "agents", "--archived"), nil
	case wrong == nil && !a.away() && !isHub(dir):
		return "no agents yet; hubs order them: " + a.line("connections", "list"), nil
	}
	return "no agents yet; spawn one: " + a.self() + " spawn --spoke NAME -- echo hi", nil
}

// printAgents shows agents, or says in the words of empty that there are none.
func (a *app) printAgents(list []agentView, empty string) error {
	if len(list) == 0 {
		return printList(a, list, table{empty: empty})
	}
	t := table{head: append(peersOf(list), "STATE", a.ageOr("ORDERED"), "COMMAND"), yields: "STATE", wide: []string{"VERDICT", "PROGRESS", "MACHINE STATE", "ATTEMPT", "PRIORITY", "BY", "LABELS", "FULL ID"}}
	for _, v := range list {
		m, row := v.Mirror, []string{commands.ShortID(v.Task)}
		for _, role := range t.head[1:slices.Index(t.head, "STATE")] {
			row = append(row, cmp.Or(map[string]string{"SPOKE": v.Spoke, "HUB": v.Hub}[role], "-"))
		}
		command := commandLine(m.Spec)
		if m.Title != "" {
			command = m.Title
		}
		machine := string(m.State)
		if m.Reason != "" {
			machine += " (" + string(m.Reason) + ")"
		}
		verdict := "-"
		if v.Verdict != nil {
			verdict = string(v.Verdict.Word)
		}
		t.rows = append(t.rows, append(row, v.Words(), a.since(m.CreatedAt), shorten(command, 50),
			verdict, shorten(cmp.Or(progressWords(v.Progress), "-"), 50), machine, strconv.Itoa(m.Attempt), strconv.Itoa(m.Priority), m.CreatedBy, cmp.Or(m.Labels.Text(), "-"), m.Task))
		t.names = append(t.names, m.Task)
	}
	return printList(a, list, t)
}

// peersOf are the first columns of a list of agents: on which spoke each runs, or
// for which hub it runs here, or both where there are both.
func peersOf(list []agentView) []string {
	here := slices.ContainsFunc(list, func(v agentView) bool { return v.Hub != "" })
	away := slices.ContainsFunc(list, func(v agentView) bool { return v.Hub == "" })
	switch {
	case here && away:
		return []string{"ID", "SPOKE", "HUB"}
	case here:
		return []string{"ID", "HUB"}
	}
	return []string{"ID", "SPOKE"}
}
