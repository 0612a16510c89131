// Package worktree keeps the repository of one task, and the working trees in which agents work on it.
//
// The repository is the daemon's: it is made by it, of a bundle, and no agent reaches it. A working tree is an agent's, with a .git of
// its own that shares nothing with the repository; whatever an agent makes of that .git, no git of the daemon reads it. What an agent
// leaves comes back in two ways: its commits in a bundle that git makes confined as the agent was ([CollectCommand],
// [Repo.ImportCommits]), and its files, read here as data ([Repo.Collect]).
//
// Everything may be repeated after a crash at any point, with the same outcome. One repository is used by one goroutine at a time.
package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/internal/git"
)

// Refs of a repository.
const (
	tipRef    = "refs/spawnmesh/tip"    // what the first attempt begins with
	originRef = "refs/spawnmesh/origin" // the last commit of it that its operator has
	latestRef = "refs/spawnmesh/latest" // what the last attempt has left
)

// ErrNotOrdered says that a bundle is not what the order says.
var ErrNotOrdered = errors.New("the bundle is not what was ordered")

// A Repo is the repository of a task.
type Repo struct {
	git    *git.Git
	dir    string
	tip    string
	origin string
	latest string // "" while no attempt has left anything
}

// An Input is what a bundle of an order has to be.
type Input struct {
	Tip    string // the commit that the first attempt begins with
	Origin string // the last commit of it that its operator has
	Most   int64  // bytes of the bundle
}

