package spoke

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/spoke/isolation"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// TryHost tries out what keeps agents from this host, as a spoke with its data in dir does when it
// starts. dir need not be there, and nothing in it is changed: users see other directories on the
// way to another place, so a directory beside it is used and removed.
func TryHost(dir string) (policy.Found, error) {
	scratch, err := beside(dir)
	if err != nil {
		return policy.Found{}, fmt.Errorf("trying out what keeps agents from this host: %w", err)
	}
	i := isolation.Open(scratch, 0)
	found := policy.FoundOf(i)
	return found, errors.Join(i.Close(), supervisor.RemoveAll(scratch))
}

// beside makes a directory where dir is or would be, or else where everybody may.
func beside(dir string) (string, error) {
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		scratch, err := os.MkdirTemp(parent, ".spawnmesh-try-")
		switch {
		case err == nil:
			return scratch, nil
		case errors.Is(err, fs.ErrPermission):
			return os.MkdirTemp("", "spawnmesh-try-")
		case !errors.Is(err, fs.ErrNotExist) || parent == filepath.Dir(parent):
			return "", err
		}
	}
}
