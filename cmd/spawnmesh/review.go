package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/git"
)

func (a *app) reviewCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "review", Short: "Review what agents have delivered, and merge it",
		Long: `Review what agents have delivered of orders with spawn --review. It waits in the
state in_review, on its spoke and here, until it is approved or goes on with changes.
What is approved is merged, and has completed then; where the agent has left no
commits, the approval completes it.

Who gave an order does not review it, unless it is an owner of this hub. The first
word on an attempt counts: it may be said again, and another one is refused with what
stands. It is stored at once, and told to the spoke when that is there.`,
	}
	c.AddCommand(a.reviewListCommand(), a.reviewShowCommand(), a.reviewDiffCommand(), a.reviewApproveCommand(), a.reviewChangesCommand(), a.reviewMergeCommand())
	return c
}

func (a *app) reviewListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List what waits for its review, or for its merge", Args: cobra.NoArgs,
		Long: `List what waits for its review, or for its merge: the agents in the states in_review
and approved.`,
		Example: "  spawnmesh review list",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		f := agentFlags{open: true, states: []string{string(commands.InReview), string(commands.Approved)}, limit: 100}
		var found []agentView
		more := false
		err := a.withReader(c.Context(), func(ctx context.Context, client *control.Client) (err error) {
			found, more, err = f.list(ctx, client)
			return err
		})
		if err != nil {
			return err
		}
		if err := a.printAgents(found, "nothing waits for a review"); err != nil {
			return err
		}
		a.sayMore(more && !a.bare, "agents", "agents --state in_review --limit N")
		return nil
	}
	return c
}

func (a *app) reviewShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show what an agent has delivered", Args: cobra.ExactArgs(1),
		Long: `Show what an agent has delivered, and what came of the review: see
spawnmesh status --help`,
		Example: "  spawnmesh review show k7f3m2qp",
		RunE:    func(c *cobra.Command, args []string) error { return a.status(c.Context(), args[0], false) },
	}
}

func (a *app) reviewDiffCommand() *cobra.Command {
	c := a.diffCommand()
	c.Example = "  spawnmesh review diff k7f3m2qp --repo ~/src/project"
	return c
}

func (a *app) reviewApproveCommand() *cobra.Command {
	var attempt int
	c := &cobra.Command{
		Use: "approve ID", Short: "Approve what an agent has delivered", Args: cobra.ExactArgs(1),
		Long: `Approve what an agent has delivered. It is merged with: spawnmesh review merge ID
Where the agent has left no commits, it has completed.`,
		Example: "  spawnmesh review approve k7f3m2qp",
		RunE: func(c *cobra.Command, args []string) error {
			return a.review(c.Context(), args[0], api.ReviewRequest{Attempt: attempt, Verdict: commands.Approve})
		},
	}
	ofAttempt(c, &attempt)
	return c
}

func (a *app) reviewChangesCommand() *cobra.Command {
	var attempt int
	var message string
	c := &cobra.Command{
		Use: "request-changes ID", Short: "Have an agent go on with what is to be changed", Args: cobra.ExactArgs(1),
		Long: `Have an agent go on with what is to be changed: its next attempt begins with what it
has left, and finds the message in the file that SPAWNMESH_PROMPT_FILE names; worker
acp prompts its coding agent with it. It spends no retry, and is done 20 times at
most.`,
		Example: "  spawnmesh review request-changes k7f3m2qp --message 'test the empty list'",
		RunE: func(c *cobra.Command, args []string) error {
			if strings.TrimSpace(message) == "" {
				return misuse("nothing says what is to be changed").Hinting("add --message \"what\"; the agent goes on with it")
			}
			return a.review(c.Context(), args[0], api.ReviewRequest{Attempt: attempt, Verdict: commands.RequestChanges, Message: message})
		},
	}
	ofAttempt(c, &attempt)
	c.Flags().StringVar(&message, "message", "", "what is to be changed is `TEXT` (required)")
	return c
}

func ofAttempt(c *cobra.Command, n *int) {
	c.Flags().IntVar(n, "attempt", 0, "it is the work of attempt `N` that was looked at; 0 = the last one")
}

// review says what came of a review, of the last attempt where nothing else is said.
func (a *app) review(ctx context.Context, id string, r api.ReviewRequest) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	v, err := agentNamed(ctx, c, id)
	if err != nil {
		return err
	}
	if r.Attempt == 0 {
		r.Attempt = max(v.Attempt, 1)
	}
	return a.say(ctx, c, v.Task, r)
}

