package spoke

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/crash"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/spoke/worktree"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// placedNote is the file among an attempt's control files that says that the inputs of its order are in its working tree: without it what is
// there is a part of them, and nothing that an agent has left.
const placedNote = "placed"

// commitsWithin is how long git may take to bundle an agent's own commits.
const commitsWithin = 5 * time.Minute

// addWork adds to the end of an attempt what it has left in its working tree. A fault of the host has a while to pass; then the end is told
// without, and the tree stays. So it is where the collection is given up. The error says that this process stops.
func (s *Spoke) addWork(ctx context.Context, r *run, at time.Time, e *backlog.End) error {
	if at.IsZero() {
		return nil
	}
	order, err := s.orderOf(ctx, r)
	if err != nil {
		return err
	}
	if order.Tree() == nil {
		return nil
	}
	held, stop := r.collecting(ctx, collectWithin, s.backlog.PendingKill)
	defer stop()
	for began, pause := time.Now(), 100*time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		e.Bundle, e.Kept, err = s.collect(held, r, at)
		if err == nil {
			e.Collected = true
			return nil
		}
		why := gaveUp(held)
		if why == nil && held.Err() == nil && time.Since(began) > s.left.patience() {
			why = err
		}
		if why != nil {
			s.Log.ErrorContext(ctx, "what an agent has left in its working tree cannot be collected; its end is told without, and the tree stays", "id", r.fence.Task, "attempt", r.fence.Attempt, "err", why)
			e.Bundle, e.Kept = nil, withoutWork(why)
			return nil
		}
		if !r.rest(ctx, pause) {
			return err
		}
	}
}

// placedAt is when the inputs of the attempt were in place; zero = they were not, or it has none.
func (r *run) placedAt() time.Time {
	info, err := os.Lstat(filepath.Join(r.control(), placedNote))
	if err != nil || !info.Mode().IsRegular() {
		return time.Time{}
	}
	return info.ModTime()
}

// collect takes what an attempt has left: its commits, and on top of them what it did not commit. It may be repeated, and comes to the same.
func (s *Spoke) collect(ctx context.Context, r *run, at time.Time) (*commands.Bundle, string, error) {
	if s.git == nil {
		return nil, "", errNoGit
	}
	repo, err := worktree.Open(ctx, s.git, s.repoDir(r.fence.Task))
	if err != nil {
		return nil, "", err
	}
	tip, lost, err := s.takeCommits(ctx, r, repo)
	if err != nil {
		return nil, "", err
	}
	crash.Point("took an agent's commits")
	files, bytes := s.room()
	by := worktree.By{Name: "spawnmesh", Email: "spawnmesh@" + string(s.Keys.InstanceID()), When: at}
	left, err := repo.Collect(ctx, r.own().Work, tip, r.fence.Attempt, by, worktree.Bounds{Files: files, Bytes: bytes, Listed: 1000})
	if err == nil {
		err = repo.Keep(ctx, left.Tip)
	}
	if err != nil {
		return nil, "", err
	}
	crash.Point("kept what an agent left")
	b, err := s.bundle(ctx, r, repo, left.Tip)
	if b != nil {
		b.Left = left.Made
	}
	others, untold := repo.Untaken(ctx, r.own().Work, r.fence.Task, left.Tip)
	return b, keptOf(left, others, errors.Join(lost, untold)), err
}

