package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

const (
	openPatience = 30 * time.Second // how long one owner of the data directory is waited for
	guestOpening = 3 * time.Second  // how long a server that answered may take to open its database
	betweenTries = 20 * time.Millisecond
)

// Visit opens the database of the data directory for one command: the one that
// the options name; else the private one, which this process starts when nobody
// has, and else uses as a guest. Whoever starts it stops it as soon as it has
// done its own work, so a guest may find it gone, and starts over. With create,
// keys are made where there has never been an instance; without, nothing is made, and their lack is
// [commands.NotFound].
func Visit(ctx context.Context, o Options, create bool) (*Instance, error) {
	if err := o.look(); err != nil {
		return nil, err
	}
	if _, err := LoadKeys(o.Dir); errors.Is(err, signing.ErrNoKeys) && !create {
		return nil, commands.Refuse(commands.NotFound, "there is no instance in %s", o.Dir).
			Hinting("name another --data-dir; who makes one: backlog create, hub run, spoke join")
	}
	if o.DatabaseURL != "" {
		return visitNamed(ctx, o)
	}
	owner, until := 0, time.Now().Add(openPatience)
	for {
		in, err := visitOnce(ctx, o)
		if !errors.Is(err, postgres.ErrNotServing) {
			return in, err
		}
		// Each owner has its own time: one that has gone shows that things move.
		inUse, _ := errors.AsType[*postgres.InUseError](err)
		if inUse.PID != owner {
			owner, until = inUse.PID, time.Now().Add(openPatience)
		}
		if time.Now().After(until) {
			return nil, commands.Refuse(commands.Unreachable, "process %d has %s and lets nobody use its database", owner, o.Dir).
				Hinting("try again; if it stays so, stop that process, or see what it says")
		}
		if err := wait.For(ctx, betweenTries); err != nil {
			return nil, err
		}
	}
}

// visitOnce takes the data directory, or becomes the guest of who has it.
func visitOnce(ctx context.Context, o Options) (*Instance, error) {
	in := &Instance{Dir: o.Dir, options: o}
	lock, err := postgres.LockBriefly(o.Dir)
	if inUse, ok := errors.AsType[*postgres.InUseError](err); ok {
		err = in.beGuest(ctx, inUse)
	} else if err == nil {
		in.lock = lock
		if err = in.loadKeys(ctx, true); err == nil {
			err = in.openLocked(ctx)
		}
	}
	if err != nil {
		return nil, errors.Join(err, in.Close(ctx))
	}
	return in, nil
}

// beGuest opens the database that the owner of the data directory serves.
func (in *Instance) beGuest(ctx context.Context, owner *postgres.InUseError) (err error) {
	in.guest, err = postgres.Visit(ctx, in.Dir)
	if errors.Is(err, postgres.ErrElsewhere) {
		return commands.Refuse(commands.Conflict, "the instance that runs in %s (pid %d) has its database elsewhere", in.Dir, owner.PID).
			Hinting("set DATABASE_URL here to the same address")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, owner)
	}
	if err := in.loadKeys(ctx, false); err != nil {
		return err
	}
	brief, done := context.WithTimeout(ctx, guestOpening)
	defer done()
	err = in.openStore(brief, in.guest.URL())
	if err != nil && ctx.Err() == nil && postgres.Away(err) {
		return fmt.Errorf("%w: %w: %w", postgres.ErrNotServing, owner, err)
	}
	return err
}

// visitNamed opens the database that the options name. The data directory holds
// nothing but the keys.
func visitNamed(ctx context.Context, o Options) (*Instance, error) {
	in := &Instance{Dir: o.Dir, options: o}
	if err := o.reach(ctx, visitPatience); err != nil {
		return nil, err
	}
	if err := in.ownKeys(ctx); err != nil {
		return nil, err
	}
	if err := in.openStore(ctx, o.DatabaseURL); err != nil {
		return nil, errors.Join(err, in.Close(ctx))
	}
	return in, nil
}

// ownKeys reads the keys, and takes the lock only where they must be made.
func (in *Instance) ownKeys(ctx context.Context) (err error) {
	in.Keys, err = LoadKeys(in.Dir)
	if !errors.Is(err, signing.ErrNoKeys) {
		return err
	}
	lock, err := awaitLock(ctx, in.Dir, postgres.LockBriefly)
	if err != nil {
		return err
	}
	return errors.Join(in.loadKeys(ctx, true), lock.Close())
}

// awaitLock takes the data directory; where a single command has it at this
// moment, it waits for that.
func awaitLock(ctx context.Context, dir string, take func(dir string) (*postgres.InstanceLock, error)) (*postgres.InstanceLock, error) {
	for until := time.Now().Add(openPatience); ; {
		lock, err := take(dir)
		inUse, ok := errors.AsType[*postgres.InUseError](err)
		if !ok || !inUse.Brief || time.Now().After(until) {
			return lock, err
		}
		if err := wait.For(ctx, betweenTries); err != nil {
			return nil, err
		}
	}
}

// Leaving reports whether the owner of the database that we use as a guest is
// about to stop it. A visitor then closes and visits again.
func (in *Instance) Leaving() bool { return in.guest != nil && in.guest.Leaving() }

// Gone reports whether err says that the owner of the database that we use as a
// guest has stopped it. A visitor then visits again.
func (in *Instance) Gone(err error) bool { return in.guest != nil && postgres.Away(err) }
