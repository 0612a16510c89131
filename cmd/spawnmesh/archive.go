package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) archiveCommand() *cobra.Command {
	var older days
	var labels []string
	c := &cobra.Command{
		Use: "archive [ID]...", Short: "Leave agents that have ended out of lists",
		Long: `Leave agents that have ended out of lists: those that are named, or all that ended
longer ago than --older-than, have labels as -l says, or both.

agents --archived lists them. status, why, logs and result show an archived agent as
before, and it is kept as long as any other: see spawnmesh retention. Nothing of its
result changes. See also: spawnmesh unarchive`,
		Example: "  spawnmesh archive k7f3m2qp\n  spawnmesh archive --older-than 7d -l app=web",
		RunE: func(c *cobra.Command, ids []string) error {
			if c.Flags().Changed("older-than") && older == 0 {
				return misuse("--older-than is above 0, such as 1s")
			}
			chosen := older > 0 || len(labels) > 0
			switch {
			case chosen && len(ids) > 0:
				return misuse("ids name agents, and so do --older-than and -l").Hinting("give one or the other")
			case !chosen && len(ids) == 0:
				return misuse("no agent is named").Hinting("name some by their ids, or by --older-than DURATION or -l SELECTOR")
			case chosen:
				return a.archiveChosen(c.Context(), time.Duration(older), labels)
			}
			return a.changeEach(c.Context(), ids, "is archived", func(c api.ClientInterface) taskChange { return c.ArchiveTask })
		},
	}
	c.Flags().Var(&older, "older-than", "those that ended longer ago")
	c.Flags().StringArrayVarP(&labels, "selector", "l", nil, "those with labels as `SELECTOR` says (repeatable)")
	return c
}

func (a *app) unarchiveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "unarchive ID...", Short: "Show archived agents in lists again", Args: cobra.MinimumNArgs(1),
		Example: "  spawnmesh unarchive k7f3m2qp",
		RunE: func(c *cobra.Command, ids []string) error {
			return a.changeEach(c.Context(), ids, "is in lists again", func(c api.ClientInterface) taskChange { return c.UnarchiveTask })
		},
	}
}

func (a *app) labelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "label ID NAME=VALUE...", Short: "Give an agent labels, also one that has ended", Args: cobra.MinimumNArgs(2),
		Long: `Give an agent labels, also one that has ended. A label that it has gets the new
value; the others stay. Nothing else of the agent changes, and no spoke is told.`,
		Example: "  spawnmesh label k7f3m2qp ticket=4711",
		RunE: func(c *cobra.Command, args []string) error {
			labels, err := labelsOf("", args[1:])
			if err != nil {
				return err
			}
			return a.changeEach(c.Context(), args[:1], "has the labels "+labels.Text(), func(c api.ClientInterface) taskChange {
				return func(ctx context.Context, task string, more ...api.RequestEditorFn) (*http.Response, error) {
					return c.LabelTask(ctx, task, api.NewLabels{Labels: api.Labels(labels)}, more...)
				}
			})
		},
	}
}

// A taskChange changes what a hub alone knows of an agent.
type taskChange func(ctx context.Context, task string, more ...api.RequestEditorFn) (*http.Response, error)

// changeEach changes each agent, whatever is wrong with another one. The exit code is that of the first problem.
func (a *app) changeEach(ctx context.Context, ids []string, so string, change func(api.ClientInterface) taskChange) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return eachOf(a, ids, func(id string) (v agentView, name, said string, err error) {
		v, err = control.Read[agentView](change(c.API())(ctx, id))
		if err == nil && v.Task == "" {
			err = namesNoAgent("request")
		}
		return v, v.Task, "agent " + commands.ShortID(v.Task) + " " + so, err
	})
}

// eachOf does something to each of what is named, and says what came of it. The exit code is that of the first problem.
func eachOf[T any](a *app, ids []string, do func(id string) (v T, name, said string, err error)) (failed error) {
	var list []T
	var names []string
	for _, id := range ids {
		v, name, said, err := do(id)
		if err != nil {
			if code := a.printError(err); failed == nil {
				failed = exitCode(code)
			}
			continue
		}
		list, names = append(list, v), append(names, name)
		a.did("%s", said)
		if a.forPeople() {
			fmt.Fprintln(a.out, printable(said))
		}
	}
	if !a.forPeople() {
		if err := printList(a, list, table{names: names}); err != nil {
			return err
		}
	}
	return failed
}

// archiveChosen archives what is chosen by its age or labels, as many at a time as one request does.
func (a *app) archiveChosen(ctx context.Context, older time.Duration, given []string) error {
	labels, err := selector(given)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	asked := api.ArchiveSelection{OlderThanMS: older.Milliseconds(), Labels: labels}
	return a.archiveAll("agent", func(cursor string) (api.ArchiveSummary, error) {
		asked.Cursor = cursor
		return control.Read[api.ArchiveSummary](c.API().ArchiveTasks(ctx, asked))
	})
}

// archiveAll archives one batch after the other, and says how many of what is archived that are.
func (a *app) archiveAll(what string, batch func(cursor string) (api.ArchiveSummary, error)) error {
	sum, cursor := 0, ""
	for more := true; more; {
		got, err := batch(cursor)
		if err != nil && sum > 0 {
			return fmt.Errorf("%s were archived, and then: %w", numberOf(sum, what), err)
		}
		if err != nil {
			return err
		}
		sum, cursor, more = sum+got.Archived, got.Next, got.Next != ""
	}
	a.did("%s archived", numberOf(sum, what))
	if a.forPeople() {
		fmt.Fprintf(a.out, "%s archived\n", numberOf(sum, what))
		return nil
	}
	return a.print(api.ArchiveSummary{Archived: sum}, []any{api.ArchiveSummary{Archived: sum}}, table{})
}
