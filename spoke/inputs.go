package spoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/git"
	"github.com/spawnmesh/spawnmesh/internal/tartree"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/spoke/worktree"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// reposDir is where, in the data directory, the repositories of tasks are: out of the reach of agents, and of all their attempts.
const reposDir = "repos"

func (s *Spoke) repoDir(task string) string { return filepath.Join(s.Dir, reposDir, task) }

// bringInputs places the inputs of an attempt, which may take longer than its lease: it returns until when that lasts afterwards. It ends when
// the attempt is not this process's any more.
func (s *Spoke) bringInputs(ctx context.Context, r *run) (supervisor.Instant, error) {
	held, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-r.lost:
		case <-r.leave:
		case <-held.Done():
		}
		stop()
	}()
	if err := s.placeInputs(held, r); err != nil {
		return 0, errors.Join(err, emptied(r.own().Work)) // a part of an input is of no use, and takes room until it is swept
	}
	from := supervisor.Boottime()
	has, err := s.backlog.Renew(held, []backlog.Fence{r.fence}, s.Lease)
	if err == nil && !has[r.fence] {
		err = errors.New("the lease was lost while the inputs were put in place")
	}
	return from.Add(s.Lease), err
}

// emptied removes what is in a directory.
func emptied(dir string) error {
	if err := supervisor.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing what was placed of the inputs: %w", err)
	}
	return os.Mkdir(dir, 0o700)
}

// placeInputs puts the inputs of an order into the fresh directory of an attempt. They are held: an order without them is not
// claimed. What makes them unusable would do so the next time, too: that is a [*runtime.Refusal].
func (s *Spoke) placeInputs(ctx context.Context, r *run) error {
	root, err := os.OpenRoot(r.own().Work)
	if err != nil {
		return fmt.Errorf("placing the inputs of an order: %w", err)
	}
	defer root.Close()
	for i := range r.spec.Inputs {
		in := &r.spec.Inputs[i]
		err := s.placeInput(ctx, r, root, in)
		if err != nil && s.lacks(in) {
			return errors.Join(fmt.Errorf("placing input %d of the order, which is fetched again: %w", i+1, err), s.fetchAgain(ctx, r, in))
		}
		if err != nil {
			return unusable(fmt.Errorf("placing input %d of the order: %w", i+1, err))
		}
	}
	return nil
}

// giveInputs makes all that was placed a user's own, before its agent runs, and notes that it is in place.
func (s *Spoke) giveInputs(r *run) error {
	if len(r.spec.Inputs) == 0 {
		return nil
	}
	if err := giveAll(r.own().Work, r.user.ID); err != nil {
		return fmt.Errorf("giving an agent its inputs: %w", err)
	}
	return r.note(placedNote, "inputs")
}

// giveAll makes everything in a directory that no agent has had yet a user's own.
func giveAll(dir string, user int64) error {
	if user == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		return root.Lchown(path, int(user), int(user))
	})
}

func (s *Spoke) placeInput(ctx context.Context, r *run, root *os.Root, in *commands.Input) error {
	bytes, err := s.openBlob(in)
	if err != nil {
		return err
	}
	defer bytes.Close()
	if in.Kind == commands.InputFile {
		return placeFile(root, in, bytes)
	}
	if in.Path != "" {
		if err := root.MkdirAll(in.Path, 0o700); err != nil {
			return err
		}
	}
	dir := filepath.Join(r.own().Work, in.Path)
	if in.Kind == commands.InputTar {
		return s.inRoom(func(files, size int64) error {
			return tartree.Untar(ctx, bytes, dir, tartree.Bounds{Entries: files, Bytes: size})
		})
	}
	return s.placeTree(ctx, r, in, bytes, dir)
}

// lacks reports whether the bytes of an input that was held are not on the disk any more, or are not those of its digest: whoever read them
// may have stumbled before their end.
func (s *Spoke) lacks(in *commands.Input) bool {
	r, err := s.openBlob(in)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		err = errors.Join(err, r.Close())
	}
	return errors.Is(err, blob.ErrDamaged) || errors.Is(err, fs.ErrNotExist)
}

