package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
)

// keepWork notes what agents have left, and their spokes are to bring. Of a result that came after its task had ended here it is noted, too:
// nobody asks for it, but its spoke keeps the files of the agent until it has brought that.
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
	_, err := tx.Exec(ctx, `INSERT INTO peer_work (conn, digest, task, size) SELECT $1, u.digest, u.task, u.size FROM unnest($2::uuid[], $3::text[], $4::bigint[]) AS u (task, digest, size),
			LATERAL (SELECT conn FROM mirrors WHERE task = u.task OFFSET 0) AS m
		WHERE m.conn = $1 ON CONFLICT DO NOTHING`, from.ID, tasks, digests, sizes)
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
			FROM peer_work u WHERE u.conn = $1::uuid AND u.digest = $2 LIMIT 1`, conn, digest).Scan(&size, &held, &all)
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
		return c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM peer_work u, blobs b WHERE u.task = $1 AND u.digest = $2 AND u.size = $3 AND u.conn = (SELECT conn FROM mirrors WHERE task = $1)
			AND b.digest = u.digest AND b.size = u.size AND b.owner = u.conn::text)`, task, b.Digest, b.Size).Scan(&here)
	})
	return here, err
}

// WorkLost notes that bytes which a spoke has brought are not here any more. It reports whether they were to be: a second time they are not.
func (db *DB) WorkLost(ctx context.Context, task string, b commands.Blob) (was bool, err error) {
	err = db.Tx(ctx, "noting that what task "+task+" has left was lost", func(ctx context.Context, tx *Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM blobs WHERE digest = $2 AND owner = (SELECT conn::text FROM mirrors WHERE task = $1)`, task, b.Digest)
		was = tag.RowsAffected() > 0
		return err
	})
	return was, err
}

// Era is another one after each restore of the database.
func (db *DB) Era(ctx context.Context) (era int64, err error) {
	err = db.Read(ctx, "reading the era of the database", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT era FROM audit_tree`).Scan(&era)
	})
	return era, err
}
