// Package fsync makes changes of directories durable. A file that was made or renamed
// can be gone after a power failure until its directory was synced.
package fsync

import (
	"fmt"
	"os"
)

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
