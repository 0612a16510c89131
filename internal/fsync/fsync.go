// Package fsync makes changes of files durable. A file that was made or renamed can be
// gone after a power failure until its directory was synced.
package fsync

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(draft, path)
	}
	if err != nil {
		return fmt.Errorf("replacing %s: %w", path, errors.Join(err, os.Remove(draft)))
	}
	return Dir(filepath.Dir(path))
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
