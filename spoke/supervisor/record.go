package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

// maxRecord bounds a record; the reason is its largest part, which may name a
// program by a long path.
const maxRecord = 1 << 20

// readExit returns nil when there is no record. What is there may be the agent's
// work: an errSpoilt says that it is none that a shim writes.
func readExit(dir string) (*Exit, error) {
	b, err := readPlain(filepath.Join(dir, exitFile), maxRecord)
	if err != nil {
		return nil, fmt.Errorf("reading the exit record: %w", err)
	}
	if b == nil {
		return nil, nil
	}
	var e Exit
	if json.Unmarshal(b, &e) != nil {
		return nil, spoilt("the exit record is not the JSON of one")
	}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("reading the exit record: %w", err)
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
	draft, name := filepath.Join(dir, exitDraft), filepath.Join(dir, exitFile)
	f, err := openPlain(draft, os.O_WRONLY|os.O_CREATE)
	if errors.Is(err, errSpoilt) && removeAll(draft) == nil {
		f, err = openPlain(draft, os.O_WRONLY|os.O_CREATE)
	}
	if err != nil {
		return fail(err)
	}
	if _, err = f.Write(b); err == nil { // over what was reserved
		err = errors.Join(f.Truncate(int64(len(b))), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fail(err)
	}
	if err = os.Rename(draft, name); err != nil && removeAll(name) == nil { // a directory
		err = os.Rename(draft, name)
	}
	if err != nil {
		return fail(err)
	}
	if err := fsync.Dir(dir); err != nil {
		return fail(err)
	}
	return nil
}
