package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
)

// keepWork notes what agents have left, and their spokes are to bring: what the results say that their mirrors have.
func keepWork(ctx context.Context, tx *Tx, from Standing, batch []*Incoming) error {
	var tasks, digests []string
	var sizes []int64
	for _, m := range batch {
		if r, ok := m.Body.(*commands.Result); ok && r.Bundle != nil {
			tasks, digests, sizes = append(tasks, r.Task), append(digests, r.Bundle.Digest), append(sizes, r.Bundle.Size)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `INSERT INTO blob_uses (task, digest, result, size) SELECT u.task, u.digest, true, u.size FROM unnest($2::uuid[], $3::text[], $4::bigint[]) AS u (task, digest, size),
			LATERAL (SELECT conn, result FROM mirrors WHERE task = u.task OFFSET 0) AS m
		WHERE m.conn = $1 AND m.result #>> '{bundle,digest}' = u.digest ON CONFLICT DO NOTHING`, from.ID, tasks, digests, sizes)
	if err != nil {
		return fmt.Errorf("noting what agents have left: %w", err)
	}
	return nil
}

// WorkDue returns the size of a blob that a spoke is to bring, since a task of its connection has left it, and whether it has brought it. Any
// other one is NOT_FOUND; one for which there is no room in most bytes of all that the spoke has brought is PAYLOAD_TOO_LARGE.
func (db *DB) WorkDue(ctx context.Context, conn, digest string, most int64) (size int64, held bool, err error) {
	var all int64
	err = db.Read(ctx, "looking for what a spoke is to bring", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT u.size, EXISTS (SELECT FROM blobs b WHERE b.digest = $2 AND b.owner = $1::text AND b.size = u.size),
				(SELECT coalesce(sum(b.size), 0)::bigint FROM blobs b WHERE b.owner = $1::text)
			FROM (SELECT task, size FROM blob_uses WHERE digest = $2 AND result OFFSET 0) AS u, LATERAL (SELECT conn FROM mirrors WHERE task = u.task OFFSET 0) AS m
			WHERE m.conn = $1::uuid LIMIT 1`, conn, digest).Scan(&size, &held, &all)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, false, commands.Refuse(commands.NotFound, "no task of this connection has left blob %s", digest)
	case err == nil && !held && size > most-all:
		return 0, false, commands.Refuse(commands.PayloadTooLarge, "what this spoke has brought has %d bytes, and with blob %s %d: the limit is %d", all, digest, all+size, most)
	}
	return size, held, err
}

// WorkCame notes that a spoke has brought a blob, whose bytes are on the disk. A second time it does nothing.
func (db *DB) WorkCame(ctx context.Context, conn string, b commands.Blob) error {
	return db.Tx(ctx, "noting what a spoke has brought", func(ctx context.Context, tx *Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO blobs (digest, owner, size) VALUES ($1, $2, $3) ON CONFLICT (digest, owner) DO UPDATE SET size = excluded.size, at = clock_timestamp()`, b.Digest, conn, b.Size)
		return err
	})
}

// WorkHere reports whether what a task has left is here: its spoke has brought it.
func (db *DB) WorkHere(ctx context.Context, task string, b commands.Blob) (here bool, err error) {
	err = db.Read(ctx, "looking for what task "+task+" has left", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM blob_uses u, blobs b WHERE u.task = $1 AND u.digest = $2 AND u.result AND u.size = $3
			AND b.digest = u.digest AND b.size = u.size AND b.owner = (SELECT conn::text FROM mirrors WHERE task = $1))`, task, b.Digest, b.Size).Scan(&here)
	})
	return here, err
}
