package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// remains are what an instance leaves in its data directory after it has made its
// keys. What may come earlier is not among them: locks, the policy.
var remains = []string{"pg", "incarnation", "ended", "agents", "logs", "nats", placeFile}

// LoadKeys reads the keys of the instance in the data directory dir. It returns
// [signing.ErrNoKeys] where there has never been one, and a [*signing.KeyFileError]
// where its keys are gone: they are never made anew in place of lost ones. A directory
// that others could have made or filled is a [*hostfile.UnsafeError].
func LoadKeys(dir string) (signing.Keys, error) {
	if err := (Options{Dir: dir}).look(); err != nil {
		return signing.Keys{}, err
	}
	path := filepath.Join(dir, "keys")
	keys, err := signing.LoadKeys(path)
	if !errors.Is(err, signing.ErrNoKeys) {
		return keys, err
	}
	for _, name := range remains {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return keys, lostKeys(path, "is missing, though an instance has been here: there is "+filepath.Join(dir, name))
		}
	}
	return keys, err
}

func lostKeys(path, why string) error {
	return &signing.KeyFileError{Path: path, Why: why + "; nothing was changed",
		Hint: "put the whole directory keys back from a backup of this instance; without one: move the data directory away and join again as a new instance"}
}

// loadKeys reads the keys, or makes them where neither the data directory nor the
// database has ever been an instance's. The caller holds the lock.
func (in *Instance) loadKeys(ctx context.Context, create bool) (err error) {
	dir := filepath.Join(in.Dir, "keys")
	in.Keys, err = LoadKeys(in.Dir)
	if errors.Is(err, signing.ErrNoKeys) && create {
		err = in.makeKeys(ctx, dir)
	}
	if err != nil {
		return fmt.Errorf("loading the keys in %s: %w", dir, err)
	}
	return nil
}

func (in *Instance) makeKeys(ctx context.Context, dir string) error {
	if url := in.options.DatabaseURL; url != "" {
		owner, err := store.Owner(ctx, url)
		if err != nil {
			return err
		}
		if owner != "" {
			return commands.Refuse(commands.Conflict, "the database belongs to instance %s, whose keys are not in %s; nothing was changed", owner, dir).
				Hinting("put keys back from a backup of that instance, or name another database with DATABASE_URL")
		}
	}
	keys, err := signing.CreateKeys(dir)
	if err != nil {
		return err
	}
	if in.Keys = keys; in.options.Made != nil {
		in.options.Made(in.Dir)
	}
	return nil
}