// takeCommits takes the commits that an agent has made itself, and returns the last one. What its .git has become is no fault: what the
// files are is taken all the same, and lost says why the commits are not.
func (s *Spoke) takeCommits(ctx context.Context, r *run, repo *worktree.Repo) (tip string, lost, err error) {
	base := repo.Latest()
	if repo.Took(ctx, worktree.Head(r.own().Work), base) { // it has made none
		return base, nil, nil
	}
	out := filepath.Join(r.own().Temp, "spawnmesh-commits-"+rand.Text()) // a name that nothing of the agent has
	defer os.Remove(out)
	_, most := s.room()
	err = s.runConfined(ctx, r, worktree.CollectCommand(s.git, r.own().Work, out, base), commitsWithin)
	if err == nil {
		tip, err = repo.ImportCommits(ctx, out, base, most)
	}
	switch {
	case err == nil:
		return tip, nil, nil
	case ctx.Err() != nil, errors.Is(err, errLeft), hostfault.Is(err):
		return "", nil, err
	}
	s.Log.InfoContext(ctx, "an agent has left no commits of its own that can be taken; its files are", "id", r.fence.Task, "attempt", r.fence.Attempt, "err", err)
	return base, fmt.Errorf("commits of its own: %w", err), nil
}

// bundle makes a blob of the commits that the sender of the order does not have, nil where there are none.
func (s *Spoke) bundle(ctx context.Context, r *run, repo *worktree.Repo, tip string) (*commands.Bundle, error) {
	if tip == repo.Tip() {
		return nil, nil
	}
	b := &commands.Bundle{Base: repo.Origin(), Tip: tip}
	from, to := io.Pipe()
	go func() {
		var err error
		b.Commits, err = repo.Bundle(ctx, b.Base, tip, r.fence.Task, to)
		_ = to.CloseWithError(err)
	}()
	digest, size, err := s.Blobs.Write(from, commands.MaxBlobSize)
	_ = from.CloseWithError(errors.New("nobody reads it"))
	if err != nil {
		return nil, err
	}
	b.Blob = commands.Blob{Digest: digest.String(), Size: size}
	return b, nil
}

// keptOf is what of a working tree is in no commit that comes back, in words. What a .gitignore names is not meant to.
func keptOf(left worktree.Left, others int, untold error) string {
	meant := []worktree.Reason{worktree.Empty, worktree.Rules, worktree.Ignored}
	var list []string
	for reason, n := range left.Counts {
		if !slices.Contains(meant, reason) {
			list = append(list, fmt.Sprintf("%s: %d", strings.ReplaceAll(string(reason), "_", " "), n))
		}
	}
	slices.Sort(list)
	if i := slices.IndexFunc(left.Missing, func(m worktree.Missing) bool { return !slices.Contains(meant, m.Reason) }); i >= 0 {
		list = append(list, "the first is "+left.Missing[i].Path)
	}
	if others > 0 {
		list = append(list, fmt.Sprintf("branches, tags and stashes of its own: %d", others))
	}
	if untold != nil {
		list = append(list, untold.Error())
	}
	return commands.CleanLine(strings.Join(list, "; "), commands.MaxKept)
}

// collectedNote is the file among an attempt's control files that says that its end is recorded with all that it has left: its working tree
// may go once the hub holds that, or at once where that is nothing.
const collectedNote = "collected"

const (
	leftNothing = "nothing"
	leftAll     = "all"
)

// noteCollected notes that what an attempt has left is told with its end, unless something of it is kept.
func (s *Spoke) noteCollected(ctx context.Context, r *run, e backlog.End) {
	if r.placedAt().IsZero() || e.Kept != "" {
		return
	}
	text := leftAll
	if e.Bundle == nil {
		text = leftNothing
	}
	if err := r.note(collectedNote, text); err != nil && !errors.Is(err, fs.ErrExist) {
		s.Log.WarnContext(ctx, "noting that what an agent has left was collected; its working tree stays", "id", r.fence.Task, "attempt", r.fence.Attempt, "err", err)
	}
}

// keepsTree reports whether a directory has a working tree that has to stay: something of it is nowhere else.
func (s *Spoke) keepsTree(dir string, held bool) bool {
	if (&run{dir: dir}).placedAt().IsZero() {
		return false
	}
	raw, err := supervisor.ReadFile(ControlDir(dir), collectedNote, 64)
	if err != nil {
		return true
	}
	switch string(raw) {
	case leftNothing:
		return false
	case leftAll:
		return !held
	}
	return true // there is none
}
