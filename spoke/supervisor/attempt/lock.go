package attempt

import (
	"errors"
	"os"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// TakeLock takes the flock of the directory, or returns nil when somebody
// else has it. The lock file is never removed on its own: two holders could then
// hold two different files. With an ErrSpoilt nobody can have the lock, and
// whoever has had it is not known.
func TakeLock(dir string) (*os.File, error) {
	f, err := OpenPlain(plain.Join(dir, LockFile), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, plain.Wrap("opening the lock", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, plain.Wrap("taking the lock", err)
}

// Release lets go of the lock. Closing the file is not enough: a process that
// is being forked just now has it open until it executes its program.
func Release(lock *os.File) error {
	if lock == nil {
		return nil
	}
	return errors.Join(syscall.Flock(int(lock.Fd()), syscall.LOCK_UN), lock.Close())
}

// Bury forbids every later shim to start here. The caller holds the lock.
func Bury(dir string) error {
	f, err := OpenPlain(plain.Join(dir, TombstoneFile), os.O_WRONLY|os.O_CREATE)
	if errors.Is(err, ErrSpoilt) {
		return nil // whatever it is, it forbids as well; and so does a directory that cannot be entered
	}
	if err != nil {
		return plain.Wrap("writing the tombstone", err)
	}
	return f.Close()
}
