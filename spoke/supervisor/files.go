package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/internal/remove"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// RemoveAll removes what an agent has left, however deep it is, also out of directories that it made read-only.
// Nothing of the agent may run.
func RemoveAll(dir string) error {
	err := remove.All(dir)
	if errors.Is(err, fs.ErrPermission) {
		attempt.Reopen(filepath.Dir(dir))
		err = remove.All(dir)
	}
	return err
}

// Reopen gives a directory of an attempt, or of its task, back the permissions that an agent with the same user took away.
func Reopen(dir string) { attempt.Reopen(dir) }

// ErrClosed is an [ErrUnreadable]: a file may not be opened, and this process cannot change that.
var ErrClosed = attempt.ErrClosed

// ReadFile returns the file name of an attempt directory, and nothing where there
// is none. Its agent may have put anything in its place: what is no regular file,
// or has more than most bytes, is an error, and holds nobody up.
func ReadFile(dir, name string, most int64) ([]byte, error) {
	b, err := attempt.ReadPlain(filepath.Join(dir, name), most)
	if err != nil {
		return nil, fmt.Errorf("reading %s of the attempt in %s: %w", name, dir, err)
	}
	return b, nil
}
