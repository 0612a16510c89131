package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) whyCommand() *cobra.Command {
	spoke := ""
	c := &cobra.Command{
		Use: "why ID|NAME", Short: "Say why an agent or a task does not run, or a spoke takes no work", Args: cobra.MaximumNArgs(1),
		Long: `Say why something does not go on, since when, and what would change it.

Of an agent: on a hub as far as it knows, in the data directory of its spoke every
reason, also while no spoke runs. Of a task of the backlog: what keeps it from being
claimed. Of a spoke: what keeps it from taking work, and what its policy has refused
lately.

A word that names an agent or a spoke is not looked for in the backlog; backlog why
does that.`,
		Example: `  spawnmesh why k7f3m2qp
  spawnmesh why attic
  spawnmesh why A2`,
		RunE: func(c *cobra.Command, args []string) error {
			word, err := oneName(c, "spoke", spoke, args)
			switch {
			case err != nil:
				return err
			case word == "":
				return misuse("why names nothing").Hinting("give the id of an agent or a task, or the name of a spoke: %s ID|NAME", c.CommandPath())
			case spoke == "":
				return a.why(c.Context(), word)
			}
			return a.withReader(c.Context(), func(ctx context.Context, c *control.Client) error {
				v, err := a.spoke(ctx, c, spoke)
				if err != nil {
					return err
				}
				return a.whySpoke(ctx, c, v)
			})
		},
	}
	c.Flags().StringVar(&spoke, "spoke", "", "the spoke `NAME`, where an agent has the same name")
	a.inWorkspace(c)
	return c
}

// why explains what a word names: an agent or a spoke, else a task of the backlog.
func (a *app) why(ctx context.Context, word string) error {
	err := a.withReader(ctx, func(ctx context.Context, c *control.Client) error {
		agent, spoke, err := a.named(ctx, c, word)
		switch {
		case err != nil:
			return err
		case spoke != nil:
			return a.whySpoke(ctx, c, *spoke)
		}
		return a.whyAgent(ctx, c, *agent)
	})
	code := commands.CodeOf(err)
	if code != commands.NotFound && code != commands.Unreachable {
		return err
	}
	var w api.BacklogWhy
	inBacklog := a.asking(ctx, func(ctx context.Context, c *control.Client) (err error) {
		w, err = control.Answer(c.API().ExplainBacklogTaskWithResponse(ctx, a.workspace, word))
		return err
	})
	switch {
	case inBacklog == nil:
		return a.printWhy(whyFrom(w))
	case code == commands.NotFound && commands.CodeOf(inBacklog) == commands.NotFound:
		return commands.Refuse(commands.NotFound, "no agent, no spoke and no task is named %s", commands.Clip(word)).Hinting("see: %s agents, spokes, connections list, or backlog list; what was refused here: %s", a.self(), a.line("audit", "list", "--object", word))
	}
	return err
}

// named is the agent or the spoke that a word names. One that names several of them is refused.
func (a *app) named(ctx context.Context, c *control.Client, word string) (*agentView, *spokeView, error) {
	s, noSpoke := a.spoke(ctx, c, word)
	agent, err := agentNamed(ctx, c, word)
	code, both := commands.CodeOf(err), noSpoke == nil && s.Name == word
	switch {
	case noSpoke == nil && code == commands.NotFound:
		return nil, &s, nil
	case both && err == nil:
		return nil, nil, commands.Refuse(commands.Ambiguous, "%s names a spoke and the agent %s", commands.Clip(word), agent.ShortID).
			Hinting("give that id, or ask of the spoke").Running("why", "--spoke", word)
	case both && code == commands.Ambiguous:
		return nil, nil, commands.Refuse(commands.Ambiguous, "%v; and a spoke", err).Hinting("give one of these ids, or ask of the spoke").Running("why", "--spoke", word)
	}
	return &agent, nil, err
}

func (a *app) whyAgent(ctx context.Context, c *control.Client, v agentView) error {
	if v.State == commands.AwaitingInput && a.forPeople() {
		said, err := a.waitingFor(ctx, c, v.Task)
		if err != nil || said != "" {
			fmt.Fprint(a.out, said)
			return err
		}
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
		w.Why += "; a " + killWord(v) + " was " + killOf(v)
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
	runs, err := a.hostRuns(ctx)
	if err != nil {
		return err
	}
	said := whyHere(v, w, runs)
	if said == "" {
		if err := a.printWhy(w); err != nil || killOf(v) == "" {
			return err
		}
		_, err := fmt.Fprintf(a.out, "  a %s was %s\n", killWord(v), printable(killOf(v)))
		return err
	}
	if killOf(v) != "" {
		said += "; a " + killWord(v) + " was " + killOf(v)
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
	if v.Refused() {
		return "it " + v.Sentence()
	}
	if _, unknown, found := strings.Cut(v.Sentence(), "("+string(commands.LinkRevoked)+"): "); found {
		return unknown
	}
	if v.State == commands.Failed && v.Reason == commands.ExecutorDied {
		lost := "it was lost"
		if how, told := strings.CutPrefix(v.Sentence(), string(v.State)+": "); told { // a viewer is not told
			lost += ": " + how
		}
		return lost + "; what it had done until then stays done; order it again, and --on-loss rerun where that may be repeated"
	}
	clause, known := clauses[v.State]
	if !known {
		clause = "it is " + string(v.State)
	}
	return clause + strings.TrimPrefix(v.Sentence(), string(v.State))
}
