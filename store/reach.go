package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

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
