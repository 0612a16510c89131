package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// historyLength is how many messages a digest of a history covers.
const historyLength = 1000

// Numbering returns what this side of a connection has numbered and stored; with
// its digest if whole is set, and with what the peer has asked for in theirs,
// which is nil before it was heard.
func (db *DB) Numbering(ctx context.Context, conn string, whole bool, theirs *commands.Numbering) (n commands.Numbering, err error) {
	var set numbers
	var peerBase int64
	if err := db.pool.QueryRow(ctx, `SELECT last, base, stored, peer_base, recall_from FROM sequences WHERE conn = $1`, conn).
		Scan(&n.Sent, &n.Base, &set, &peerBase, &n.Recall); err != nil {
		return n, fmt.Errorf("reading the numbers of connection %s: %w", conn, err)
	}
	n.Stored = numbersOf(set)
	if whole {
		if n.Digest, err = db.history(ctx, conn, peerBase, n.Stored); err != nil {
			return n, err
		}
	}
	if theirs != nil && len(theirs.Ask) > 0 {
		if n.Held, err = db.held(ctx, conn, theirs.Ask); err != nil {
			return n, err
		}
	}
	if theirs != nil && theirs.Recall > 0 {
		n.Recalled, err = db.recalled(ctx, conn, theirs.Recall)
	}
	return n, err
}

// history returns the digest of the peer's newest messages. A row that comes in
// meanwhile does not count: it is not in the set that is told with it.
func (db *DB) history(ctx context.Context, conn string, base int64, stored commands.Numbers) (*commands.History, error) {
	h := &commands.History{Base: base, Until: time.Now().UnixMilli()}
	err := db.pool.QueryRow(ctx, historyOf("inbox"), conn, base+1, stored.Through, gaps(stored), time.UnixMilli(h.Until)).Scan(&h.From, &h.SHA256)
	if err != nil {
		return nil, fmt.Errorf("reading the history of connection %s: %w", conn, err)
	}
	return h, nil
}

// historyOf is the digest over the newest messages of a table, inbox or outbox,
// that are in a set of numbers and expire after a time.
func historyOf(table string) string {
	return fmt.Sprintf(`
		SELECT coalesce(min(seq), 0), encode(sha256(coalesce(string_agg(int8send(seq) || digest, ''::bytea ORDER BY seq), ''::bytea)), 'hex')
		FROM (SELECT seq, digest FROM %s WHERE conn = $1 AND seq BETWEEN $2 AND $3 AND NOT $4::int8multirange @> seq AND exp > $5
			ORDER BY seq DESC LIMIT %d) AS newest`, table, historyLength)
}

func (db *DB) held(ctx context.Context, conn string, asked []int64) ([]commands.Held, error) {
	rows, err := db.pool.Query(ctx, `SELECT seq, encode(digest, 'hex') FROM inbox WHERE conn = $1 AND seq = ANY ($2) ORDER BY seq`, conn, asked)
	if err != nil {
		return nil, fmt.Errorf("reading messages that the peer has asked for: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[commands.Held])
}
