package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/internal/git"
)

// attributes keep files what their blobs are, byte by byte, whatever a .gitattributes of the tree says.
const attributes = "* -text -eol -crlf -filter -ident -working-tree-encoding !diff !merge\n"

// config is that of an agent's .git: enough to commit, and nothing that goes on by itself.
const config = `[user]
	name = agent
	email = agent@spawnmesh
[gc]
	auto = 0
	autoDetach = false
[maintenance]
	auto = false
[core]
	logAllRefUpdates = true
`

// Room is what a working tree may take.
type Room struct {
	Files, Bytes int64
}

// Checkout makes a working tree of a commit in an empty directory, on branch spawnmesh/NAME. Its .git shares nothing with the
// repository. Submodules are empty directories. All of it belongs to the user of this process. What fails leaves a directory that is
// to be removed: an attempt has a fresh one.
func (r *Repo) Checkout(ctx context.Context, work, name, tip string, room Room) error {
	if err := r.checkout(ctx, work, git.Branches+name, tip, room); err != nil {
		return fmt.Errorf("making a working tree of %s in %s: %w", tip, work, err)
	}
	return nil
}

func (r *Repo) checkout(ctx context.Context, work, branch, tip string, room Room) error {
	if list, err := os.ReadDir(work); err != nil || len(list) > 0 {
		return errors.Join(errors.New("it is to be an empty directory"), err)
	}
	if err := r.fits(ctx, tip, room); err != nil {
		return err
	}
	gitDir := filepath.Join(work, ".git")
	if err := r.git.Init(ctx, gitDir, len(tip)); err != nil {
		return err
	}
	if err := r.copyObjects(filepath.Join(gitDir, "objects", "pack")); err != nil {
		return err
	}
	if err := configure(gitDir); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"config", "core.bare", "false"},
		{"update-ref", branch, tip},
		{"symbolic-ref", "HEAD", branch},
		{"read-tree", "--reset", "-u", tip},
	} {
		if err := r.git.Run(ctx, git.Call{GitDir: gitDir, Env: []string{"GIT_WORK_TREE=" + work}, Dir: work, Args: args}); err != nil {
			return err
		}
	}
	return nil
}

func configure(gitDir string) error {
	if err := os.MkdirAll(filepath.Join(gitDir, "info"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(gitDir, "info", "attributes"), []byte(attributes), 0o644); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(gitDir, "config"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(config)
	return errors.Join(err, f.Close())
}

// What a tree has more of than it may.
var (
	ErrTooLarge = errors.New("the tree is too large")
	ErrTooMany  = errors.New("the tree has too many files")
)

// fits counts what a tree would take, before it takes it: a few objects can name the same file a billion times.
func (r *Repo) fits(ctx context.Context, tip string, room Room) error {
	ctx, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	c := &census{room: room, enough: enough}
	err := r.git.Run(ctx, git.Call{GitDir: r.dir, Args: []string{"ls-tree", "-r", "-t", "-l", "-z", tip}, Out: c})
	if cause := context.Cause(ctx); errors.Is(cause, ErrTooLarge) || errors.Is(cause, ErrTooMany) {
		return cause
	}
	return err
}

// census reads what ls-tree lists.
type census struct {
	room   Room
	enough context.CancelCauseFunc
	left   []byte
}

func (c *census) Write(b []byte) (int, error) {
	for _, char := range b {
		if char != 0 {
			c.left = append(c.left, char)
			continue
		}
		if fields := strings.Fields(string(c.left)); len(fields) > 3 {
			size, _ := strconv.ParseInt(fields[3], 10, 64)
			c.room.Files, c.room.Bytes = c.room.Files-1, c.room.Bytes-size
		}
		c.left = c.left[:0]
		if c.room.Files < 0 || c.room.Bytes < 0 {
			err := ErrTooLarge
			if c.room.Files < 0 {
				err = ErrTooMany
			}
			c.enough(err)
			return 0, err
		}
	}
	return len(b), nil
}

// copyObjects copies the packs: all objects of the repository are in packs.
func (r *Repo) copyObjects(to string) error {
	from := filepath.Join(r.dir, "objects", "pack")
	list, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, f := range list {
		if err := copyFile(filepath.Join(from, f.Name()), filepath.Join(to, f.Name())); err != nil {
			return err
		}
	}
	return fsync.Dir(to)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