// Create makes the repository of a task in dir, of the bundle that [git.Git.BundleTree] has written, which has to be what the order says. One
// that is there already is opened.
func Create(ctx context.Context, g *git.Git, dir string, bundle io.Reader, in Input) (*Repo, error) {
	if !git.IsID(in.Tip) || !git.IsID(in.Origin) {
		return nil, fmt.Errorf("%w: %.80q and %.80q have to be names of commits", ErrNotOrdered, in.Tip, in.Origin)
	}
	r, err := Open(ctx, g, dir)
	if err == nil && (r.tip != in.Tip || r.origin != in.Origin) {
		return nil, fmt.Errorf("%w: %s is of %s on %s, not of %s on %s", ErrNotOrdered, dir, r.tip, r.origin, in.Tip, in.Origin)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	draft := dir + ".new"
	if err := os.RemoveAll(draft); err != nil { // a crash left it
		return nil, fmt.Errorf("making the repository %s: %w", dir, err)
	}
	err = takeInput(ctx, g, draft, bundle, in)
	if err == nil {
		err = os.Rename(draft, dir)
	}
	if err = errors.Join(err, fsync.Dir(filepath.Dir(dir))); err != nil {
		return nil, errors.Join(fmt.Errorf("making the repository %s: %w", dir, err), os.RemoveAll(draft))
	}
	return Open(ctx, g, dir)
}

// takeInput makes a repository of a bundle.
func takeInput(ctx context.Context, g *git.Git, dir string, bundle io.Reader, in Input) error {
	if err := g.Init(ctx, dir, len(in.Tip)); err != nil {
		return err
	}
	judge := func(h git.Header) (git.Parcel, error) {
		origin := h.Refs[git.OriginRef]
		switch {
		case h.Refs[git.InputRef] != in.Tip || cmp.Or(origin, in.Tip) != in.Origin:
			return git.Parcel{}, fmt.Errorf("%w: it is %.64q on %.64q, and has to be %s on %s", ErrNotOrdered, h.Refs[git.InputRef], cmp.Or(origin, in.Tip), in.Tip, in.Origin)
		case len(h.Refs) == 2 && origin == "" || len(h.Refs) > 2:
			return git.Parcel{}, fmt.Errorf("%w: it has refs that are not known here", ErrNotOrdered)
		case len(h.Needs) > 0:
			return git.Parcel{}, fmt.Errorf("%w: it builds on commits that are not in it", ErrNotOrdered)
		}
		return git.Parcel{}, nil
	}
	if err := g.TakeBundle(ctx, git.Objects{GitDir: dir}, bundle, in.Most, judge); err != nil {
		return err
	}
	if ok, err := g.Follows(ctx, git.Call{GitDir: dir}, in.Origin, in.Tip); err != nil || !ok {
		return errors.Join(fmt.Errorf("%w: %s does not follow %s", ErrNotOrdered, in.Tip, in.Origin), err)
	}
	for ref, id := range map[string]string{tipRef: in.Tip, originRef: in.Origin} {
		if err := g.Run(ctx, git.Call{GitDir: dir, Args: []string{"update-ref", ref, id}}); err != nil {
			return err
		}
	}
	return nil
}

// Open opens a repository that Create has made; [fs.ErrNotExist] where there is none. What a crash left unfinished in it is removed.
func Open(ctx context.Context, g *git.Git, dir string) (*Repo, error) {
	if _, err := os.Lstat(dir); err != nil {
		return nil, fmt.Errorf("opening the repository: %w", err)
	}
	r := &Repo{git: g, dir: dir}
	text, err := g.Output(ctx, git.Call{GitDir: dir, Args: []string{"for-each-ref", "--format=%(objectname) %(refname)", "refs/spawnmesh/"}})
	if err = errors.Join(err, git.Sweep(r.objects())); err != nil {
		return nil, fmt.Errorf("opening the repository %s: %w", dir, err)
	}
	for line := range strings.Lines(text) {
		switch id, ref, _ := strings.Cut(strings.TrimSpace(line), " "); ref {
		case tipRef:
			r.tip = id
		case originRef:
			r.origin = id
		case latestRef:
			r.latest = id
		}
	}
	return r, nil
}

// Tip is the commit that the first attempt begins with.
func (r *Repo) Tip() string { return r.tip }

// Origin is the last commit of Tip that the operator's repository has: what a bundle of results is to build on.
func (r *Repo) Origin() string { return r.origin }

// Latest is the commit that the next attempt begins with: what the last one has left that was kept, or Tip.
func (r *Repo) Latest() string { return cmp.Or(r.latest, r.tip) }

// Keep notes what an attempt has left: a commit that is in the repository.
func (r *Repo) Keep(ctx context.Context, id string) error {
	if err := r.git.Run(ctx, git.Call{GitDir: r.dir, Args: []string{"update-ref", latestRef, id}}); err != nil {
		return fmt.Errorf("noting what an attempt has left: %w", err)
	}
	r.latest = id
	return nil
}

func (r *Repo) objects() git.Objects { return git.Objects{GitDir: r.dir} }

func (r *Repo) output(ctx context.Context, args ...string) (string, error) {
	text, err := r.git.Output(ctx, git.Call{GitDir: r.dir, Args: args})
	return strings.TrimSuffix(text, "\n"), err
}

// ErrNothing says that there is no commit to bundle.
var ErrNothing = errors.New("nothing was committed")

// Bundle writes the commits that tip has and base has not, as the branch that name says, refs/heads/spawnmesh/NAME, and returns how many
// they are; [ErrNothing] where tip is base.
func (r *Repo) Bundle(ctx context.Context, base, tip, name string, w io.Writer) (commits int, err error) {
	if base == tip {
		return 0, ErrNothing
	}
	h := git.Header{Needs: []string{base}, Refs: map[string]string{git.Branches + name: tip}}
	wanted := base + ".." + tip
	count, err := r.output(ctx, "rev-list", "--count", wanted, "--")
	if err == nil {
		_, err = fmt.Sscan(count, &commits)
	}
	if err == nil {
		err = r.git.Bundle(ctx, git.Call{GitDir: r.dir}, h, w)
	}
	if err != nil {
		return 0, fmt.Errorf("bundling %s: %w", wanted, err)
	}
	return commits, nil
}
