package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// The numbers of a connection: each side numbers the messages that it stores,
// from 1 and without gaps, and keeps the set of the peer's numbers that it has
// stored. A set is a multirange: what is missing costs a range, not a row.

type (
	numberRange = pgtype.Range[pgtype.Int8] // [from, to)
	numbers     = pgtype.Multirange[numberRange]
)

// store queues the addition of a list of numbers of the peer's messages to what is stored, at
// the end of a transaction: the row of the numbers is locked last. It says then what the whole
// set is, where there is something to confirm, a message that came again included.
func (tx *Tx) store(conn string, list []int64, k kept, again bool, stored *commands.Numbers) {
	if len(list) == 0 && !again {
		return
	}
	tx.Queue(`UPDATE sequences SET stored = stored + $2::int8multirange, kept_rows = kept_rows + $3, kept_bytes = kept_bytes + $4 WHERE conn = $1 RETURNING stored`,
		conn, multirange(list), k.rows, k.bytes).QueryRow(func(row pgx.Row) error {
		var set numbers
		if err := row.Scan(&set); err != nil {
			return fmt.Errorf("adding to the stored numbers of connection %s: %w", conn, err)
		}
		*stored = numbersOf(set)
		return nil
	})
}

// StoredOf returns every number of the peer of conn that is stored here.
func (db *DB) StoredOf(ctx context.Context, conn string) (commands.Numbers, error) {
	var set numbers
	err := db.retry(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `SELECT stored FROM sequences WHERE conn = $1`, conn).Scan(&set)
	})
	if err != nil {
		return commands.Numbers{}, fmt.Errorf("reading the stored numbers of connection %s: %w", conn, err)
	}
	return numbersOf(set), nil
}

// multirange is the text form of a set of numbers.
func multirange(numbers []int64) string {
	list := slices.Clone(numbers)
	slices.Sort(list)
	var b strings.Builder
	b.WriteByte('{')
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] <= list[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "[%d,%d]", list[i], list[j])
		i = j + 1
	}
	b.WriteByte('}')
	return b.String()
}

// numbersOf turns a set of stored numbers into what is told of it: the highest
// one and what is missing below it. Beyond [commands.MaxMissing] gaps the set is
// told up to the last of them only.
func numbersOf(set numbers) (n commands.Numbers) {
	next := int64(1)
	for _, r := range set { // normalised by the database: ascending, [from, to)
		from, to := r.Lower.Int64, r.Upper.Int64-1
		if from > next {
			if len(n.Gaps) == commands.MaxMissing {
				return n
			}
			n.Gaps = append(n.Gaps, commands.Range{From: next, To: from - 1})
		}
		n.Through, next = to, to+1
	}
	return n
}

// maxConfirmed is how many ranges the confirmed numbers of a connection may have: as many as
// an honest peer may store, and what it has answered in between. Of what would make them more
// some stays open, and is sent and answered again.
const maxConfirmed = 21 * commands.MaxMissing

// addition is what an update of confirmed c sets to add a set of numbers, up to $3 ranges, and the condition
// that it adds something. Ranges are counted here: the rule for too many is a function, which costs
// something even where they are not.
func addition(set string) (sets, where string) {
	few := `(SELECT count(*) FROM unnest(c.numbers + ` + set + `)) <= $3`
	fitting := `fitting(c.numbers, ` + set + `, $3)`
	return `numbers = c.numbers + CASE WHEN ` + few + ` THEN ` + set + ` ELSE ` + fitting + ` END`,
		`NOT c.numbers @> ` + set + ` AND (` + few + ` OR ` + fitting + ` <> '{}')`
}

// addConfirmed adds the set of our numbers $2 to what the peer of connection $1 has confirmed,
// up to $3 ranges. Nothing is written for what is known, or for numbers that were not given:
// those would be confirmed before they are sent.
var addConfirmed = func() string {
	sets, where := addition(`$2::int8multirange`)
	return `UPDATE confirmed c SET ` + sets + ` WHERE c.conn = $1 AND ` + where + `
		AND coalesce(upper($2::int8multirange) - 1 <= (SELECT last FROM sequences WHERE conn = $1), false)`
}()

// confirm closes the messages under a set of our numbers, and returns how many of those that
// it has closed were open. The caller holds the row.
func confirm(ctx context.Context, tx *Tx, conn, set string) (n int, err error) {
	err = tx.QueryRow(ctx, `WITH had AS (SELECT numbers FROM confirmed WHERE conn = $1), has AS (`+addConfirmed+` RETURNING c.numbers)
		SELECT count(*) FROM had, has, unnest(has.numbers - had.numbers) AS r, LATERAL (
			SELECT FROM outbox WHERE conn = $1 AND seq >= lower(r) AND seq < upper(r) OFFSET 0) AS o`, conn, set, maxConfirmed).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("closing the outbox: %w", err)
	}
	return n, nil
}

// has is the set that n tells.
func has(n commands.Numbers) string {
	var parts []string
	next := int64(1)
	for _, g := range append(slices.Clone(n.Gaps), commands.Range{From: n.Through + 1}) {
		if g.From > next {
			parts = append(parts, fmt.Sprintf("[%d,%d]", next, g.From-1))
		}
		next = g.To + 1
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// gaps is the set of what is missing in n below its highest number.
func gaps(n commands.Numbers) string {
	parts := make([]string, len(n.Gaps))
	for i, g := range n.Gaps {
		parts[i] = "[" + strconv.FormatInt(g.From, 10) + "," + strconv.FormatInt(g.To, 10) + "]"
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// LastNumbers returns the last number given to a message of each living connection.
func (db *DB) LastNumbers(ctx context.Context) (map[string]int64, error) {
	rows, err := db.pool.Query(ctx, `SELECT s.conn::text, s.last FROM sequences s JOIN connections c ON c.id = s.conn WHERE NOT has_ended(c.state)`)
	if err != nil {
		return nil, fmt.Errorf("reading the numbers of connections: %w", err)
	}
	last, conn, n := map[string]int64{}, "", int64(0)
	_, err = pgx.ForEachRow(rows, []any{&conn, &n}, func() error { last[conn] = n; return nil })
	return last, err
}

// Confirm closes the messages to the peer of by that it says it has stored. If
// it has stored what this instance does not know, nothing is closed and the error
// is [ErrRestored]; nor is it where the key has ended that says so, whenever that was.
func (db *DB) Confirm(ctx context.Context, by Speaker, n commands.Numbers) error {
	var known bool
	var ended signing.Code
	err := db.Tx(ctx, "closing confirmed messages", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody() // each heartbeat confirms, and mostly what was confirmed before
		var b pgx.Batch
		b.Queue(`WITH key AS (SELECT coalesce((SELECT `+keyEnded+` FROM keys WHERE conn = $1 AND kid = $5 AND use <> 'sealing'), $6) AS ended),
			added AS (`+addConfirmed+` AND (SELECT ended FROM key) = '')
			SELECT $4 <= last, (SELECT ended FROM key) FROM sequences WHERE conn = $1`, by.Conn, has(n), maxConfirmed, n.Through, by.Key, signing.KeyUnknown).
			QueryRow(func(row pgx.Row) error { return row.Scan(&known, &ended) })
		return tx.SendLast(ctx, &b)
	})
	switch {
	case err != nil:
		return err
	case ended != "":
		return by.refused(ended)
	case !known:
		return ErrRestored
	}
	return nil
}

// ErrRestored says that the peer has stored messages of this instance that are
// unknown here: the database was restored from a backup.
var ErrRestored = errors.New("the peer has stored messages that this instance does not know: its database was restored from a backup")
