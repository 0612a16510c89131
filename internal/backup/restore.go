package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"filippo.io/age"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// Restore makes the instance of the backup from in the data directory that o names, which is not
// there, or empty; so is the database, where o names one. The instance notices at its start that
// it was restored.
func Restore(ctx context.Context, from string, o instance.Options, identity age.Identity) (m Manifest, err error) {
	// What a backup says is done here: nobody else may have written it.
	if err := hostfile.Dir(from); err != nil {
		return m, fmt.Errorf("looking at the backup: %w", err)
	}
	if m, err = Verify(ctx, from, o.BinDir, identity); err != nil {
		return m, err
	}
	if err := free(ctx, o.DatabaseURL); err != nil {
		return m, err
	}
	draft, err := begin(o.Dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(draft)) }()
	at := o
	at.Dir = draft
	o.Do("copying files")
	if err := place(from, draft, m.Hub, identity); err != nil {
		return m, fmt.Errorf("restoring %s: %w", o.Dir, err)
	}
	o.Do("filling the database")
	if err := fillDatabase(ctx, from, at, m); err != nil {
		return m, fmt.Errorf("restoring the database of %s: %w", o.Dir, err)
	}
	o.Do("looking at what was restored")
	if err := try(ctx, at, m); err != nil {
		return m, fmt.Errorf("looking at what was restored for %s: %w", o.Dir, err)
	}
	return m, adopt(draft, o.Dir)
}

// free refuses a database that has an instance.
func free(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	owner, err := store.Owner(ctx, address)
	if err != nil {
		return &commands.Refused{Code: commands.StoreDown, Why: "looking at the database that DATABASE_URL names", Err: err, Hint: "is its server running, and does it let its user in?"}
	}
	if owner != "" {
		return commands.Refuse(commands.Conflict, "the database that DATABASE_URL names has an instance already: %s; nothing was changed", owner).
			Hinting("name an empty one")
	}
	return nil
}

// place puts keys and files where they belong. A hub is known by its directory before it has run, too.
func place(from, dir string, hub bool, identity age.Identity) error {
	keys, err := open(filepath.Join(from, keysFile), identity)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, keysDir), 0o700); err != nil {
		return err
	}
	for name, text := range keys {
		if err := os.WriteFile(filepath.Join(dir, keysDir, name), text, 0o600); err != nil {
			return err
		}
	}
	for _, name := range copied {
		if err := copyTree(from, dir, name); err != nil {
			return err
		}
	}
	if hub {
		return os.Mkdir(filepath.Join(dir, hubDir), 0o700)
	}
	return nil
}

// fillDatabase loads the dump into the database that the options name, or into a private one.
func fillDatabase(ctx context.Context, from string, o instance.Options, m Manifest) (err error) {
	address := o.DatabaseURL
	if address == "" {
		lock, err := postgres.Lock(o.Dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
		cluster, err := postgres.Start(ctx, postgres.Config{Dir: o.Dir, BinDir: o.BinDir, User: o.PostgresUser, Log: o.Log})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cluster.Close(context.WithoutCancel(ctx))) }()
		address = cluster.URL()
	} else if err := store.MakeRoles(ctx, address); err != nil {
		return err
	}
	major, err := store.ServerMajor(ctx, address)
	if err != nil {
		return err
	}
	return load(ctx, address, o.BinDir, max(major, m.Postgres), filepath.Join(from, dumpFile))
}

// try opens what was restored as a command does.
func try(ctx context.Context, o instance.Options, m Manifest) error {
	in, err := instance.Visit(ctx, o, false)
	if err != nil {
		return err
	}
	if id := string(in.Keys.InstanceID()); id != m.Instance {
		err = fmt.Errorf("the keys are those of instance %s, and the backup is of %s", id, m.Instance)
	}
	return errors.Join(err, in.Close(ctx))
}
