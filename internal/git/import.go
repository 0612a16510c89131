package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// ErrDiverged says that a branch has commits that a bundle has not.
var ErrDiverged = errors.New("the branch has other commits")

// An Import is what there is after a bundle was imported.
type Import struct {
	Branch string // the full name of the ref
	Tip    string // where it is
	Was    string // where it was before; "" where it is new, Tip where nothing changed
}

// Import takes a bundle that Bundle or a spoke has made of one branch into the repository that path is in, as the branch of the same
// name, refs/heads/spawnmesh/... Nothing else of the repository is changed, and a branch that is there is only moved on to commits
// that follow on its own. most bounds the bytes of the bundle.
func (g *Git) Import(ctx context.Context, path string, bundle io.Reader, most int64, branch string) (done Import, err error) {
	r, err := g.Operator().Describe(ctx, path)
	if err != nil {
		return done, err
	}
	if err := g.checkBranch(ctx, branch); err != nil {
		return done, err
	}
	done.Branch = branch
	judge := func(h Header) (Parcel, error) {
		done.Tip = h.Refs[branch]
		if done.Tip == "" || len(h.Refs) != 1 {
			return Parcel{}, fmt.Errorf("%w: it has to have %s, and nothing else", ErrNoBundle, branch)
		}
		return Parcel{Known: []string{"--all"}, Accept: func(ctx context.Context, env []string) (err error) {
			done.Was, err = g.mayMove(ctx, Call{GitDir: r.GitDir, Env: env}, done)
			return err
		}}, nil
	}
	if err := g.TakeBundle(ctx, r.Objects, bundle, most, judge); err != nil {
		return done, fmt.Errorf("importing %s into %s: %w", branch, r.where(), err)
	}
	if done.Was == done.Tip {
		return done, nil
	}
	was := done.Was
	if was == "" {
		was = strings.Repeat("0", len(done.Tip)) // it must not be there
	}
	c := Call{GitDir: r.GitDir, Args: []string{"update-ref", "-m", "spawnmesh: fetched", branch, done.Tip, was}}
	if err := g.Operator().Run(ctx, c); err != nil {
		return done, fmt.Errorf("importing %s into %s: %w", branch, r.where(), err)
	}
	return done, nil
}

// checkBranch refuses names that are not below spawnmesh/, or that git has no room for.
func (g *Git) checkBranch(ctx context.Context, branch string) error {
	err := g.Run(ctx, Call{Args: []string{"check-ref-format", branch}})
	if err != nil || !strings.HasPrefix(branch, Branches) {
		return errors.Join(fmt.Errorf("%.200q is no name of a branch below %s", branch, Branches), err)
	}
	return nil
}

// mayMove returns where a branch is, unless it may not be moved to the tip.
func (g *Git) mayMove(ctx context.Context, c Call, to Import) (was string, err error) {
	c.Args = []string{"for-each-ref", "--format=%(refname) %(objectname) %(worktreepath)", to.Branch}
	text, err := g.line(ctx, c)
	text, is := strings.CutPrefix(text, to.Branch+" ")
	if err != nil || !is {
		return "", err
	}
	was, checkedOut, _ := strings.Cut(text, " ")
	if was == to.Tip {
		return was, nil
	}
	if checkedOut != "" {
		return "", fmt.Errorf("%s is checked out in %s: check out another branch there", to.Branch, checkedOut)
	}
	if follows, err := g.Follows(ctx, c, was, to.Tip); err != nil || follows {
		return was, err
	}
	return "", fmt.Errorf("%w: %s is at %s, which %s does not follow: rename it, or delete it", ErrDiverged, to.Branch, was, to.Tip)
}

// Follows reports whether one commit is another, or has it among its ancestors.
func (g *Git) Follows(ctx context.Context, c Call, ancestor, id string) (bool, error) {
	c.Args = []string{"merge-base", "--is-ancestor", ancestor, id}
	err := g.Run(ctx, c)
	if failed, ok := errors.AsType[*Failed](err); ok && failed.Code == 1 {
		return false, nil
	}
	return err == nil, err
}

// Diff writes what changed between two commits as text: files with numbers of lines, then the lines. The commits are in the repository
// that path is in, or in the bundles, of which each may build on those before it; with path "" on these alone. The repository is read
// only. What the files say is written as it is: whoever shows it at a terminal has to take control characters out.
func (g *Git) Diff(ctx context.Context, path string, bundles []io.Reader, most int64, from, to string, w io.Writer) error {
	if !IsID(from) || !IsID(to) {
		return fmt.Errorf("%.80q and %.80q have to be names of commits", from, to)
	}
	temp, err := os.MkdirTemp("", "spawnmesh-git-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := g.Init(ctx, temp, len(from)); err != nil {
		return err
	}
	if path != "" {
		r, err := g.Operator().Describe(ctx, path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(temp+"/objects/info/alternates", []byte(quoted(r.dir())+"\n"), 0o600); err != nil {
			return err
		}
	}
	for _, b := range bundles {
		judge := func(h Header) (Parcel, error) { return Parcel{Known: h.Needs}, nil }
		if err := g.TakeBundle(ctx, Objects{GitDir: temp}, b, most, judge); err != nil {
			return fmt.Errorf("reading what has changed: %w", err)
		}
	}
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", "--patch-with-stat", "--submodule=short", from, to, "--"}
	return g.Run(ctx, Call{GitDir: temp, Args: args, Out: w})
}

// Init makes an empty bare repository in a directory, for names of objects of so many digits.
func (g *Git) Init(ctx context.Context, dir string, digits int) error {
	format := "sha1"
	if digits == 64 {
		format = "sha256"
	}
	return g.Run(ctx, Call{Args: []string{"init", "--bare", "--quiet", "--template=", "--object-format=" + format, dir}})
}
