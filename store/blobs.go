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
// what came over a connection is none of another one's, although the file is one. blob_uses says which tasks need or have left them, order_inputs
// and peer_work which orders, and which results of peers: an instance may be both at once.

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
		tx.Queue(`INSERT INTO order_inputs (task, digest, size) SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[])`, tasks, digests, sizes)
	}
}

// InputFor returns the size of a blob that a spoke may fetch: an order over its connection needs it, and has not ended. Any other one is
// NOT_FOUND, whether it is here or not.
func (db *DB) InputFor(ctx context.Context, conn, digest string) (size int64, err error) {
	err = db.Read(ctx, "looking for an input of a spoke", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT u.size FROM (SELECT task, size FROM order_inputs WHERE digest = $2 OFFSET 0) AS u, LATERAL (SELECT conn, ended_at FROM mirrors WHERE task = u.task OFFSET 0) AS m
			WHERE m.conn = $1 AND m.ended_at IS NULL LIMIT 1`, conn, digest).Scan(&size)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, commands.Refuse(commands.NotFound, "no order over this connection needs blob %s", digest)
	}
	return size, err
}

// forgetBatch is how many blobs are forgotten in one transaction.
const forgetBatch = 100

// ForgetBlobs forgets blobs that no task needs or has left, and that nobody has given or ordered within grace, a batch of them. It returns
// those that nobody owns any more: their bytes may go, unless they were written anew. Whoever begins to need a blob has its row before or after this.
func (db *DB) ForgetBlobs(ctx context.Context, grace time.Duration) (gone []string, err error) {
	err = db.Tx(ctx, "forgetting blobs that nobody needs", func(ctx context.Context, tx *Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE blobs IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `WITH old AS MATERIALIZED (
				SELECT digest, owner FROM blobs b WHERE at < clock_timestamp() - $1::interval AND NOT EXISTS (SELECT FROM blob_uses u WHERE u.digest = b.digest)
					AND NOT EXISTS (SELECT FROM order_inputs i WHERE i.digest = b.digest) AND NOT EXISTS (SELECT FROM peer_work w WHERE w.digest = b.digest)
					AND NOT EXISTS (SELECT FROM messages m WHERE m.blob = b.digest AND m.blob <> '') ORDER BY at LIMIT $2
			), gone AS (
				DELETE FROM blobs b USING old o WHERE b.digest = o.digest AND b.owner = o.owner RETURNING b.digest, b.owner
			)
			SELECT digest FROM gone g WHERE NOT EXISTS (SELECT FROM blobs b WHERE b.digest = g.digest AND (b.digest, b.owner) NOT IN (SELECT digest, owner FROM gone)) GROUP BY digest`, grace, forgetBatch)
		if err != nil {
			return err
		}
		gone, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return gone, err
}

// Unknown returns those of digests that nobody owns.
func (db *DB) Unknown(ctx context.Context, digests []string) (list []string, err error) {
	err = db.Read(ctx, "looking for bytes that nobody owns", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, `SELECT d FROM unnest($1::text[]) AS d WHERE NOT EXISTS (SELECT FROM blobs WHERE digest = d)`, digests)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return list, err
}

// A Part names what is on its way, and the connection over which it comes.
type Part struct{ Conn, Digest string }

// Unwanted returns those of parts that no living connection is to bring and nobody here waits for.
func (db *DB) Unwanted(ctx context.Context, parts []Part) (list []Part, err error) {
	conns, digests := make([]string, len(parts)), make([]string, len(parts))
	for i, p := range parts {
		conns[i], digests[i] = p.Conn, p.Digest
	}
	err = db.Read(ctx, "looking for parts that nobody wants", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, `SELECT p.conn, p.digest FROM unnest($1::text[], $2::text[]) AS p (conn, digest)
			WHERE NOT EXISTS (SELECT FROM connections c WHERE c.id::text = p.conn AND NOT has_ended(c.state))
				OR EXISTS (SELECT FROM blobs b WHERE b.digest = p.digest AND b.owner = p.conn)
				OR NOT EXISTS (SELECT FROM peer_work w WHERE w.digest = p.digest AND w.conn::text = p.conn)
					AND NOT EXISTS (SELECT FROM blob_uses u, LATERAL (SELECT state FROM tasks WHERE id = u.task OFFSET 0) AS t WHERE u.digest = p.digest AND u.conn::text = p.conn AND NOT u.result AND NOT is_terminal(t.state))`, conns, digests)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Part])
		return err
	})
	return list, err
}
