package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why ID", Short: "Say why an agent does not run", Args: cobra.ExactArgs(1),
		Long: `Say why an agent does not run: on a hub as far as it knows, in the data directory
of its spoke every reason, also while no spoke runs.`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withReader(c.Context(), func(ctx context.Context, c *control.Client) error { return a.why(ctx, c, args[0]) })
		},
	}
}

func (a *app) why(ctx context.Context, c *control.Client, id string) error {
	var v agentView
	path := "/api/v1/tasks/" + url.PathEscape(id)
	if err := c.Do(ctx, "GET", path, nil, &v); err != nil {
		return err
	}
	if v.Hub != "" {
		w, err := control.Answer(c.API().ExplainTaskWithResponse(ctx, v.Task))
		if err != nil {
			return err
		}
		if !a.forPeople() {
			return a.print(w, []any{w}, table{names: []string{v.Task}})
		}
		return a.printWhyHere(ctx, v, reasonsOf(w))
	}
	w := struct {
		Task string `json:"id"`
		Why  string `json:"why"`
	}{v.Task, clauseOf(v.AgentView)}
	if !v.State.Terminal() {
		said, err := a.openOnHub(ctx, c, v.AgentView)
		if err != nil {
			return err
		}
		w.Why = said
	}
	if killOf(v) != "" {
		w.Why += "; a kill was " + killOf(v)
	}
	if !a.forPeople() {
		return a.print(w, []any{w}, table{names: []string{w.Task}})
	}
	_, err := fmt.Fprintln(a.out, printable(w.Why))
	return err
}

// reasonsOf is why an agent does not start, as of any other task.
func reasonsOf(w api.TaskWhy) backlog.Why {
	why := backlog.Why{Task: backlog.Task{ID: w.ID, Title: w.Title, State: commands.State(w.State), Reason: commands.Reason(w.StateReason)}, Claimable: w.Claimable}
	if !w.LeaseUntil.IsZero() {
		why.Task.LeaseUntil = &w.LeaseUntil
	}
	why.Reasons, why.By = each(w.Reasons, reasonFrom), each(w.By, claimerFrom)
	return why
}

// printWhyHere shows a person how an agent of this host stands.
func (a *app) printWhyHere(ctx context.Context, v agentView, w backlog.Why) error {
	dir, err := a.dir()
	if err != nil {
		return err
	}
	said := whyHere(v, w, control.Runs(ctx, dir))
	if said == "" {
		if err := a.printWhy(w); err != nil || killOf(v) == "" {
			return err
		}
		_, err := fmt.Fprintf(a.out, "  a kill was %s\n", printable(killOf(v)))
		return err
	}
	if killOf(v) != "" {
		said += "; a kill was " + killOf(v)
	}
	_, err = fmt.Fprintln(a.out, printable(said))
	return err
}

// clauses say how an agent stands, by its state.
var clauses = map[commands.State]string{
	commands.Claimed:       "it is about to start",
	commands.Running:       "it is running",
	commands.AwaitingInput: "it waits for input",
	commands.Completed:     "it has completed",
	commands.Failed:        "it has failed",
	commands.Cancelled:     "it was cancelled",
	commands.Expired:       "it has expired",
	commands.Unavailable:   "it could not be run",
}

// clauseOf says in one clause how an agent stands, and by which reason.
func clauseOf(v hub.AgentView) string {
	if v.Refusal != nil {
		return "it " + v.Sentence()
	}
	if _, unknown, found := strings.Cut(v.Sentence(), "("+string(commands.LinkRevoked)+"): "); found {
		return unknown
	}
	if v.State == commands.Failed && v.Reason == commands.ExecutorDied {
		return "it was lost: " + strings.TrimPrefix(v.Sentence(), string(v.State)+": ") + "; what it had done until then stays done; order it again, and --on-loss rerun where that may be repeated"
	}
	clause, known := clauses[v.State]
	if !known {
		clause = "it is " + string(v.State)
	}
	return clause + strings.TrimPrefix(v.Sentence(), string(v.State))
}
