package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
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
	b, err := json.Marshal(e)
	if err == nil {
		err = replace(dir, exitFile, func(f *os.File) error {
			_, err := f.Write(b) // over what was reserved
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("writing the exit record: %w", err)
	}
	return nil
}
