package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spawnmesh/spawnmesh/internal/git"
)

// CollectCommand is a program with its arguments that bundles the commits of an agent after base to the file out, which must not be
// in the working tree. It reads what the agent has made of its .git: it is to be run confined as the agent was, and what comes of it is
// not to be trusted. Where there are no commits it fails, and writes nothing.
func CollectCommand(g *git.Git, work, out, base string) []string {
	return []string{g.Path(), "--no-pager", "--no-replace-objects", "--git-dir=" + filepath.Join(work, ".git"), "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
		"-c", "gc.auto=0", "-c", "pack.threads=1", "-c", "pack.windowMemory=64m", "-c", "core.bigFileThreshold=8m", "-c", "protocol.allow=never",
		"bundle", "create", "--quiet", out, base + "..HEAD"}
}

// Errors of commits that are not imported. Nothing of them is in the repository then.
var (
	ErrNoFile = errors.New("no regular file")      // what is to have the commits is a link, a pipe, a device
	ErrBehind = errors.New("base is not below it") // the commits do not follow on what the agent began with
)

// ImportCommits takes the commits of a file that [CollectCommand] has left: HEAD of the agent, which is returned, has to follow on base.
// Histories that the agent has merged come along. The file may be anything; of its path only the last element may be an agent's.
func (r *Repo) ImportCommits(ctx context.Context, path, base string, most int64) (tip string, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) { // a link; a socket
		err = fmt.Errorf("%w: %s", ErrNoFile, path)
	}
	if err != nil {
		return "", fmt.Errorf("importing an agent's commits: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(fmt.Errorf("importing an agent's commits: %w: %s", ErrNoFile, path), err)
	}
	judge := func(h git.Header) (git.Parcel, error) {
		tip = h.Refs["HEAD"]
		if tip == "" || len(h.Refs) != 1 || len(tip) != len(base) {
			return git.Parcel{}, fmt.Errorf("%w: it has to have HEAD, and nothing else", git.ErrNoBundle)
		}
		return git.Parcel{Known: []string{base}, Accept: func(ctx context.Context, env []string) error {
			ok, err := r.git.Follows(ctx, git.Call{GitDir: r.dir, Env: env}, base, tip)
			if err == nil && !ok {
				err = fmt.Errorf("%w: %s does not follow %s", ErrBehind, tip, base)
			}
			return err
		}}, nil
	}
	if err := r.git.TakeBundle(ctx, r.objects(), f, most, judge); err != nil {
		return "", fmt.Errorf("importing an agent's commits: %w", err)
	}
	return tip, nil
}
