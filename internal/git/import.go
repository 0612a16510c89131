package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Errors of a branch that is not moved.
var (
	ErrDiverged   = errors.New("the branch has other commits") // than the bundle has
	ErrCheckedOut = errors.New("the branch is checked out")    // its files would be of another commit
)

// ErrOther says that a bundle is not of the commits that it has to be of.
var ErrOther = errors.New("it is not of the commits that it has to be of")

// A Work is a bundle of what an agent has left, and what it has to be: one branch, that goes from a commit to another.
type Work struct {
	Bundle    io.Reader
	Most      int64 // its bytes
	Branch    string
	Base, Tip string
}

// judge wants what the work has to be: of a bundle of anything else a repository is to have nothing.
func (w Work) judge(h Header) error {
	switch {
	case len(h.Refs) != 1 || h.Refs[w.Branch] == "":
		return fmt.Errorf("%w: it has to have %s, and nothing else", ErrNoBundle, w.Branch)
	case h.Refs[w.Branch] != w.Tip:
		return fmt.Errorf("%w: its last is %s, and has to be %.64q", ErrOther, h.Refs[w.Branch], w.Tip)
	case len(h.Needs) != 1 || h.Needs[0] != w.Base:
		return fmt.Errorf("%w: it builds on %.140q, and has to build on %.64q alone", ErrOther, h.Needs, w.Base)
	}
	return nil
}

// follows wants the tip to have the base among its ancestors.
func (g *Git) follows(ctx context.Context, c Call, w Work) error {
	ok, err := g.Follows(ctx, c, w.Base, w.Tip)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s does not follow %s", ErrOther, w.Tip, w.Base)
	}
	return err
}

// An Import is what there is after a bundle was imported.
type Import struct {
	Branch string // the full name of the ref
	Tip    string // where it is
	Was    string // where it was before; "" where it is new, Tip where nothing changed
}

// Import takes work into the repository that path is in, as the branch of its name, refs/heads/spawnmesh/... Nothing else of the
// repository is changed, and a branch that is there is only moved on to commits that follow on its own.
func (g *Git) Import(ctx context.Context, path string, w Work) (done Import, err error) {
	r, err := g.Operator().Describe(ctx, path)
	if err != nil {
		return done, err
	}
	if err := g.checkBranch(ctx, w.Branch); err != nil {
		return done, err
	}
	done.Branch, done.Tip = w.Branch, w.Tip
	judge := func(h Header) (Parcel, error) {
		return Parcel{Known: []string{"--all"}, Accept: func(ctx context.Context, env []string) (err error) {
			c := Call{GitDir: r.GitDir, Env: env}
			if err = g.follows(ctx, c, w); err == nil {
				done.Was, err = g.mayMove(ctx, c, done)
			}
			return err
		}}, w.judge(h)
	}
	if err := g.TakeBundle(ctx, r.Objects, w.Bundle, w.Most, judge); err != nil {
		return done, fmt.Errorf("importing %s into %s: %w", w.Branch, r.where(), err)
	}
	if done.Was == done.Tip {
		return done, nil
	}
	was := done.Was
	if was == "" {
		was = strings.Repeat("0", len(done.Tip)) // it must not be there
	}
	c := Call{GitDir: r.GitDir, Args: []string{"update-ref", "-m", "spawnmesh: fetched", w.Branch, done.Tip, was}}
	if err := g.Operator().Run(ctx, c); err != nil {
		return done, fmt.Errorf("importing %s into %s: %w", w.Branch, r.where(), err)
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
		return "", fmt.Errorf("%w: %s, in %s", ErrCheckedOut, to.Branch, checkedOut)
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

// Diff writes what work has changed as text: files with numbers of lines, then the lines. Its base is in the repository that path is in,
// which is read only. What the files say is written as it is: whoever shows it at a terminal has to take control characters out.
func (g *Git) Diff(ctx context.Context, path string, w Work, to io.Writer) error {
	if !IsID(w.Base) || !IsID(w.Tip) {
		return fmt.Errorf("%.80q and %.80q have to be names of commits", w.Base, w.Tip)
	}
	r, err := g.Operator().Describe(ctx, path)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "spawnmesh-git-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := g.Init(ctx, temp, len(w.Base)); err != nil {
		return err
	}
	if err := os.WriteFile(temp+"/objects/info/alternates", []byte(quoted(r.dir())+"\n"), 0o600); err != nil {
		return err
	}
	judge := func(h Header) (Parcel, error) {
		return Parcel{Known: h.Needs, Accept: func(ctx context.Context, env []string) error {
			return g.follows(ctx, Call{GitDir: temp, Env: env}, w)
		}}, w.judge(h)
	}
	if err := g.TakeBundle(ctx, Objects{GitDir: temp}, w.Bundle, w.Most, judge); err != nil {
		return fmt.Errorf("reading what has changed: %w", err)
	}
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", "--patch-with-stat", "--submodule=short", w.Base, w.Tip, "--"}
	return g.Run(ctx, Call{GitDir: temp, Args: args, Out: to})
}

// Init makes an empty bare repository in a directory, for names of objects of so many digits.
func (g *Git) Init(ctx context.Context, dir string, digits int) error {
	format := "sha1"
	if digits == 64 {
		format = "sha256"
	}
	return g.Run(ctx, Call{Args: []string{"init", "--bare", "--quiet", "--template=", "--object-format=" + format, dir}})
}
