package spoke

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/crash"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/spoke/door"
	"github.com/spawnmesh/spawnmesh/spoke/place"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What an agent keeps for its next attempt is in a file of the data directory, named by its digest, and the database
// says which one counts. The order matters for a crash: the new file is whole and on the disk before the database names
// it, and the old one goes after that.

// checkpointFile is what holds the checkpoint of a task, in the directory of an attempt's door, too.
const checkpointFile = "checkpoint"

func checkpointDir(dataDir, task string) string { return filepath.Join(dataDir, "checkpoints", task) }

// draft is how the names of files begin that are not whole yet.
const draft = ".draft-"

// mostKept is how many files of a task there are beside drafts. More than one there are only where commits were not answered.
const mostKept = 4

// keepData keeps data as the checkpoint of an attempt. It is written as it comes: two at a time may come, see
// [door.MaxCheckpoint].
func (s *Spoke) keepData(ctx context.Context, r *run, data io.Reader) (time.Time, error) {
	dir := checkpointDir(s.Dir, r.fence.Task)
	file, c, err := writeDraft(dir, data)
	if err != nil {
		return time.Time{}, fmt.Errorf("keeping the checkpoint of an agent: %w", err)
	}
	r.keeps.Lock()
	defer r.keeps.Unlock()
	// It is whole: who asked for it may hang up.
	ctx = context.WithoutCancel(ctx)
	if err := s.roomToKeep(ctx, r, dir); err != nil {
		_ = os.Remove(file)
		return time.Time{}, err
	}
	path := filepath.Join(dir, c.Digest)
	_, err = os.Lstat(path)
	before := err == nil
	if err := errors.Join(os.Rename(file, path), fsync.Dir(dir)); err != nil {
		_ = os.Remove(file)
		return time.Time{}, fmt.Errorf("keeping the checkpoint of an agent: %w", err)
	}
	crash.Point("wrote a checkpoint")
	at, err := s.backlog.KeepCheckpoint(ctx, r.fence, c)
	if err != nil {
		putBack(path, before, err)
		return at, err
	}
	// A later attempt may have kept another one since.
	if last, unknown := s.backlog.LastCheckpoint(ctx, r.fence.Task); unknown == nil {
		removeBut(dir, last.Digest)
	}
	return at, nil
}

// roomToKeep removes what does not count where there are many files. While the database cannot say which one counts, there is no room.
func (s *Spoke) roomToKeep(ctx context.Context, r *run, dir string) error {
	n := 0
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), draft) {
			n++
		}
	}
	if n < mostKept {
		return nil
	}
	digest, err := s.backlog.SettledCheckpoint(ctx, r.fence)
	if err == nil {
		removeBut(dir, digest)
	}
	return err
}

// putBack removes a file that the database does not name, since err says that nothing was committed. One that was there before may
// be the one that counts.
func putBack(path string, before bool, err error) {
	if !before && !errors.Is(err, store.ErrCommitUnknown) {
		_ = os.Remove(path)
	}
}

// writeDraft writes a file that is on the disk as a whole, or removed again.
func writeDraft(dir string, data io.Reader) (file string, c backlog.Checkpoint, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", c, err
	}
	f, err := os.CreateTemp(dir, draft)
	if err != nil {
		return "", c, err
	}
	sum := sha256.New()
	c.Size, err = io.Copy(io.MultiWriter(f, sum), data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", c, errors.Join(err, os.Remove(f.Name()))
	}
	c.Digest = hex.EncodeToString(sum.Sum(nil))
	return f.Name(), c, nil
}

// removeDrafts removes what an earlier process was about to keep.
func removeDrafts(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draft) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// removeBut removes what is not the checkpoint that counts, nor about to be one. What cannot be removed goes with the task.
func removeBut(dir, digest string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != digest && !strings.HasPrefix(e.Name(), draft) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// handOver gives an attempt that is about to start what the one before has kept. A file that is not what the database says is
// left out: the agent then begins anew. One that this host cannot read now is none of these.
func (s *Spoke) handOver(ctx context.Context, r *run, ids map[string]string) error {
	c, err := s.backlog.LastCheckpoint(ctx, r.fence.Task)
	if err != nil {
		return err
	}
	if c.Session != nil && *c.Session != "" {
		ids[runtime.SessionVariable] = *c.Session
	}
	if c.Digest == "" {
		return nil
	}
	data, err := readCheckpoint(filepath.Join(checkpointDir(s.Dir, r.fence.Task), c.Digest), c.Digest)
	if place.Fault(err) {
		return fmt.Errorf("reading the checkpoint of an agent: %w", err)
	}
	if err != nil {
		s.Log.ErrorContext(ctx, "the checkpoint of an agent cannot be read; its attempt begins anew", "id", r.fence.Task, "attempt", r.fence.Attempt, "err", err)
		return nil
	}
	path := filepath.Join(r.own().Door, checkpointFile)
	if err := write(r.own().Door, []placed{{path: checkpointFile, content: string(data), mode: 0o400}}); err != nil {
		return fmt.Errorf("giving an agent its checkpoint: %w", err)
	}
	ids[runtime.CheckpointVariable] = path
	return nil
}

// giveTold makes what an attempt is told in files its agent's own: its copy of the checkpoint, its prompt, its review and its inputs.
func giveTold(r *run) error {
	if r.user.ID == 0 {
		return nil
	}
	for _, name := range []string{checkpointFile, promptFile, changesFile, inputsFile} {
		err := os.Lchown(filepath.Join(r.own().Door, name), int(r.user.ID), int(r.user.ID))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func readCheckpoint(path, digest string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, door.MaxCheckpoint+1))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("%s is not what was kept", path)
	}
	return data, nil
}

// retireCheckpoints removes those of tasks that ended long ago, or are gone.
func (s *Spoke) retireCheckpoints(ctx context.Context) error {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "checkpoints"))
	if err != nil {
		return nil // there are none
	}
	var tasks []string
	for _, e := range entries { // one that was just made may not be in the database yet
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > time.Hour {
			tasks = append(tasks, e.Name())
		}
	}
	kept, err := s.backlog.WithCheckpoints(ctx, tasks, keepAttempts)
	if err != nil {
		return err
	}
	for _, task := range tasks {
		if !kept[task] {
			err = errors.Join(err, os.RemoveAll(checkpointDir(s.Dir, task)))
		}
	}
	return err
}
