package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Rows of blobs say which bytes this instance holds, and for whom: what a workspace was given to order is none of another one's, and
// what came over a connection is none of another one's, although the file is one. blob_uses says which tasks need them.

// blobsOf is the owner of what was given to a workspace.
func blobsOf(workspace string) string { return "ws/" + workspace }

// KeepBlob notes that somebody has given the bytes of b, which are on the disk, to be ordered. Until an order needs them they are kept for a while.
func (db *DB) KeepBlob(ctx context.Context, b commands.Blob, actor string) error {
	return db.Tx(ctx, "noting blob "+b.Digest, func(ctx context.Context, tx *Tx) error {
		tx.Audit(AuditRow{Actor: actor, Action: "blob.given", Object: b.Digest, Why: fmt.Sprintf("%d bytes", b.Size)})
		_, err := tx.Exec(ctx, `INSERT INTO blobs (digest, owner, size) VALUES ($1, $2, $3) ON CONFLICT (digest, owner) DO UPDATE SET size = excluded.size, at = clock_timestamp()`, b.Digest, blobsOf(ordersWorkspace), b.Size)
		return err
	})
}

// holdInputs returns which inputs of orders are here, and keeps them. What another workspace was given is not here.
func holdInputs(ctx context.Context, tx *Tx, orders []SpawnOrder) (map[commands.Blob]bool, error) {
	var digests []string
	for _, o := range orders {
		for _, b := range o.Spawn.Blobs() {
			digests = append(digests, b.Digest)
		}
	}
	if len(digests) == 0 {
		return nil, nil
	}
	// The rows change, so that whoever is about to forget them looks at them again.
	rows, err := tx.Query(ctx, `WITH held AS MATERIALIZED (SELECT digest, owner FROM blobs WHERE digest = ANY ($1::text[]) AND owner = $2 ORDER BY digest FOR UPDATE)
		UPDATE blobs b SET at = clock_timestamp() FROM held h WHERE b.digest = h.digest AND b.owner = h.owner RETURNING b.digest, b.size`, digests, blobsOf(ordersWorkspace))
	if err != nil {
		return nil, fmt.Errorf("looking for the inputs of orders: %w", err)
	}
	here := map[commands.Blob]bool{}
	var b commands.Blob
	if _, err := pgx.ForEachRow(rows, []any{&b.Digest, &b.Size}, func() error { here[b] = true; return nil }); err != nil {
		return nil, fmt.Errorf("looking for the inputs of orders: %w", err)
	}
	return here, nil
}

// refuseMissing refuses orders with inputs that are not here. One that was given before is none of them.
func refuseMissing(orders []SpawnOrder, out []Ordered, here map[commands.Blob]bool) {
	for i, o := range orders {
		for _, b := range o.Spawn.Blobs() {
			if out[i].Err == nil && !out[i].Existing && !here[b] {
				out[i].Err = commands.Refuse(commands.InputMissing, "this hub does not have the input %s with %d bytes", b.Digest, b.Size).
					Hinting("send its bytes first (POST /api/v1/blobs), and order then; what no order names is kept for a day")
			}
		}
	}
}

// ordersWorkspace is that of orders of agents.
const ordersWorkspace = "main"

// noteInputs queues which mirrors need which blobs.
func noteInputs(tx *Tx, orders []SpawnOrder, which []int) {
	var tasks, digests []string
	var sizes []int64
	for _, i := range which {
		for _, b := range orders[i].Spawn.Blobs() {
			tasks, digests, sizes = append(tasks, orders[i].Spawn.Task), append(digests, b.Digest), append(sizes, b.Size)
		}
	}
	if len(tasks) > 0 {
		tx.Queue(`INSERT INTO blob_uses (task, digest, size) SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[])`, tasks, digests, sizes)
	}
}

// InputFor returns the size of a blob that a spoke may fetch: an order over its connection needs it, and has not ended. Any other one is
// NOT_FOUND, whether it is here or not.
func (db *DB) InputFor(ctx context.Context, conn, digest string) (size int64, err error) {
	err = db.Read(ctx, "looking for an input of a spoke", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT u.size FROM (SELECT task, size FROM blob_uses WHERE digest = $2 AND NOT result OFFSET 0) AS u, LATERAL (SELECT conn, ended_at FROM mirrors WHERE task = u.task OFFSET 0) AS m
			WHERE m.conn = $1 AND m.ended_at IS NULL LIMIT 1`, conn, digest).Scan(&size)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, commands.Refuse(commands.NotFound, "no order over this connection needs blob %s", digest)
	}
	return size, err
}

// forgetBatch is how many blobs are forgotten in one transaction.
const forgetBatch = 100

// ForgetBlobs forgets blobs that no task needs or has left, and that nobody has given or ordered within grace, a batch of them. It calls
// remove for each whose bytes nobody owns any more, and returns how many that were. Nobody notes a blob meanwhile: whoever has just written the same bytes
// and notes them looks afterwards whether they are there.
func (db *DB) ForgetBlobs(ctx context.Context, grace time.Duration, remove func(digest string) error) (n int, err error) {
	err = db.Tx(ctx, "forgetting blobs that nobody needs", func(ctx context.Context, tx *Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE blobs IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `WITH old AS MATERIALIZED (
				SELECT digest, owner FROM blobs b WHERE at < clock_timestamp() - $1::interval AND NOT EXISTS (SELECT FROM blob_uses u WHERE u.digest = b.digest) AND NOT EXISTS (SELECT FROM messages m WHERE m.blob = b.digest AND m.blob <> '') ORDER BY at LIMIT $2
			), gone AS (
				DELETE FROM blobs b USING old o WHERE b.digest = o.digest AND b.owner = o.owner RETURNING b.digest, b.owner
			)
			SELECT digest FROM gone g WHERE NOT EXISTS (SELECT FROM blobs b WHERE b.digest = g.digest AND (b.digest, b.owner) NOT IN (SELECT digest, owner FROM gone)) GROUP BY digest`, grace, forgetBatch)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		n = len(list)
		for _, digest := range list {
			if err := remove(digest); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}
