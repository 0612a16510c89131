package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

// port names the socket file; nothing listens on it.
const port = "5432"

// maxSocketPath is what fits into a socket address of this system, with its closing zero.
const maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// layout says where the parts of one cluster are. All paths are absolute.
type layout struct {
	dir  string // the instance's data directory
	data string // the cluster itself, PGDATA
	run  string // the directory of the socket
}

func layoutOf(dir string) (layout, error) {
	if dir == "" {
		return layout{}, errors.New("a private database needs a data directory, and none was given")
	}
	dir, err := filepath.Abs(dir)
	if err == nil && strings.ContainsAny(dir, "\n\r") {
		err = fmt.Errorf("%q has a line break, which the files of PostgreSQL cannot hold", dir)
	}
	if err != nil {
		return layout{}, fmt.Errorf("resolving the data directory: %w", err)
	}
	return layout{dir: dir, data: filepath.Join(dir, "pg"), run: socketDir(dir)}, nil
}

// shortRunFile names the socket directory that is in /tmp.
const shortRunFile = "run.short"

// socketDir returns dir/run, or a short name in /tmp when that does not fit a socket address or holds a comma, which
// clients take for a list of hosts. That name is random, so that nobody takes it first, and "" before there is one.
func socketDir(dir string) string {
	run := filepath.Join(dir, "run")
	if len(run)+len("/.s.PGSQL."+port) <= maxSocketPath && !strings.Contains(run, ",") {
		return run
	}
	name, _ := os.ReadFile(filepath.Join(dir, shortRunFile)) // without it there is no server to be found
	return string(name)
}

func (l layout) logFile() string    { return filepath.Join(l.dir, "postgres.log") }
func (l layout) pidFile() string    { return filepath.Join(l.data, "postmaster.pid") }
func (l layout) socket() string     { return filepath.Join(l.run, ".s.PGSQL."+port) }
func (l layout) socketLock() string { return l.socket() + ".lock" }

// major returns the major version that made the cluster, and 0 if there is no cluster yet.
func (l layout) major() (int, error) {
	entries, err := os.ReadDir(l.data)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the cluster: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(l.data, "PG_VERSION"))
	if err != nil {
		return 0, fmt.Errorf("%s is no PostgreSQL cluster, move it away or use another data directory: %w", l.data, err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("reading the version of the cluster %s: %w", l.data, err)
	}
	return major, nil
}

// makeRun makes the socket directory, or takes the one that is there and is ours. In /tmp that of an earlier start may be
// gone, and somebody else may have made one of the same name since: then there is a new one.
func (l *layout) makeRun(a account) error {
	info, err := os.Lstat(l.run)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checking the socket directory: %w", err)
	}
	ours := err == nil && info.IsDir() && slices.Contains([]int{a.uid, os.Geteuid()}, int(info.Sys().(*syscall.Stat_t).Uid))
	switch {
	case ours:
		err = os.Chmod(l.run, 0o700)
	case filepath.Dir(l.run) != l.dir:
		err = l.makeShortRun()
	case info != nil:
		return fmt.Errorf("the socket directory %s belongs to somebody else or is no directory: remove it", l.run)
	default:
		err = os.Mkdir(l.run, 0o700)
	}
	if err != nil {
		return fmt.Errorf("making the socket directory: %w", err)
	}
	return a.own(l.run)
}

// makeShortRun makes a socket directory in /tmp under a new name, and notes that for those who look for the server.
func (l *layout) makeShortRun() error {
	run, err := os.MkdirTemp("/tmp", "mesh-")
	if err != nil {
		return err
	}
	if err := fsync.Replace(filepath.Join(l.dir, shortRunFile), []byte(run), 0o600); err != nil {
		return errors.Join(err, os.Remove(run))
	}
	l.run = run
	return nil
}

// removeShortRun removes a socket directory in /tmp once it is empty. Dir/run stays.
func (l layout) removeShortRun() {
	if filepath.Dir(l.run) != l.dir {
		_ = os.Remove(l.run) // not empty: the server is still there
	}
}

// makeDir makes an instance's data directory. Root's may be passed through by others, because the server runs as
// another user; only those who know a name in it get further, and what is private there is private by its own mode.
func makeDir(dir string) error {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("checking the data directory: %w", err)
	}
	if missing := mode &^ info.Mode().Perm() & 0o011; missing != 0 {
		if err := os.Chmod(dir, info.Mode().Perm()|missing); err != nil {
			return fmt.Errorf("letting the server's user into the data directory: %w", err)
		}
	}
	return nil
}

// Made reports whether the data directory dir has a database, or the beginning of one.
func Made(dir string) bool {
	where, err := layoutOf(dir)
	if err == nil {
		_, err = os.Stat(where.data)
	}
	return err == nil
}
