package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

const undefinedTable = "42P01"

// ErrAddress says that the address of a database has another form than one.
var ErrAddress = errors.New("reading the database address")

// Reach waits until a server answers at address and lets us in, for at most
// patience. waits, when it is not nil, is told once why this takes time. Nothing
// is changed there. The error is [ErrAddress] where there is nothing to wait for.
func Reach(ctx context.Context, address string, patience time.Duration, waits func(err error)) error {
	pc, err := pgx.ParseConfig(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAddress, err)
	}
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	for next := 10 * time.Millisecond; ; next = min(2*next, 500*time.Millisecond) {
		err := connectOnce(ctx, pc)
		if err == nil || !transient(err) || ctx.Err() != nil {
			return err
		}
		if waits != nil {
			waits(err)
			waits = nil
		}
		if wait.For(ctx, next) != nil {
			return err
		}
	}
}

func connectOnce(ctx context.Context, pc *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, pc)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// Owner returns the instance that the database at address belongs to; "" where it
// has never been an instance's. Nothing is changed.
func Owner(ctx context.Context, address string) (owner string, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", fmt.Errorf("asking whose the database is: %w", err)
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT id FROM instance`).Scan(&owner)
	if p, ok := errors.AsType[*pgconn.PgError](err); ok && p.Code == undefinedTable || errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("asking whose the database is: %w", err)
	}
	return owner, nil
}

// ServerMajor returns the major version of the server of a database.
func ServerMajor(ctx context.Context, address string) (major int, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err == nil {
		defer conn.Close(ctx)
		err = conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000`).Scan(&major)
	}
	if err != nil {
		return 0, fmt.Errorf("asking for the version of the database server: %w", err)
	}
	return major, nil
}
