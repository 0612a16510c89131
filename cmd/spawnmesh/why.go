package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/instance"
)

func (a *app) whyCommand() *cobra.Command {
	spoke := ""
	c := &cobra.Command{
		Use: "why ID|NAME", Short: "Say why an agent or a task does not run, or a spoke takes no work", Args: cobra.MaximumNArgs(1),
		Long: `Say why something does not go on, since when, and what would change it.

Of an agent: on a hub what is known there, and where it waits on its spoke, what that
says when it is asked (up to 3 s); in the data directory of its spoke every reason,
also while no spoke runs. Of a task of the backlog: what keeps it from being claimed.
Of a spoke: what keeps it from taking work, and what its policy has refused lately.
Of a hub, on the host of its spoke: what keeps its orders from being done there.

With -o json each reason has a code, since and until when, on which spoke, what would
change it (fix) and, where it is about a number, that (figure).

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
	if code != commands.NotFound && code != commands.Unreachable && code != commands.Forbidden {
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
	case commands.CodeOf(inBacklog) != commands.NotFound:
	case code == commands.Forbidden || code == commands.Unreachable && a.onlyBacklog():
		return inBacklog // nobody else has answered
	case code == commands.NotFound:
		return commands.Refuse(commands.NotFound, "no agent, no spoke and no task is named %s", commands.Clip(word)).Hinting("see: %s agents, spokes, connections list, or backlog list; what was refused here: %s", a.self(), a.line("audit", "list", "--object", word))
	}
	return err
}

// onlyBacklog reports whether the instance of this host has no agents, and never had: neither hub nor spoke has run there.
func (a *app) onlyBacklog() bool {
	dir, err := a.dir()
	if err != nil || isHub(dir) {
		return false
	}
	_, err = instance.LoadKeys(dir)
	return err == nil
}

// named is the agent or the spoke that a word names. One that names several of them is refused. Of who may not ask for agents,
// or for spokes, none is there.
func (a *app) named(ctx context.Context, c *control.Client, word string) (*agentView, *spokeView, error) {
	s, noSpoke := a.spoke(ctx, c, word)
	agent, err := agentNamed(ctx, c, word)
	code, both := commands.CodeOf(err), noSpoke == nil && s.Name == word
	none := code == commands.NotFound || code == commands.Forbidden
	switch {
	case noSpoke == nil && none:
		return nil, &s, nil
	case s.ID != "" && !isSpoke(s.connectionView) && none:
		return nil, &s, nil // a hub of this host
	case code == commands.Forbidden && commands.CodeOf(noSpoke) == commands.NotFound:
		return nil, nil, noSpoke
	case both && err == nil:
		return nil, nil, commands.Refuse(commands.Ambiguous, "%s names a spoke and the agent %s", commands.Clip(word), agent.ShortID).
			Hinting("give that id, or ask of the spoke").Running("why", "--spoke", word)
	case both && code == commands.Ambiguous:
		return nil, nil, commands.Refuse(commands.Ambiguous, "%v; and a spoke", err).Hinting("give one of these ids, or ask of the spoke").Running("why", "--spoke", word)
	}
	return &agent, nil, err
}

// askWhy is how long a spoke may take to say why an agent waits.
const askWhy = "3s"

func (a *app) whyAgent(ctx context.Context, c *control.Client, v agentView) error {
	ask := ""
	if v.Hub == "" {
		ask = askWhy
	}
	w, err := control.Answer(c.API().ExplainTaskWithResponse(ctx, v.Task, &api.ExplainTaskParams{Ask: ask}))
	switch {
	case err != nil:
		return err
	case !a.forPeople():
		return a.print(w, []any{w}, table{names: []string{v.Task}})
	}
	_, err = fmt.Fprintln(a.out, printable(a.reasonLines(each(w.Reasons, reasonFrom))))
	return err
}
