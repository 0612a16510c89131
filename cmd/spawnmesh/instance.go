package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// dir returns the absolute data directory: the flag, the environment, or the
// place where such things belong.
func (a *app) dir() (string, error) {
	for _, d := range []string{a.dataDir, a.getenv("SPAWNMESH_DATA_DIR")} {
		if d != "" {
			return filepath.Abs(d)
		}
	}
	if os.Geteuid() == 0 {
		return "/var/lib/spawnmesh", nil
	}
	if d := a.getenv("XDG_STATE_HOME"); d != "" {
		return filepath.Join(d, "spawnmesh"), nil
	}
	home := a.getenv("HOME")
	if home == "" {
		return "", misuse("no data directory: give --data-dir, or set SPAWNMESH_DATA_DIR or HOME")
	}
	return filepath.Join(home, ".local", "state", "spawnmesh"), nil
}

// self is how this program is called for the same instance, for hints.
func (a *app) self() string {
	if a.dataDir == "" {
		return "spawnmesh"
	}
	return "spawnmesh --data-dir " + a.dataDir
}

// logger writes what is at least as grave as level to standard error. A person
// at a terminal knows which day it is.
func (a *app) logger(level slog.Level) *slog.Logger {
	form := "2006-01-02T15:04:05.000Z07:00"
	if terminal(a.err) {
		form = "15:04:05.000"
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, at slog.Attr) slog.Attr {
		if at.Key == slog.TimeKey {
			at.Value = slog.StringValue(at.Value.Time().Format(form))
		}
		return at
	}}))
}

// instance is an opened data directory: locked, with keys and database.
type instance struct {
	dir     string
	keys    signing.Keys
	db      *store.DB
	lock    *postgres.InstanceLock
	cluster *postgres.Cluster
	guest   *postgres.Guest // where another process has lock and cluster
}

// guestPatience is how long a stop waits for commands that use our database.
const guestPatience = 2 * time.Second

// open locks the data directory, loads or makes the keys and opens the database,
// starting the private Postgres when no other is named. Things are closed in the
// opposite order by close.
func (a *app) open(ctx context.Context, log *slog.Logger, create bool) (*instance, error) {
	in := &instance{}
	if err := a.openInto(ctx, in, log, create); err != nil {
		return nil, errors.Join(err, in.close(ctx))
	}
	return in, nil
}

func (a *app) openInto(ctx context.Context, in *instance, log *slog.Logger, create bool) (err error) {
	if in.dir, err = a.dir(); err != nil {
		return err
	}
	if in.lock, err = awaitLock(ctx, in.dir, postgres.Lock); err != nil {
		return err
	}
	return a.openLocked(ctx, in, log, create)
}

func (a *app) openLocked(ctx context.Context, in *instance, log *slog.Logger, create bool) (err error) {
	keyDir := filepath.Join(in.dir, "keys")
	in.keys, err = signing.LoadKeys(keyDir)
	if errors.Is(err, signing.ErrNoKeys) && create {
		in.keys, err = signing.CreateKeys(keyDir)
	}
	if err != nil {
		return fmt.Errorf("loading the keys in %s: %w", keyDir, err)
	}
	url := a.databaseURL()
	if url != "" {
		err = in.lock.ServesElsewhere()
	} else {
		in.cluster, err = postgres.Start(ctx, postgres.Config{Dir: in.dir, BinDir: a.getenv("SPAWNMESH_PG_BIN"), User: a.getenv("SPAWNMESH_PG_USER"), Log: log})
		if err != nil {
			return &commands.Refused{Code: commands.StoreDown, Why: "starting the private Postgres of " + in.dir, Err: err}
		}
		url = in.cluster.URL()
	}
	if err != nil {
		return err
	}
	if err := in.openStore(ctx, url); err != nil || in.cluster == nil {
		return err
	}
	return in.lock.AdmitGuests()
}

func (in *instance) openStore(ctx context.Context, url string) (err error) {
	in.db, err = store.Open(ctx, store.Config{URL: url, Self: in.keys.InstanceID(), Signer: in.keys.Signing})
	if _, away := errors.AsType[net.Error](err); away {
		return &commands.Refused{Code: commands.StoreDown, Why: "opening the database of " + in.dir, Hint: "is the server that DATABASE_URL names running?", Err: err}
	}
	if err != nil {
		return fmt.Errorf("opening the database of %s: %w", in.dir, err)
	}
	return nil
}

func (a *app) databaseURL() string {
	if url := a.getenv("SPAWNMESH_DATABASE_URL"); url != "" {
		return url
	}
	return a.getenv("DATABASE_URL")
}

func (in *instance) close(ctx context.Context) error {
	// What is open must be closed in good order also when ctx has ended.
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer done()
	var err error
	if in.cluster != nil {
		err = in.lock.AwaitGuests(ctx, guestPatience)
	}
	if in.db != nil {
		in.db.Close()
	}
	if in.cluster != nil {
		err = errors.Join(err, in.cluster.Close(ctx))
	}
	if in.lock != nil {
		err = errors.Join(err, in.lock.Close())
	}
	if in.guest != nil {
		err = errors.Join(err, in.guest.Close())
	}
	return err
}

// watch ends with an error when the private Postgres has given up.
func (in *instance) watch(ctx context.Context) error {
	if in.cluster == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-in.cluster.Failed():
		return fmt.Errorf("the private Postgres in %s: %w", in.dir, in.cluster.Err())
	}
}

// writeReady tells a script that waits for it that the instance serves. The file
// appears whole: a reader never sees half of it.
func writeReady(path, text string) error {
	if path == "" {
		return nil
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, []byte(text+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing the ready file: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("writing the ready file: %w", err)
	}
	return nil
}
