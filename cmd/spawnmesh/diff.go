package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/git"
)

func (a *app) diffCommand() *cobra.Command {
	var repo string
	c := &cobra.Command{
		Use: "diff ID", Short: "Show what an agent has changed, before it is fetched", Args: cobra.ExactArgs(1),
		Long: `Show what an agent has changed: the difference between the last commit that you have,
and all that is in what it has left. What --dirty has sent is part of it. The
repository that the order was made from is read, and nothing in it is changed.

On a terminal control characters of what the agent has written are dots; a file or a
pipe gets the bytes as they are, for git apply.`,
		Example: "  spawnmesh diff k7f3m2qp\n  spawnmesh diff k7f3m2qp --repo ~/src/project | git apply",
		RunE:    func(c *cobra.Command, args []string) error { return a.diff(c.Context(), args[0], repo) },
	}
	c.Flags().StringVar(&repo, "repo", ".", "the repository is `REPO`")
	return c
}

func (a *app) diff(ctx context.Context, id, repo string) error {
	g, _, err := repositoryAt(ctx, "--repo", repo)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	w, err := a.workOf(ctx, c, id, false)
	if err != nil {
		return err
	}
	defer w.file.Close()
	write := func(to io.Writer) error {
		return notRead(ctx, g.Diff(ctx, repo, w.forGit(), to), "--repo")
	}
	if a.forPeople() && !terminal(a.out) {
		return write(a.out)
	}
	text := &heldText{most: diffMost}
	if err := write(text); text.over {
		return misuse("what agent %s has changed has more than %s of text, which is the most that is shown here", w.ShortID, commands.SizeInWords(diffMost)).
			Hinting("write it into a file, as with > changes.diff, or bring it as a branch: spawnmesh fetch %s", w.ShortID)
	} else if err != nil {
		return err
	}
	if a.forPeople() {
		return a.showText(text.String())
	}
	v := struct {
		ID   string `json:"id"`
		Base string `json:"base"`
		Tip  string `json:"tip"`
		Diff string `json:"diff"`
	}{w.ID, w.Bundle.Base, w.Bundle.Tip, text.String()}
	return a.print(v, []any{v}, table{names: []string{git.Branches + w.ID}})
}

// diffMost is how much is held to be shown on a terminal, or in one document. A file or a pipe gets it as it comes.
const diffMost = 16 << 20

// heldText is a text of at most so many bytes. What is more ends who writes it.
type heldText struct {
	bytes.Buffer
	most int
	over bool
}

func (h *heldText) Write(b []byte) (int, error) {
	if h.over = h.over || len(b) > h.most-h.Len(); h.over {
		return 0, errors.New("it has more than is held")
	}
	return h.Buffer.Write(b)
}

// showText shows a text of others on the terminal, through the pager where it is longer.
func (a *app) showText(text string) error {
	text = new(screen).show(text)
	if command := a.pager(strings.Count(text, "\n")); command != "" {
		return a.page(command, []byte(text))
	}
	_, err := io.WriteString(a.out, text)
	return err
}
