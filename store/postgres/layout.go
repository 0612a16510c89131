package postgres

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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

// socketDir returns dir/run, or a short name in /tmp when that does not fit a socket address or holds a comma, which
// clients take for a list of hosts.
func socketDir(dir string) string {
	run := filepath.Join(dir, "run")
	if len(run)+len("/.s.PGSQL."+port) <= maxSocketPath && !strings.Contains(run, ",") {
		return run
	}
	return fmt.Sprintf("/tmp/mesh-%x", sha256.Sum256([]byte(dir)))[:len("/tmp/mesh-")+16]
}

func (l layout) logFile() string    { return filepath.Join(l.dir, "postgres.log") }
func (l layout) pidFile() string    { return filepath.Join(l.data, "postmaster.pid") }
func (l layout) socketLock() string { return filepath.Join(l.run, ".s.PGSQL."+port+".lock") }

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

// makeRun makes the socket directory, or checks the one that is there: in /tmp anybody could have made it first.
func (l layout) makeRun(a account) error {
	err := os.Mkdir(l.run, 0o700)
	if err == nil {
		return a.own(l.run)
	}
	if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the socket directory: %w", err)
	}
	info, err := os.Lstat(l.run)
	if err != nil {
		return fmt.Errorf("checking the socket directory: %w", err)
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if !info.IsDir() || (owner != a.uid && owner != os.Geteuid()) {
		return fmt.Errorf("the socket directory %s belongs to somebody else (uid %d): remove it", l.run, owner)
	}
	if err := os.Chmod(l.run, 0o700); err != nil {
		return fmt.Errorf("closing the socket directory to others: %w", err)
	}
	return a.own(l.run)
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
