package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/audittree"
)

// treePage is how many rows become leaves in one transaction at most.
const treePage = 1000

// GrowAuditTree makes leaves of the audit rows that are committed, and returns how many the tree has. Others may do so
// at the same time.
func (db *DB) GrowAuditTree(ctx context.Context) (size int64, err error) {
	for n := treePage; n == treePage && err == nil; {
		err = db.Tx(ctx, "adding to the tree of the audit", func(ctx context.Context, tx *Tx) (err error) {
			tx.TellNobody()
			t, err := holdAuditTree(ctx, tx)
			if err != nil {
				return err
			}
			n, err = growAuditTree(ctx, tx, t)
			size = t.size + int64(n)
			return err
		})
	}
	return size, err
}

// growAuditTree adds a page, and says how many rows it had.
func growAuditTree(ctx context.Context, tx *Tx, t auditTree) (int, error) {
	rows, err := newLeaves(ctx, tx, t.seq)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	seqs, leaves := make([]int64, len(rows)), make([]audittree.Hash, len(rows))
	var first, last []int64 // of gaps
	for i, r := range rows {
		if seqs[i], leaves[i] = r.Seq, audittree.Leaf(r); r.Seq > t.seq+1 {
			first, last = append(first, t.seq+1), append(last, r.Seq-1)
		}
		t.seq = max(t.seq, r.Seq)
	}
	added, err := audittree.Append(t.size, leaves, storedHashes(ctx, tx))
	if err != nil {
		return 0, err
	}
	raw := make([][]byte, len(added))
	for i := range added {
		raw[i] = added[i][:]
	}
	var b pgx.Batch
	b.Queue(`INSERT INTO audit_leaves (leaf, seq) SELECT $1 + n - 1, seq FROM unnest($2::bigint[]) WITH ORDINALITY AS u (seq, n)`, t.size, seqs)
	b.Queue(`INSERT INTO audit_hashes (place, hash) SELECT $1 + n - 1, hash FROM unnest($2::bytea[]) WITH ORDINALITY AS u (hash, n)`, audittree.Place(t.size), raw)
	b.Queue(`INSERT INTO audit_gaps (first, last) SELECT * FROM unnest($1::bigint[], $2::bigint[])`, first, last)
	// Whoever took a number long ago and has not begun to write gets none of these: no transaction of this program takes so long.
	b.Queue(`DELETE FROM audit_gaps WHERE at < clock_timestamp() - interval '10 min' AND running <= pg_snapshot_xmin(pg_current_snapshot()) OR at < clock_timestamp() - interval '1 day'`)
	b.Queue(`UPDATE audit_tree SET size = $1, seq = $2`, t.size+int64(len(rows)), t.seq)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return 0, fmt.Errorf("storing leaves: %w", err)
	}
	return len(rows), nil
}

// newLeaves are the first rows that are none yet, in the order of their numbers: those behind seq, and those that were
// not there when it was passed.
func newLeaves(ctx context.Context, tx *Tx, seq int64) ([]audittree.Row, error) {
	rows, err := tx.Query(ctx, `
		WITH late AS MATERIALIZED (
			SELECT s.seq FROM audit_gaps g, LATERAL (SELECT seq FROM audit WHERE seq BETWEEN g.first AND g.last OFFSET 0) AS s
			WHERE NOT EXISTS (SELECT FROM audit_leaves l WHERE l.seq = s.seq) LIMIT $2
		), next AS MATERIALIZED (
			SELECT seq FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2
		), found AS MATERIALIZED (
			SELECT seq FROM late UNION ALL SELECT seq FROM next ORDER BY seq LIMIT $2
		)
		SELECT `+leafColumns+` FROM found f, LATERAL (SELECT * FROM audit WHERE seq = f.seq OFFSET 0) AS a ORDER BY a.seq`, seq, treePage)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r audittree.Row, err error) { return r, row.Scan(leafFields(&r)...) })
}

const leafColumns = `a.seq, a.at, a.workspace, a.actor, a.action, a.object, a.tasks::text[], a.code, a.why, coalesce(a.conn::text, ''), coalesce(a.message::text, '')`

func leafFields(r *audittree.Row) []any {
	return []any{&r.Seq, &r.At, &r.Workspace, &r.Actor, &r.Action, &r.Object, &r.Tasks, &r.Code, &r.Why, &r.Conn, &r.Message}
}

type auditTree struct{ size, seq, era int64 }

// holdAuditTree holds the tree alone, until the transaction ends.
func holdAuditTree(ctx context.Context, tx *Tx) (t auditTree, err error) {
	err = tx.QueryRow(ctx, `SELECT size, seq, era FROM audit_tree FOR UPDATE`).Scan(&t.size, &t.seq, &t.era)
	if errors.Is(err, pgx.ErrNoRows) {
		err = brokenAudit("its tree is gone")
	}
	return t, err
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// storedHashes reads the tree.
func storedHashes(ctx context.Context, q querier) audittree.Reader {
	return func(places []int64) ([]audittree.Hash, error) {
		rows, err := q.Query(ctx, `SELECT h.hash FROM unnest($1::bigint[]) WITH ORDINALITY AS u (place, n), LATERAL (SELECT hash FROM audit_hashes WHERE place = u.place) AS h ORDER BY u.n`, places)
		if err != nil {
			return nil, fmt.Errorf("reading the tree of the audit: %w", err)
		}
		raw, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err != nil {
			return nil, fmt.Errorf("reading the tree of the audit: %w", err)
		}
		list := make([]audittree.Hash, len(raw))
		for i, h := range raw {
			if copy(list[i][:], h) != len(list[i]) {
				return nil, brokenAudit("a hash of its tree has %d bytes", len(h))
			}
		}
		if len(list) != len(places) {
			return nil, brokenAudit("%d hashes of its tree are gone", len(places)-len(list))
		}
		return list, nil
	}
}

// brokenAudit says what is wrong with the audit.
func brokenAudit(format string, args ...any) error {
	return commands.Refuse(commands.AuditBroken, "the audit was changed: "+format, args...).Hinting("find the first row that does not fit").Running("audit", "verify")
}
