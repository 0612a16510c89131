package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

// unfinished begins the name of a cluster that is being made.
const unfinished = "pg.new-"

// initdb makes the cluster under another name and renames it when it is whole, so whatever is called pg is a cluster.
// What an earlier try left is removed: it never had the name, so it never held anybody's data.
func (c *Cluster) initdb(ctx context.Context) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), unfinished) {
			// A killed initdb may still be writing there; then the next start removes it.
			_ = os.RemoveAll(filepath.Join(c.dir, entry.Name()))
		}
	}
	for _, locale := range localeArgs(c.programs.major) {
		var fresh string
		if fresh, err = c.initdbOnce(ctx, locale); err == nil {
			return c.adopt(fresh)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// localeArgs are the ways to ask for code-point order with Unicode letters and no dependence on collations that
// change under an upgrade of the system, the best first. Older systems lack the locale C.UTF-8.
func localeArgs(major int) [][]string {
	if major >= 17 {
		return [][]string{{"--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"}}
	}
	return [][]string{{"--locale=C.UTF-8"}, {"--locale=C"}}
}

func (c *Cluster) initdbOnce(ctx context.Context, locale []string) (string, error) {
	fresh, err := os.MkdirTemp(c.dir, unfinished)
	if err != nil {
		return "", err
	}
	if err := c.account.own(fresh); err != nil {
		return "", err
	}
	// The superuser gets no password: there is none to be read on the way, kept or forgotten.
	args := append([]string{"-D", fresh, "-U", superuser, "--encoding=UTF8", "--auth=reject",
		"--data-checksums", "--no-instructions", "--wal-segsize=1"}, locale...)
	err = run(ctx, c.account.command(c.dir, c.programs.initdb(), args...))
	if err == nil {
		err = c.settle(ctx, fresh)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(fresh))
	}
	return fresh, nil
}

// adopt lets a finished cluster read our settings and the operator's, and gives it its name.
func (c *Cluster) adopt(fresh string) error {
	root, err := os.OpenRoot(fresh) // the server's user writes there too: no link of theirs leads us outside
	if err != nil {
		return err
	}
	defer root.Close()
	conf, err := root.OpenFile("postgresql.conf", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString("\ninclude 'mesh.conf'\t\t# written at every start\n" +
		"include_if_exists 'user.conf'\t# yours, goes over mesh.conf\n")
	if err := errors.Join(err, conf.Sync(), conf.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, c.data); err != nil {
		return err
	}
	return fsync.Dir(c.dir)
}

// run runs a short-lived server program to its end; when ctx ends it is interrupted. The error holds what it printed.
func run(ctx context.Context, cmd *exec.Cmd) error {
	runtime.LockOSThread() // see start
	defer runtime.UnlockOSThread()

	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 10 * time.Second
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGINT) }) // it may just have ended
	defer stop()
	err := cmd.Wait()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(out.String()))
	}
	return nil
}
