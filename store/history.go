package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A digest of a history covers up to historyLength messages, all among the newest historyDepth numbers: the walk to those that
// have not expired must not get longer the more have.
const (
	historyLength = 1000
	historyDepth  = 20_000
)

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
	if n.Refused, err = db.RefusedOf(ctx, conn); err != nil {
		return n, err
	}
	if whole {
		if n.Digest, err = db.history(ctx, conn, peerBase, n.Stored); err != nil {
			return n, err
		}
		if n.Controls, err = db.lastControl(ctx, conn); err != nil {
			return n, err
		}
	}
	if theirs != nil && len(theirs.Stored.Gaps) > 0 && n.Base > 0 {
		if n.Void, err = db.void(ctx, conn, n.Base, theirs.Stored); err != nil {
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
	err := db.pool.QueryRow(ctx, historyOf("inbox"), conn, max(base, stored.Through-historyDepth)+1, stored.Through, gaps(stored), time.UnixMilli(h.Until)).Scan(&h.From, &h.SHA256)
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

// void returns the gaps of what the peer has stored, up to base, that nothing will close:
// what had these numbers was sealed anew after a restore.
func (db *DB) void(ctx context.Context, conn string, base int64, stored commands.Numbers) ([]commands.Range, error) {
	rows, err := db.pool.Query(ctx, `SELECT lower(r), upper(r) - 1 FROM unnest($2::int8multirange * int8multirange(int8range(1, $3::bigint + 1))) AS r
		WHERE NOT EXISTS (SELECT FROM outbox WHERE conn = $1 AND seq >= lower(r) AND seq < upper(r)) LIMIT $4`, conn, gaps(stored), base, commands.MaxVoid)
	if err != nil {
		return nil, fmt.Errorf("looking for numbers that no message has: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[commands.Range])
}

// CloseVoid closes gaps of the stored numbers that the peer of conn says no message has, where it was
// heard before that it goes on above them. It only closes gaps: the set does not get larger by it.
func (db *DB) CloseVoid(ctx context.Context, by Speaker, void []commands.Range) error {
	if len(void) == 0 {
		return nil
	}
	set := gaps(commands.Numbers{Gaps: void})
	return db.Tx(ctx, "closing gaps of the stored numbers", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody()
		if err := tx.Speaks(ctx, by); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE sequences SET stored = stored + $2::int8multirange WHERE conn = $1 AND upper($2::int8multirange) - 1 <= peer_base
			AND NOT stored @> $2::int8multirange AND (SELECT count(*) FROM unnest(stored + $2::int8multirange)) <= (SELECT count(*) FROM unnest(stored))`, by.Conn, set)
		return err
	})
}

// nothing is told as the digest of a number that is stored, and under which there is no
// message any more.
const nothing = "0000000000000000000000000000000000000000000000000000000000000000"

func (db *DB) held(ctx context.Context, conn string, asked []int64) ([]commands.Held, error) {
	rows, err := db.pool.Query(ctx, `SELECT u.seq, coalesce(encode(i.digest, 'hex'), $3) FROM unnest($2::bigint[]) AS u (seq) LEFT JOIN inbox i ON i.conn = $1 AND i.seq = u.seq
		WHERE i.seq IS NOT NULL OR EXISTS (SELECT FROM sequences WHERE conn = $1 AND stored @> u.seq) ORDER BY 1`, conn, asked, nothing)
	if err != nil {
		return nil, fmt.Errorf("reading messages that the peer has asked for: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[commands.Held])
}
