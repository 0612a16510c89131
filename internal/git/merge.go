package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// ErrConflicts says that two commits change the same lines.
var ErrConflicts = errors.New("there are conflicts")

// A Merge is what a merge has done, or would do.
type Merge struct {
	Branch    string   // that was moved: a whole name
	Was, Is   string   // where it was, and is
	Forward   bool     // it was moved on to the tip, without a commit of its own
	Conflicts []string // the files; none where it was merged
}

// Merge merges a commit that is in the repository of path into a branch that is nowhere checked out: by moving it on where that is enough, else by
// a commit with a message, which needs git [OldestToMerge]. Nothing that the repository or the commits name is run: no hook, no filter, no merge driver. With
// [ErrConflicts], and with any other error, nothing was changed.
func (g *Git) Merge(ctx context.Context, path, tip, onto, message string) (m Merge, err error) {
	r, err := g.Operator().Describe(ctx, path)
	if err != nil {
		return m, err
	}
	m.Branch = "refs/heads/" + onto
	in := Call{GitDir: r.GitDir}
	if m.Was, err = g.unused(ctx, in, m.Branch, r); err != nil {
		return m, err
	}
	if m.Is, m.Forward = m.Was, true; m.Was == tip {
		return m, nil
	}
	if has, err := g.Follows(ctx, in, tip, m.Was); err != nil || has {
		return m, err
	}
	m.Is = tip
	if m.Forward, err = g.Follows(ctx, in, m.Was, tip); err != nil {
		return m, err
	}
	if !m.Forward {
		if err := g.merges(); err != nil {
			return m, err
		}
		if m.Is, m.Conflicts, err = g.joined(ctx, r, m.Was, tip, message); err != nil {
			return m, err
		}
	}
	in.Args = []string{"update-ref", "-m", "spawnmesh: merged", m.Branch, m.Is, m.Was}
	if err := g.Operator().Run(ctx, in); err != nil {
		return m, fmt.Errorf("moving %s in %s: %w", m.Branch, r.where(), err)
	}
	return m, nil
}

// unused returns where a branch is that is nowhere checked out.
func (g *Git) unused(ctx context.Context, c Call, branch string, r *Repository) (was string, err error) {
	c.Args = []string{"for-each-ref", "--format=%(refname) %(objectname) %(worktreepath)", branch}
	text, err := g.line(ctx, c)
	text, is := strings.CutPrefix(text, branch+" ")
	if err != nil {
		return "", err
	}
	if !is {
		return "", fmt.Errorf("%s has no branch %s", r.where(), strings.TrimPrefix(branch, "refs/heads/"))
	}
	was, checkedOut, _ := strings.Cut(text, " ")
	if checkedOut != "" {
		return "", fmt.Errorf("%w: %s, in %s", ErrCheckedOut, branch, checkedOut)
	}
	return was, nil
}

// joined makes a commit of two. What the trees become is found in a repository that is empty but for their objects.
func (g *Git) joined(ctx context.Context, r *Repository, was, tip, message string) (commit string, conflicts []string, err error) {
	temp, err := os.MkdirTemp("", "spawnmesh-merge-")
	if err != nil {
		return "", nil, err
	}
	defer os.RemoveAll(temp)
	if err := g.Init(ctx, temp, len(tip)); err != nil {
		return "", nil, err
	}
	out := &clip{most: outputMost}
	err = g.Run(ctx, Call{GitDir: temp, Env: []string{"GIT_OBJECT_DIRECTORY=" + r.dir()}, Out: out, Args: []string{"merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", was, tip}})
	fields := strings.Split(strings.TrimSuffix(out.text.String(), "\x00"), "\x00")
	if failed, ok := errors.AsType[*Failed](err); ok && failed.Code == 1 && len(fields) > 1 {
		return "", slices.Compact(fields[1:]), ErrConflicts
	}
	if err != nil {
		return "", nil, fmt.Errorf("merging %s in %s: %w", tip, r.where(), err)
	}
	commit, err = g.Operator().line(ctx, Call{GitDir: r.GitDir, Args: []string{"commit-tree", "--no-gpg-sign", "-m", message, "-p", was, "-p", tip, fields[0]}})
	return commit, nil, err
}
