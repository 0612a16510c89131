// Package backup makes backups of instances, verifies them, and restores them.
//
// A backup is a directory: a dump of the database, the keys encrypted, policy, settings,
// kept output and blobs as they are, and a manifest with the digest of each. It gets its name when it
// is whole and was read again. So does what is restored.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/store"
)

// What a backup consists of, besides copies of the data directory.
const (
	dumpFile = "database.dump"
	keysFile = "keys.age"
	keysDir  = "keys"
	hubDir   = "nats" // only a hub has one; it is not copied
)

// copied are the names in a data directory that are kept as they are. place tells a restored
// instance from a copy beside its original; ended has connections that were revoked.
var copied = []string{"policy.yaml", "config.yaml", "place", "ended", "logs", "blobs"}

// left are names below them that are not: blobs that have not come whole come again, and a copy is to be known as one.
var left = []string{filepath.Join("blobs", "parts"), filepath.Join("blobs", "drafts"), filepath.Join("blobs", blob.MarkFile)}

// Make backs up the instance that o names, whether it runs or not, into the directory dir. Only
// who has a secret of to can read the keys; check, where it is not nil, is one, and is tried.
func Make(ctx context.Context, o instance.Options, dir, version string, to age.Recipient, check age.Identity) (m Manifest, err error) {
	draft, err := begin(dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(draft)) }()
	in, err := instance.Visit(ctx, o, false)
	if err != nil {
		return m, err
	}
	m = Manifest{Format: format, Version: version, Instance: string(in.Keys.InstanceID()), At: time.Now().UTC()}
	err = fill(ctx, in, o, draft, &m, to)
	if err = errors.Join(err, in.Close(ctx)); err != nil {
		return m, fmt.Errorf("backing up %s: %w", o.Dir, err)
	}
	o.Do("reading the backup again")
	if _, err := Verify(ctx, draft, o.BinDir, check); err != nil {
		return m, fmt.Errorf("reading the backup of %s again: %w", o.Dir, err)
	}
	return m, adopt(draft, dir)
}

// fill writes the backup. The database comes first: output that came later is cut off when the
// hub reads what its database knows.
func fill(ctx context.Context, in *instance.Instance, o instance.Options, draft string, m *Manifest, to age.Recipient) (err error) {
	if _, err := os.Stat(filepath.Join(in.Dir, hubDir)); err == nil {
		m.Hub = true
	}
	if m.Postgres, err = store.ServerMajor(ctx, in.DatabaseURL()); err != nil {
		return err
	}
	o.Do("writing what the database has")
	if err := dump(ctx, in.DatabaseURL(), o.BinDir, m.Postgres, filepath.Join(draft, dumpFile)); err != nil {
		return err
	}
	if err := seal(filepath.Join(in.Dir, keysDir), filepath.Join(draft, keysFile), to); err != nil {
		return err
	}
	o.Do("copying files")
	for _, name := range copied {
		if err := copyTree(in.Dir, draft, name); err != nil {
			return err
		}
	}
	return m.write(draft)
}

// begin makes a directory beside dir, which must not be there, or be empty.
func begin(dir string) (draft string, err error) {
	if entries, err := os.ReadDir(dir); len(entries) > 0 {
		return "", commands.Refuse(commands.Conflict, "%s is not empty; nothing was changed", dir).Hinting("name a directory that is not there yet")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("looking at %s: %w", dir, err)
	}
	draft, err = os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".new-")
	if errors.Is(err, fs.ErrNotExist) {
		return "", commands.Refuse(commands.Validation, "there is no directory %s; nothing was changed", filepath.Dir(dir)).Hinting("make it, or name another place")
	}
	if err != nil {
		return "", fmt.Errorf("making a directory beside %s: %w", dir, err)
	}
	return draft, nil
}

// adopt gives what is whole its name.
func adopt(draft, dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty, or was filled meanwhile
		return fmt.Errorf("replacing the empty directory %s: %w", dir, err)
	}
	if err := os.Rename(draft, dir); err != nil {
		return fmt.Errorf("giving %s its name: %w", dir, err)
	}
	return fsync.Dir(filepath.Dir(dir))
}
