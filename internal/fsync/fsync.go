// Package fsync makes changes of files durable. A file that was made or renamed can be
// gone after a power failure until its directory was synced.
package fsync

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Replace writes a file whole, whether it was there or not: whoever reads it finds the
// old text or the new one, also after a crash. When Replace has returned nil the new one
// survives a power failure. The text is written to path.new first; there is one writer
// of a path at a time.
func Replace(path string, text []byte, mode fs.FileMode) error {
	draft := path + ".new"
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) { // a crash left it
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	f, err := os.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	if err := finish(f, path, func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	return Dir(filepath.Dir(path))
}

// Create writes a file that is not there yet, for its owner alone: it has its name when fill has written it whole. When Create has
// returned nil it survives a power failure; what fails leaves nothing. What is there already is [fs.ErrExist].
func Create(path string, fill func(io.Writer) error) error {
	if err := absent(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-")
	if err != nil {
		return err
	}
	err = finish(f, path, func(w io.Writer) error {
		if err := fill(w); err != nil {
			return err
		}
		return absent(path) // it may have been made meanwhile
	})
	if err != nil {
		return err
	}
	return Dir(filepath.Dir(path))
}

// absent is [fs.ErrExist] where something has the name path.
func absent(path string) error {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = &fs.PathError{Op: "create", Path: path, Err: syscall.EEXIST}
	}
	return err
}

// finish fills a draft, and gives it the name path when it is on the disk; one that cannot be finished is removed.
func finish(draft *os.File, path string, fill func(io.Writer) error) error {
	err := fill(draft)
	if err = errors.Join(err, draft.Sync(), draft.Close()); err == nil {
		err = os.Rename(draft.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(draft.Name()))
	}
	return nil
}

// Dir writes the entries of a directory to the disk.
func Dir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening directory %s to sync it: %w", path, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("syncing directory %s: %w", path, err)
	}
	return nil
}
