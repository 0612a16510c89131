// Package instance opens an instance: its data directory, its lock, its keys and
// its database.
//
// It is the one way in for programs, tests and tools. An [Instance] owns its data
// directory until Close; [Visit] lets a single command use the database of an
// instance that runs, or of one that does not. The private Postgres is started
// where no other database is named, and stopped by whoever started it.
package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// Options say where an instance lives.
type Options struct {
	Dir          string       // the data directory, absolute
	DatabaseURL  string       // of a database that somebody else runs; empty: the private one
	BinDir       string       // of PostgreSQL's programs; empty: found
	PostgresUser string       // who runs the private Postgres where we are root; empty: found
	PoolSize     int          // connections to the database; 0 means the store's default
	Log          *slog.Logger // required
	Tracer       store.Tracer // told of every statement; nil = nobody is
	// Made is called after keys were made for a new instance. Nil: nobody is told.
	Made func(dir string)
	// Doing is called with what is begun that may take a while. Nil: nobody is told.
	Doing func(what string)
}

// Do tells whoever wants to know what is begun.
func (o Options) Do(what string) {
	if o.Doing != nil {
		o.Doing(what)
	}
}

// An Instance is an opened data directory: with keys, a database and, where it
// is ours alone, the lock.
type Instance struct {
	Dir  string
	Keys signing.Keys
	DB   *store.DB

	options Options
	lock    *postgres.InstanceLock
	cluster *postgres.Cluster
	guest   *postgres.Guest // where another process has lock and cluster
}

// guestPatience is how long a stop waits for commands that use our database.
const guestPatience = 2 * time.Second

// Open locks the data directory, loads the keys and opens the database, starting
// the private Postgres when no other is named. With create, keys are made where
// there has never been an instance; without, their lack is [signing.ErrNoKeys].
func Open(ctx context.Context, o Options, create bool) (*Instance, error) {
	in := &Instance{Dir: o.Dir, options: o}
	if err := o.look(); err != nil {
		return nil, err
	}
	if err := o.reach(ctx, servePatience); err != nil {
		return nil, err
	}
	err := in.own(ctx, create)
	if err != nil {
		return nil, errors.Join(err, in.Close(ctx))
	}
	return in, nil
}

// look finds out whether others could change what is in the data directory, before
// anything is made there.
func (o Options) look() error {
	if err := hostfile.Way(o.Dir); err != nil {
		return fmt.Errorf("looking at the data directory: %w", err)
	}
	return nil
}

// How long a database that the options name may take to answer: where somebody
// waits for one command, and where an instance starts.
const (
	visitPatience = 5 * time.Second
	servePatience = 20 * time.Second
)

// reach waits for the database that the options name, before anything is made for
// it in the data directory.
func (o Options) reach(ctx context.Context, patience time.Duration) error {
	if o.DatabaseURL == "" {
		return nil
	}
	err := store.Reach(ctx, o.DatabaseURL, patience, func(err error) {
		o.Log.WarnContext(ctx, "the database that DATABASE_URL names does not answer; it is tried again", "at_most", patience, "err", err)
	})
	if errors.Is(err, store.ErrAddress) {
		return commands.Refuse(commands.Validation, "DATABASE_URL cannot be read: %v", err).Hinting("as in: postgres://USER@HOST:5432/NAME")
	}
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		return &commands.Refused{Code: commands.StoreDown, Why: "opening the database of " + o.Dir,
			Hint: "is the server that DATABASE_URL names running, and does it let its user in?", Err: err}
	}
	return err
}

func (in *Instance) own(ctx context.Context, create bool) (err error) {
	if in.lock, err = awaitLock(ctx, in.Dir, postgres.Lock); err != nil {
		return err
	}
	if err := in.loadKeys(ctx, create); err != nil {
		return err
	}
	if err := in.settle(); err != nil {
		return err
	}
	return in.openLocked(ctx)
}

func (in *Instance) openLocked(ctx context.Context) error {
	url, err := in.serve(ctx)
	if err != nil {
		return err
	}
	if err := in.openStore(ctx, url); err != nil || in.cluster == nil {
		return err
	}
	return in.lock.AdmitGuests()
}

// serve returns the address of the database, after starting the private one.
func (in *Instance) serve(ctx context.Context) (url string, err error) {
	o := in.options
	if o.DatabaseURL != "" {
		return o.DatabaseURL, in.lock.ServesElsewhere()
	}
	if !postgres.Made(in.Dir) {
		o.Do("making the database")
	}
	in.cluster, err = postgres.Start(ctx, postgres.Config{Dir: in.Dir, BinDir: o.BinDir, User: o.PostgresUser, Log: o.Log})
	if err != nil {
		return "", &commands.Refused{Code: commands.StoreDown, Why: "starting the private Postgres of " + in.Dir, Err: err}
	}
	return in.cluster.URL(), nil
}

// DatabaseURL is the address of the database that is open.
func (in *Instance) DatabaseURL() string {
	switch {
	case in.cluster != nil:
		return in.cluster.URL()
	case in.guest != nil:
		return in.guest.URL()
	}
	return in.options.DatabaseURL
}

func (in *Instance) openStore(ctx context.Context, url string) (err error) {
	in.DB, err = store.Open(ctx, store.Config{URL: url, Self: in.Keys.InstanceID(), Signer: in.Keys.Signing, Ring: in.Keys.Ring, Sealing: in.Keys.Decrypter, PoolSize: in.options.PoolSize, Tracer: in.options.Tracer})
	if _, away := errors.AsType[net.Error](err); away {
		return &commands.Refused{Code: commands.StoreDown, Why: "opening the database of " + in.Dir, Hint: "is its server running?", Err: err}
	}
	if err != nil {
		return fmt.Errorf("opening the database of %s: %w", in.Dir, err)
	}
	return nil
}

// Close closes what is open in the opposite order. It does so also when ctx has
// ended, and takes a minute at most.
func (in *Instance) Close(ctx context.Context) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer done()
	var err error
	if in.cluster != nil {
		err = in.lock.AwaitGuests(ctx, guestPatience)
	}
	if in.DB != nil {
		in.DB.Close()
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

// Watch waits until ctx ends, and then returns nil, or until the private
// Postgres has given up, and then says why.
func (in *Instance) Watch(ctx context.Context) error {
	if in.cluster == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-in.cluster.Failed():
		return fmt.Errorf("the private Postgres in %s: %w", in.Dir, in.cluster.Err())
	}
}
