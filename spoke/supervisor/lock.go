package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// takeLock takes the flock of the directory, or returns nil when somebody
// else has it. The lock file is never removed on its own: two holders could then
// hold two different files. With an errSpoilt nobody can have the lock, and
// whoever has had it is not known.
func takeLock(dir string) (*os.File, error) {
	f, err := openPlain(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE)
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
	if lock == nil {
		return nil
	}
	return errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_UN), lock.Close())
}

// bury forbids every later shim to start here. The caller holds the lock.
func bury(dir string) error {
	f, err := openPlain(filepath.Join(dir, tombstoneFile), os.O_WRONLY|os.O_CREATE)
	if errors.Is(err, errSpoilt) {
		return nil // whatever it is, it forbids as well; and so does a directory that cannot be entered
	}
	if err != nil {
		return fmt.Errorf("writing the tombstone: %w", err)
	}
	return f.Close()
}
