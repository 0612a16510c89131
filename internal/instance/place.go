package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/signing"
)

// placeFile names the data directory in which the instance last ran. A copy of the
// directory has the file, too.
const placeFile = "place"

// settle notes that the instance runs in its data directory. One that is a copy is refused
// while the original is on this host: what runs belongs to the directory in which it was
// started, and two instances with one key suspend each other's connections. A directory that
// was moved is no copy.
func (in *Instance) settle() error {
	name := filepath.Join(in.Dir, placeFile)
	before, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading where the instance ran before: %w", err)
	}
	original := string(before)
	if original == in.Dir {
		return nil
	}
	if in.isCopyOf(original) {
		return commands.Refuse(commands.Conflict, "%s is a copy of %s, which is on this host, too; nothing was started", in.Dir, original).
			Hinting("start the instance there; to go on with the copy, first move %s away: what still runs of it is then ended", original)
	}
	if err := fsync.Replace(name, []byte(in.Dir), 0o600); err != nil {
		return fmt.Errorf("noting where the instance runs: %w", err)
	}
	return nil
}

// isCopyOf reports whether another directory has the keys of this instance. One whose keys
// are damaged is taken for the original; one that this user may not read is somebody else's.
func (in *Instance) isCopyOf(dir string) bool {
	here, err := os.Stat(in.Dir)
	if err != nil || !filepath.IsAbs(dir) {
		return false
	}
	there, err := os.Stat(dir)
	if err != nil || os.SameFile(here, there) {
		return false
	}
	keys, err := signing.LoadKeys(filepath.Join(dir, "keys"))
	if err != nil {
		return !errors.Is(err, signing.ErrNoKeys) && !errors.Is(err, fs.ErrPermission)
	}
	return keys.InstanceID() == in.Keys.InstanceID()
}
