package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// Remove takes away the directory of an attempt that is over, with all that the
// agent left in it. Until somebody calls it everything stays; call it when all
// output has been read. It refuses an attempt that may still run, and one that
// nobody has adopted since its shim died. After a crash half-way it can be
// called again.
func Remove(dir string) error {
	fail := func(err error) error { return fmt.Errorf("removing the attempt in %s: %w", dir, err) }
	lock, err := takeOver(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fail(err)
	}
	defer attempt.Release(lock)
	if err := os.Remove(filepath.Join(dir, attempt.SpecFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	if err := RemoveAll(dir); err != nil {
		return fail(err)
	}
	return nil
}

// CheckOver returns nil where the attempt is known to be over, else [ErrRunning], or what keeps
// that from being known. One whose directory is gone is over.
func CheckOver(dir string) error {
	lock, err := takeOver(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, attempt.Release(lock))
}

// CheckGone returns nil where nothing of an attempt is left although nobody may have recorded its end, as after
// the loss of a host's power: it is over then, and no shim starts in its directory any more. Nothing is ended for
// it, and nothing recorded: whoever adopts the attempt later finds that it was lost. Else it is [ErrRunning], or what keeps
// that from being known. Of known the marker and the user count.
func CheckGone(dir string, known Known) error {
	lock, err := attempt.TakeLock(dir)
	if err != nil {
		return err // whoever has had the lock may go on
	}
	if lock == nil {
		return ErrRunning
	}
	defer attempt.Release(lock)
	saved, err := readSpec(dir, known)
	if err != nil {
		return err
	}
	if remains(saved) {
		return ErrRunning
	}
	return attempt.Bury(dir)
}

// takeOver takes the lock of an attempt that is known to be over: nobody holds it, and its end is
// recorded. It is nil where what should be the lock is no file.
func takeOver(dir string) (*os.File, error) {
	lock, err := attempt.TakeLock(dir)
	if err != nil && !errors.Is(err, attempt.ErrSpoilt) {
		return nil, err
	}
	if lock == nil && err == nil {
		return nil, ErrRunning
	}
	if err := recordedOver(dir); err != nil {
		return nil, errors.Join(err, attempt.Release(lock))
	}
	return lock, nil
}

// recordedOver asks the directory. One without a spec never had a shim, or was removed in part:
// the spec goes first.
func recordedOver(dir string) error {
	exit, err := readExit(dir)
	spoilt := errors.Is(err, attempt.ErrSpoilt)
	if err != nil && !spoilt {
		return err
	}
	_, err = os.Lstat(filepath.Join(dir, attempt.SpecFile))
	switch {
	case hostfault.Is(err):
		return err
	case err == nil && !spoilt && (exit == nil || len(exit.Survivors) > 0):
		return ErrRunning
	}
	return nil
}

// ErrRunning says that an attempt is not known to be over.
var ErrRunning = errors.New("the attempt is not known to be over; adopt it first")
