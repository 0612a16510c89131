package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/git"
)

func (a *app) fetchCommand() *cobra.Command {
	var into string
	var wait bool
	c := &cobra.Command{
		Use: "fetch ID", Short: "Bring what an agent has left into a repository, as a branch", Args: cobra.ExactArgs(1),
		Long: `Bring what an agent has left into the repository that its order was made from, as the
branch spawnmesh/ID: its own commits, and a last one with what it had not committed.
Nothing else of the repository is changed, and a branch of this name is only moved on
to commits that follow.

Its bytes are compared with the digest in the result, which the spoke has signed, and
each object is checked. The agent may be anybody's program: look at what it has done
before you run it.

While the agent has not ended, or its spoke has not brought its work yet, the exit
code is 12; --wait waits for both.`,
		Example: "  spawnmesh fetch k7f3m2qp\n  spawnmesh fetch k7f3m2qp --wait --into ~/src/project && git log -p ..spawnmesh/ID",
		RunE:    func(c *cobra.Command, args []string) error { return a.fetch(c.Context(), args[0], into, wait) },
	}
	c.Flags().StringVar(&into, "into", ".", "the repository is `REPO`")
	c.Flags().BoolVar(&wait, "wait", false, "wait until the agent has ended and its work is here")
	return c
}

// A fetched is what fetch has done.
type fetched struct {
	ID         string `json:"id"`
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
	Base       string `json:"base"`
	Tip        string `json:"tip"`
	Was        string `json:"was,omitempty"` // the tip before
	Commits    int    `json:"commits"`
	Left       bool   `json:"left,omitempty"`
	Kept       string `json:"kept,omitempty"`
	Digest     string `json:"digest"`
	Size       int64  `json:"size"`
}

func (a *app) fetch(ctx context.Context, id, into string, wait bool) error {
	g, repo, err := repositoryAt(ctx, "--into", into)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	w, err := a.workOf(ctx, c, id, wait)
	if err != nil {
		return err
	}
	defer w.file.Close()
	b := w.Bundle
	l := a.lasting("checking what the agent has left")
	done, err := g.Import(ctx, into, w.forGit())
	l.done()
	switch {
	case errors.Is(err, git.ErrDiverged):
		return commands.Refuse(commands.Conflict, "%v", err)
	case errors.Is(err, git.ErrCheckedOut):
		return commands.Refuse(commands.Conflict, "%v; nothing was changed", err).Hinting("check out another branch there, as with git switch -, and type the line again")
	case err != nil:
		return notRead(ctx, err, "--into")
	}
	where := repo.Top
	if where == "" {
		where = repo.GitDir
	}
	got := fetched{w.ID, where, strings.TrimPrefix(done.Branch, "refs/heads/"), b.Base, b.Tip, done.Was, b.Commits, b.Left, w.Kept, b.Digest, b.Size}
	a.did("%s was brought into %s", got.Branch, got.Repository)
	return a.printFetched(got, into)
}

func (a *app) printFetched(v fetched, into string) error {
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Branch}})
	}
	line := func(words ...string) string {
		if into != "." {
			words = append([]string{"-C", into}, words...)
		}
		return commands.ShellLine(append([]string{"git"}, words...))
	}
	var list pairs
	list.add("repository", v.Repository)
	list.add("branch", v.Branch)
	said := fmt.Sprintf("%s behind %s", amount(int64(v.Commits), "commit"), begun(v.Base))
	if v.Left {
		said += "; the last has what was not committed"
	}
	list.add("work", said)
	if v.Was == v.Tip {
		list.add("", "it was here before")
	}
	list.add("not in it", v.Kept)
	list.add("look at it", line("log", "-p", v.Base[:min(12, len(v.Base))]+".."+v.Branch))
	list.add("take it", line("merge", v.Branch))
	return a.align(list, 0)
}

// repositoryAt is the repository that a flag names.
func repositoryAt(ctx context.Context, flag, path string) (*git.Git, *git.Repository, error) {
	g, err := git.Find(ctx)
	if err != nil {
		return nil, nil, unpacked(ctx, flag, err)
	}
	r, err := g.Operator().Describe(ctx, path)
	if err != nil && ctx.Err() == nil {
		err = misuse("%s: %v", flag, err).Hinting("name the repository that the order was made from: %s REPO", flag)
	}
	return g, r, err
}

// notRead says why what an agent has left cannot be taken into, or read beside, a repository.
func notRead(ctx context.Context, err error, flag string) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, git.ErrOther):
		return commands.Refuse(commands.Conflict, "the spoke contradicts its result: %v; nothing was changed", err).Hinting("do not take it; ask the host of the spoke")
	case errors.Is(err, git.ErrLacks):
		return misuse("%v", err).Hinting("name the repository that the order was made from: %s REPO", flag)
	}
	return err
}

// notSigned says that the hub's bytes are not those that the spoke has signed.
func notSigned(w *work, why string) error {
	return misuse("what the hub has of agent %s is not what its spoke has signed: %s; nothing was changed", w.ShortID, why).
		Hinting("try again; if it stays so, ask the operator of the hub: its disk or somebody has changed it")
}

// workOf gets what an agent has left, compared with its result.
func (a *app) workOf(ctx context.Context, c *control.Client, id string, wait bool) (*work, error) {
	v, err := control.Answer(c.API().GetTaskResultWithResponse(ctx, id))
	if err == nil && wait && v.ResultState != ready {
		stop := a.telling(ctx, c, v.ID, true)
		_, err = a.await(ctx, c, v.ID)
		stop()
		if err == nil {
			v, err = control.Answer(c.API().GetTaskResultWithResponse(ctx, v.ID))
		}
	}
	if err != nil {
		return nil, err
	}
	if v.ResultState != ready {
		return nil, commands.Refuse(commands.NoResult, "agent %s has no result yet: it is %s", v.ShortID, v.State).Hinting("to wait for its end").Running("fetch", v.ShortID, "--wait")
	}
	w := &work{TaskResult: v}
	if err := w.onOrigin(); err != nil {
		return nil, err
	}
	l := a.lasting("asking for what the agent has left")
	defer l.done()
	return w, w.get(ctx, c, l, wait)
}