// say tells the hub what came of a review, and how the agent stands then.
func (a *app) say(ctx context.Context, c *control.Client, task string, r api.ReviewRequest) error {
	v, err := control.Read[agentView](c.API().ReviewTask(ctx, task, r))
	if err != nil {
		return err
	}
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Task}})
	}
	_, err = fmt.Fprintf(a.out, "agent %s: %s\n", commands.ShortID(v.Task), printable(v.ReviewSaid()))
	return err
}

func (a *app) reviewMergeCommand() *cobra.Command {
	var into, onto string
	c := &cobra.Command{
		Use: "merge ID", Short: "Merge what was approved into a branch", Args: cobra.ExactArgs(1),
		Long: `Merge what was approved into a branch of a repository, as fetch brings it there: the
branch is moved on, or gets a commit of both. It is never forced, and may not be
checked out. No hook, filter or merge driver is run. Then the agent has completed.

Where it conflicts with the branch, nothing is changed but that the work is there as
the branch spawnmesh/ID, and the agent goes on with the names of the files. The exit
code is that of a conflict then.

What was merged in another way is told with --merged, which looks at no repository.`,
		Example: "  spawnmesh review merge k7f3m2qp --into ~/src/project --onto main",
	}
	merged := false
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case merged:
			return a.review(c.Context(), args[0], api.ReviewRequest{Verdict: commands.Merged})
		case onto == "":
			return misuse("no branch is named").Hinting("name it with --onto BRANCH")
		}
		return a.merge(c.Context(), args[0], into, onto)
	}
	c.Flags().StringVar(&into, "into", ".", "the repository is `REPO`")
	c.Flags().StringVar(&onto, "onto", "", "the branch is `BRANCH`, required unless --merged")
	c.Flags().BoolVar(&merged, "merged", false, "it was merged in another way")
	return c
}

// merge merges what was approved, and tells the hub.
func (a *app) merge(ctx context.Context, id, into, onto string) error {
	g, _, err := repositoryAt(ctx, "--into", into)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	v, err := agentNamed(ctx, c, id)
	if err == nil && v.State != commands.Approved && v.State != commands.Completed {
		err = commands.Refuse(commands.Conflict, "agent %s is %s, and is not merged before it is approved", v.ShortID, v.State).Hinting("to approve it").Running("review", "approve", v.ShortID)
	}
	if err != nil {
		return err
	}
	w, err := a.workOf(ctx, c, v.Task, false)
	if err != nil {
		return err
	}
	defer w.file.Close()
	l := a.lasting("merging what the agent has left")
	_, err = g.Import(ctx, into, w.forGit())
	var m git.Merge
	if err == nil {
		m, err = g.Merge(ctx, into, w.Bundle.Tip, onto, fmt.Sprintf("Merge the work of agent %s into %s", w.ShortID, onto))
	}
	l.done()
	said := api.ReviewRequest{Attempt: w.Attempt, Verdict: commands.Merged}
	switch {
	case errors.Is(err, git.ErrConflicts):
		said.Verdict, said.Message = commands.Conflicts, conflictsIn(m, onto)
		if told := a.say(ctx, c, v.Task, said); told != nil {
			return told
		}
		return commands.Refuse(commands.Conflict, "%s; the agent goes on with that", commands.OneLine(said.Message))
	case errors.Is(err, git.ErrDiverged), errors.Is(err, git.ErrCheckedOut):
		return commands.Refuse(commands.Conflict, "%v; nothing was merged", err).Hinting("check out another commit there, as with git switch --detach, and type the line again")
	case errors.Is(err, git.ErrCannotMerge):
		return misuse("%v; nothing was merged", err).Hinting("install it, or merge the branch %s by hand, and then: spawnmesh review merge %s --merged", w.forGit().Branch, w.ShortID)
	case err != nil:
		return notRead(ctx, err, "--into")
	}
	a.did("%s is at %s, with the work of agent %s", onto, m.Is, w.ShortID)
	return a.say(ctx, c, v.Task, said)
}

// conflictsIn says to an agent what its work conflicts with.
func conflictsIn(m git.Merge, onto string) string {
	text := fmt.Sprintf("The work cannot be merged into %s, which is at %s. Both change:", onto, m.Was)
	for i, name := range m.Conflicts {
		if i == 100 || len(text)+len(name) > commands.MaxReview/2 {
			return text + fmt.Sprintf("\n- and %d more", len(m.Conflicts)-i)
		}
		text += "\n- " + commands.Clean(name, 1000)
	}
	return text
}
