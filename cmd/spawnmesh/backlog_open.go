package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

const (
	openPatience  = 30 * time.Second // how long one owner of the data directory is waited for
	guestOpening  = 3 * time.Second  // how long a server that answered may take to open its database
	betweenLooks  = 20 * time.Millisecond
	adminShutdown = "57P0" // codes with which Postgres sends its clients away
)

// withBacklog runs one command on the backlog, with or without an instance that
// runs in the data directory.
func (a *app) withBacklog(ctx context.Context, fn func(ctx context.Context, b *store.Backlog) error) error {
	return a.withInstance(ctx, func(ctx context.Context, in *instance) error {
		b, err := in.db.Backlog(a.workspace, actor())
		if err != nil {
			return err
		}
		return fn(ctx, b)
	})
}

func (a *app) withInstance(ctx context.Context, fn func(ctx context.Context, in *instance) error) (err error) {
	in, err := a.openBacklog(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if e := in.close(ctx); err == nil {
			err = e
		}
	}()
	err = fn(ctx, in)
	if r, ok := errors.AsType[*commands.Refused](err); ok {
		return r // it says all that there is to say
	}
	return err
}

// actor is who the audit says did it.
func actor() string { return "uid:" + strconv.Itoa(os.Geteuid()) }

// openBacklog opens the database of the data directory for one command: the one
// that the environment names; else the private one, which this process starts
// when nobody has, and else uses as a guest. Whoever starts it stops it as soon
// as it has done its own work, so a guest may find it gone, and starts over.
func (a *app) openBacklog(ctx context.Context) (*instance, error) {
	dir, err := a.dir()
	if err != nil {
		return nil, err
	}
	if url := a.databaseURL(); url != "" {
		return a.openNamed(ctx, dir, url)
	}
	owner, until := 0, time.Now().Add(openPatience)
	for {
		in, err := a.openOnce(ctx, dir)
		if !errors.Is(err, postgres.ErrNotServing) {
			return in, err
		}
		// Each owner has its own time: one that has gone shows that things move.
		inUse, _ := errors.AsType[*postgres.InUseError](err)
		if inUse.PID != owner {
			owner, until = inUse.PID, time.Now().Add(openPatience)
		}
		if time.Now().After(until) {
			return nil, commands.Refuse(commands.Unreachable, "process %d has %s and lets nobody use its database", owner, dir).
				Hinting("try again; if it stays so, stop that process, or see what it says")
		}
		if err := pause(ctx, betweenLooks); err != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// openOnce takes the data directory, or becomes the guest of who has it.
func (a *app) openOnce(ctx context.Context, dir string) (*instance, error) {
	in := &instance{dir: dir}
	lock, err := postgres.LockBriefly(dir)
	if inUse, ok := errors.AsType[*postgres.InUseError](err); ok {
		if err := in.visit(ctx, inUse); err != nil {
			return nil, errors.Join(err, in.close(ctx))
		}
		return in, nil
	}
	if err != nil {
		return nil, err
	}
	in.lock = lock
	_, err = signing.LoadKeys(filepath.Join(dir, "keys"))
	fresh := errors.Is(err, signing.ErrNoKeys)
	if err := a.openLocked(ctx, in, a.logger(slog.LevelWarn), true); err != nil {
		return nil, errors.Join(err, in.close(ctx))
	}
	if fresh {
		a.sayFresh(dir)
	}
	return in, nil
}

func (a *app) sayFresh(dir string) {
	if a.forPeople() {
		fmt.Fprintf(a.err, "a new instance was made in %s\n", dir)
	}
}

// visit opens the database that the owner of the data directory serves.
func (in *instance) visit(ctx context.Context, owner *postgres.InUseError) (err error) {
	in.guest, err = postgres.Visit(ctx, in.dir)
	if errors.Is(err, postgres.ErrElsewhere) {
		return commands.Refuse(commands.Conflict, "the instance that runs in %s (pid %d) has its database elsewhere", in.dir, owner.PID).
			Hinting("set DATABASE_URL here to the same address")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, owner)
	}
	if in.keys, err = signing.LoadKeys(filepath.Join(in.dir, "keys")); err != nil {
		return fmt.Errorf("loading the keys in %s: %w", in.dir, err)
	}
	brief, done := context.WithTimeout(ctx, guestOpening)
	defer done()
	if err := in.openStore(brief, in.guest.URL()); err != nil && ctx.Err() == nil && away(err) {
		return fmt.Errorf("%w: %w: %w", postgres.ErrNotServing, owner, err)
	} else if err != nil {
		return err
	}
	return nil
}

// away reports whether err says that a database went away under our hands.
func away(err error) bool {
	if _, network := errors.AsType[net.Error](err); network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	var said interface{ SQLState() string }
	return errors.As(err, &said) && strings.HasPrefix(said.SQLState(), adminShutdown)
}

// openNamed opens the database that the environment names. The data directory
// holds nothing but the keys.
func (a *app) openNamed(ctx context.Context, dir, url string) (*instance, error) {
	in := &instance{dir: dir}
	var err error
	if in.keys, err = a.ownKeys(ctx, dir); err != nil {
		return nil, err
	}
	if err := in.openStore(ctx, url); err != nil {
		return nil, errors.Join(err, in.close(ctx))
	}
	return in, nil
}

func (a *app) ownKeys(ctx context.Context, dir string) (signing.Keys, error) {
	keyDir := filepath.Join(dir, "keys")
	k, err := signing.LoadKeys(keyDir)
	if !errors.Is(err, signing.ErrNoKeys) {
		return k, err
	}
	lock, err := awaitLock(ctx, dir, postgres.LockBriefly)
	if err != nil {
		return k, err
	}
	if k, err = signing.LoadKeys(keyDir); errors.Is(err, signing.ErrNoKeys) {
		if k, err = signing.CreateKeys(keyDir); err == nil {
			a.sayFresh(dir)
		}
	}
	return k, errors.Join(err, lock.Close())
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
		if err := pause(ctx, betweenLooks); err != nil {
			return nil, err
		}
	}
}
