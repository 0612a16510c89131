package store

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/internal/audittree"
)

// AuditLeaves returns up to most leaves of the tree from one on, and how many the tree has.
func (db *DB) AuditLeaves(ctx context.Context, from int64, most int) (list []audittree.Leaved, size int64, err error) {
	err = db.Read(ctx, "reading the leaves of the audit", func(ctx context.Context, conn *pgxpool.Conn) error {
		if list, err = readLeaves(ctx, conn, from, most); err != nil {
			return err
		}
		return conn.QueryRow(ctx, `SELECT coalesce(max(size), 0) FROM audit_tree`).Scan(&size)
	})
	return list, size, err
}

func readLeaves(ctx context.Context, q querier, from int64, most int) ([]audittree.Leaved, error) {
	rows, err := q.Query(ctx, `SELECT l.leaf, l.seq, a.seq IS NOT NULL, `+leafColumnsOrNone+`
		FROM (SELECT leaf, seq FROM audit_leaves WHERE leaf >= $1 ORDER BY leaf LIMIT $2) AS l LEFT JOIN audit a ON a.seq = l.seq ORDER BY l.leaf`, from, most)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, scanLeaf)
	if err == nil {
		err = addHashes(ctx, q, list)
	}
	return list, err
}

// leafColumnsOrNone are [leafColumns] where there may be no row.
const leafColumnsOrNone = `coalesce(a.seq, 0), coalesce(a.at, 'epoch'), coalesce(a.workspace, ''), coalesce(a.actor, ''), coalesce(a.action, ''), coalesce(a.object, ''), a.tasks::text[],
	coalesce(a.code, ''), coalesce(a.why, ''), coalesce(a.conn::text, ''), coalesce(a.message::text, '')`

func scanLeaf(row pgx.CollectableRow) (l audittree.Leaved, err error) {
	var there bool
	var r audittree.Row
	err = row.Scan(append([]any{&l.Leaf, &l.Seq, &there}, leafFields(&r)...)...)
	if there {
		l.Row = &r
	}
	return l, err
}

// addHashes adds to leaves what the tree has of each; one that is gone stays zero.
func addHashes(ctx context.Context, q querier, list []audittree.Leaved) error {
	places, at := make([]int64, len(list)), map[int64]int{}
	for i, l := range list {
		places[i] = audittree.Place(l.Leaf)
		at[places[i]] = i
	}
	rows, err := q.Query(ctx, `SELECT h.place, h.hash FROM unnest($1::bigint[]) AS u (place), LATERAL (SELECT place, hash FROM audit_hashes WHERE place = u.place) AS h`, places)
	if err != nil {
		return err
	}
	var place int64
	var hash []byte
	_, err = pgx.ForEachRow(rows, []any{&place, &hash}, func() error {
		copy(list[at[place]].Hash[:], hash)
		return nil
	})
	return err
}

// straysLooked is at how many audit rows one statement looks that looks for strays.
const straysLooked = 1000

// AuditStrays returns up to most numbers of audit rows that are no leaves although the tree has passed them and
// nothing is waited for there: they were put in. It looks at all rows that the tree has passed, a batch at a time.
func (db *DB) AuditStrays(ctx context.Context, most int) (list []int64, err error) {
	for from, more := int64(math.MinInt64), true; more && len(list) < most; {
		var found []int64
		err := db.Read(ctx, "looking for audit rows that are no leaves", func(ctx context.Context, conn *pgxpool.Conn) error {
			return conn.QueryRow(ctx, straysAmong, from, straysLooked, most-len(list)).Scan(&more, &from, &found)
		})
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// straysAmong looks at the next $2 audit rows from the number $1 on. It answers whether there may be more, from where, and up to $3
// strays. Each row is looked up in the leaves: a join would read those of all rows that retention has removed.
const straysAmong = `
	WITH page AS MATERIALIZED (
		SELECT seq FROM audit WHERE seq >= $1 AND seq <= (SELECT seq FROM audit_tree) ORDER BY seq LIMIT $2
	), bare AS (
		SELECT seq FROM page EXCEPT SELECT l.seq FROM page p, LATERAL (SELECT seq FROM audit_leaves WHERE seq = p.seq OFFSET 0) AS l
	)
	SELECT (SELECT count(*) FROM page) = $2::int, coalesce((SELECT max(seq) FROM page) + 1, $1), ARRAY (
		SELECT b.seq FROM bare b WHERE NOT EXISTS (SELECT FROM audit_gaps g WHERE b.seq BETWEEN g.first AND g.last) ORDER BY b.seq LIMIT $3)`