// fetchAgain has an input fetched that is lost or damaged here: its hub may still have it. The attempt is given back.
func (s *Spoke) fetchAgain(ctx context.Context, r *run, in *commands.Input) error {
	err := s.backlog.InputGone(ctx, backlog.Wanted{Conn: r.asker, Blob: in.Blob})
	s.transfers.Look()
	return err
}

// openBlob opens the bytes of an input. Who reads them to their end is sure that they are those.
func (s *Spoke) openBlob(in *commands.Input) (*blob.Reader, error) {
	digest, err := blob.Parse(in.Digest)
	if err != nil {
		return nil, err
	}
	return s.Blobs.Open(digest)
}

// errTaken says that two inputs have the same file.
var errTaken = errors.New("it is in a directory that the order brings, too")

func placeFile(root *os.Root, in *commands.Input, from io.Reader) error {
	if dir := filepath.Dir(in.Path); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	mode := modeOf(commands.File{Exec: in.Exec})
	f, err := root.OpenFile(in.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the file %s: %w", in.Path, errTaken)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// placeTree makes a working tree. The first attempt begins with what was sent, and each later one with what the one before it has left.
func (s *Spoke) placeTree(ctx context.Context, r *run, in *commands.Input, bundle io.Reader, dir string) error {
	name := s.repoDir(r.fence.Task)
	if in.Path != "" {
		name = filepath.Join(r.control(), "input-"+in.Digest)
		defer os.RemoveAll(name)
	} else if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	if s.git == nil {
		return errNoGit
	}
	repo, err := worktree.Create(ctx, s.git, name, bundle, worktree.Input{Tip: in.Tip, Origin: in.Base(), Most: in.Size})
	if err != nil {
		return err
	}
	return s.inRoom(func(files, bytes int64) error {
		return repo.Checkout(ctx, dir, r.fence.Task, repo.Latest(), worktree.Room{Files: files, Bytes: max(bytes-in.Size, 0)}) // its .git has the objects once more
	})
}

// room is how many files and bytes an agent may have.
func (s *Spoke) room() (files, bytes int64) {
	limits := s.Policy.Now().Limits
	unbounded := func(n int64) int64 {
		if n == 0 {
			return math.MaxInt64
		}
		return n
	}
	return unbounded(limits.DiskFiles()), unbounded(limits.DiskBytes())
}

// inRoom places what may take so many files and bytes: what an agent may have, of what is free above the reserve. Where it is that which does
// not do, there may be room later.
func (s *Spoke) inRoom(place func(files, bytes int64) error) error {
	files, bytes := s.room()
	free, err := Free(s.Dir)
	if err != nil {
		return err
	}
	reserve := s.Reserve()
	freeFiles, freeBytes := max(free.Inodes-reserve.Inodes, 0), max(free.Bytes-reserve.Bytes, 0)
	if free.Inodes < 0 {
		freeFiles = files
	}
	err = place(min(files, freeFiles), min(bytes, freeBytes))
	many, large := errors.Is(err, worktree.ErrTooMany) || errors.Is(err, tartree.ErrTooMany), errors.Is(err, worktree.ErrTooLarge) || errors.Is(err, tartree.ErrTooLarge)
	if many && freeFiles < files || large && freeBytes < bytes {
		return fmt.Errorf("%w above limits.reserve of the policy: %w", syscall.ENOSPC, err)
	}
	return err
}

// unusable is err as what makes an order of no use, where it says so of the input itself. A fault of this host may pass.
func unusable(err error) error {
	if hostfault.Is(err) {
		return err
	}
	for _, lasting := range []error{worktree.ErrNotOrdered, worktree.ErrTooLarge, worktree.ErrTooMany, git.ErrNoBundle, git.ErrBad, git.ErrLacks, git.ErrTooLarge, tartree.ErrBad, tartree.ErrTooLarge, tartree.ErrTooMany, errTaken} {
		if errors.Is(err, lasting) {
			return &runtime.Refusal{Reason: runtime.BadInput, Text: err.Error()}
		}
	}
	return err
}
