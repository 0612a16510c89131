package supervisor

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The files of an attempt directory. All are 0600 in a directory of 0700.
const (
	specFile      = "spec.json" // what was asked for, and the secret; written before the shim starts
	lockFile      = "lock"      // held by flock: the shim is alive
	tombstoneFile = "tombstone" // no shim may start here any more
	socketFile    = "sock"
	exitFile      = "exit.json"
	exitDraft     = "exit.json.tmp" // becomes the former
	cgroupLink    = "cgroup"        // symbolic link to the attempt's cgroup
	shimErrFile   = "shim.err"      // what the shim itself had to say
)

// An attempt is what is kept in spec.json.
type attempt struct {
	Spec
	// Token proves both ends of the socket to each other. Whoever can read
	// the directory has it, and nobody else.
	Token string `json:"token"`
	// BootID names the run of the kernel the attempt belongs to.
	BootID string `json:"boot_id"`
}

// newAttempt writes spec.json. It is not synced: after a loss of power the
// attempt is over whatever the file says, and the row in the database is what
// must last. A directory serves one attempt, so the file must be new.
func newAttempt(dir string, spec Spec) (attempt, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return attempt{}, fmt.Errorf("making the attempt directory: %w", err)
	}
	boot, err := bootID()
	if err != nil {
		return attempt{}, err
	}
	a := attempt{Spec: spec, Token: rand.Text(), BootID: boot}
	a.Env = nil
	b, err := json.Marshal(a)
	if err != nil {
		return attempt{}, fmt.Errorf("encoding the spec: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, specFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return attempt{}, fmt.Errorf("writing the spec: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return attempt{}, fmt.Errorf("writing the spec: %w", err)
	}
	a.Env = spec.Env
	return a, nil
}

// readAttempt returns the zero attempt when there is no whole spec.json: then
// no shim was started here since the machine was, for the file is complete
// before that.
func readAttempt(dir string) (attempt, error) {
	b, err := readPlain(filepath.Join(dir, specFile))
	if err != nil {
		return attempt{}, fmt.Errorf("reading the spec: %w", err)
	}
	var a attempt
	if json.Unmarshal(b, &a) != nil || !validMarker(a.Marker) || a.Token == "" {
		return attempt{}, nil
	}
	return a, nil
}

// errNoFile says that something else is in the place of a file. Only the agent
// can have put it there.
var errNoFile = errors.New("it is not a regular file")

// openPlain opens a file of an attempt directory, which its agent may write to
// as long as both have the same user: neither a link nor a pipe in the place of
// the file leads or holds up the caller.
func openPlain(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		return nil, errNoFile
	}
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errNoFile, err, f.Close())
	}
	return f, nil
}

// maxPlain bounds spec and record; the arguments are the largest part of them.
const maxPlain = 16 << 20

// readPlain returns nothing when there is no such file.
func readPlain(name string) ([]byte, error) {
	f, err := openPlain(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoFile) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxPlain))
}

func newMarker() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// validMarker guards the one place where text becomes the name of a cgroup.
func validMarker(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 16 && s == strings.ToLower(s)
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// takeLock takes the flock of the directory, or returns nil when somebody
// else has it. The lock file is never removed on its own: two holders could then
// hold two different files.
func takeLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("taking the lock: %w", err)
}

// release lets go of the lock. Closing the file is not enough: a process that
// is being forked just now has it open until it executes its program.
func release(lock *os.File) error {
	return errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_UN), lock.Close())
}

// bury forbids every later shim to start here. The caller holds the lock.
func bury(dir string) error {
	f, err := openPlain(filepath.Join(dir, tombstoneFile), os.O_WRONLY|os.O_CREATE)
	if errors.Is(err, errNoFile) {
		return nil // whatever it is, it forbids as well
	}
	if err != nil {
		return fmt.Errorf("writing the tombstone: %w", err)
	}
	return f.Close()
}

// readExit returns nil when there is no whole record.
func readExit(dir string) (*Exit, error) {
	b, err := readPlain(filepath.Join(dir, exitFile))
	if err != nil {
		return nil, fmt.Errorf("reading the exit record: %w", err)
	}
	var e Exit
	if json.Unmarshal(b, &e) != nil || e.Outcome == "" {
		return nil, nil
	}
	return &e, nil
}

// reserveExit takes the room of a record while there is some: an agent may
// fill the disk.
func reserveExit(dir string) error {
	f, err := openPlain(filepath.Join(dir, exitDraft), os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return fmt.Errorf("reserving room for the exit record: %w", err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 32<<10); err != nil {
		return fmt.Errorf("reserving room for the exit record: %w", err)
	}
	return nil
}

// writeExit makes the record durable. The caller holds the lock, so there is
// one writer; a crash before the rename leaves no record, after it this one.
func writeExit(dir string, e Exit) error {
	fail := func(err error) error { return fmt.Errorf("writing the exit record: %w", err) }
	b, err := json.Marshal(e)
	if err != nil {
		return fail(err)
	}
	draft := filepath.Join(dir, exitDraft)
	f, err := openPlain(draft, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return fail(err)
	}
	if _, err = f.Write(b); err == nil { // over what was reserved
		err = errors.Join(f.Truncate(int64(len(b))), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fail(err)
	}
	if err := os.Rename(draft, filepath.Join(dir, exitFile)); err != nil {
		return fail(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return fail(err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fail(err)
	}
	return nil
}
