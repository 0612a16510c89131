package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// orphanGrace is how long the children of a dead server get to notice. Most do at once; one that computes does not.
const orphanGrace = time.Second

// clearStale makes sure that nothing of an earlier server is alive, and removes the lock files that would keep a new
// one from starting. PostgreSQL judges those by whether their process id exists, which it also does when the server
// is dead and not yet reaped, or when another process has got its number.
//
// The caller holds the instance lock, so whatever runs on this data belongs to an instance that is gone.
func (c *Cluster) clearStale(ctx context.Context) error {
	last := readPidFile(c.pidFile())
	if err := c.stopLeftover(ctx, last.pid); err != nil {
		return err
	}
	for _, file := range []string{c.pidFile(), c.socketLock()} {
		if !misleading(file) {
			continue
		}
		if attached(last.segment) {
			return fmt.Errorf("%s is left over, and a process may still use the shared memory of its server: "+
				"find and end it, then remove the file", file)
		}
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("removing what the last server left: %w", err)
		}
		c.log.InfoContext(ctx, "removed a stale lock file of the database server", "file", file)
	}
	return nil
}

// misleading tells whether PostgreSQL would take a lock file that nobody stands behind for a live one. A file whose
// process id is free is left to PostgreSQL, which makes checks of its own.
func misleading(file string) bool {
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	pid := readPidFile(file).pid
	return pid <= 0 || !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// stopLeftover ends the processes of an earlier server: its postmaster in order, and children that outlived theirs as
// their postmaster would have ended them.
func (c *Cluster) stopLeftover(ctx context.Context, postmaster int) error {
	pids, err := serversOn(c.data)
	if err != nil || len(pids) == 0 {
		return err
	}
	c.log.WarnContext(ctx, "stopping a database server left over by an earlier instance", "dir", c.dir, "pids", pids)
	grace := orphanGrace
	if slices.Contains(pids, postmaster) {
		grace = fastStop
		if err := signalServer(postmaster, c.data, syscall.SIGINT); err != nil {
			return err
		}
	}
	if pids, err = c.awaitGone(ctx, grace); err != nil || len(pids) == 0 {
		return err
	}
	for _, pid := range pids {
		if err := signalServer(pid, c.data, syscall.SIGQUIT); err != nil {
			return err
		}
	}
	if pids, err = c.awaitGone(ctx, immediateStop); err != nil || len(pids) == 0 {
		return err
	}
	return fmt.Errorf("processes %v of an earlier database server do not stop: look at them, and end them by hand if need be",
		pids)
}

// awaitGone waits until no process of a server is left on the data, at most for d, and returns those that are.
func (c *Cluster) awaitGone(ctx context.Context, d time.Duration) ([]int, error) {
	deadline := time.After(d)
	for {
		pids, err := serversOn(c.data)
		if err != nil || len(pids) == 0 {
			return nil, err
		}
		select {
		case <-deadline:
			return pids, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for an earlier database server (pids %v) to end: %w", pids, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// signalServer signals pid if that is still a server process on data.
func signalServer(pid int, data string, signal syscall.Signal) error {
	// This holds on to the process, not to its number, so what is looked at next is what gets the signal.
	process, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("finding the server process %d: %w", pid, err)
	}
	defer process.Release()
	pids, err := serversOn(data)
	if err != nil || !slices.Contains(pids, pid) {
		return err
	}
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signalling the server process %d: %w", pid, err)
	}
	return nil
}
