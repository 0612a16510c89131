package store

import (
	"context"
	"io/fs"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// OverdueForTest makes a resend due.
func OverdueForTest(c *Cursor) { c.due = time.Unix(0, 0) }

// RepeatsForTest reports whether c is to send anything again.
func RepeatsForTest(c *Cursor) bool { return !c.due.IsZero() }

// HeldLongForTest has what c holds be held for so long already, and be due in an hour.
func HeldLongForTest(c *Cursor, d time.Duration) {
	since := time.Now().Add(-d)
	c.held.Store(&since)
	c.due = time.Now().Add(time.Hour)
}

// What is looked at for messages that a peer has lost.
var (
	ReopenLostForTest = reopenLost
	MissingForTest    = missing
	KeyLostForTest    = keyLost
	LostKeySetForTest = lostKeySet
)

// ByKeyForTest are statements that find their rows by a key, and are planned as well while few rows are open.
var ByKeyForTest = []string{noteDelivered, noteFailure, returnDeliveries, newsSQL, refuseAnswer, endToldSQL, holdFolds, refusedOrders, reopenLost}

// PruneForTest is the statement that removes old rows of a kind.
func PruneForTest(kind string) string {
	return Kinds[slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == kind })].prune
}

// MigrateForTest runs other files than the program's own.
func MigrateForTest(ctx context.Context, url string, files fs.FS) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	failures := &failures{}
	cfg.Tracer = failures
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	return migrateUp(ctx, db, files, failures)
}

// CloseOutForTest closes what answers of the peer of conn name.
func CloseOutForTest(ctx context.Context, tx *Tx, conn string, ids, bodies []string) error {
	closeOut(tx, conn, ids, bodies)
	return tx.Flush(ctx)
}

// StandsForTest has a cursor stand behind message last, with nothing else in the table.
func StandsForTest(c *Cursor, last int64) {
	c.last = last
	c.handed.take()
}

// HandOverForTest hands messages to a cursor, as their transaction does after its commit.
func HandOverForTest(c *Cursor, list []Outgoing) { c.handed.add(list) }

// HandedBytesForTest is how much may wait in memory for the relay of one connection.
const HandedBytesForTest = handedBytes

// AgeStandingForTest has a connection as it was so long ago, when it was read last.
func AgeStandingForTest(db *DB, conn string, age time.Duration) {
	was, _ := db.standings.Load(conn)
	s := was.(Standing)
	s.Now, s.read = s.Now.Add(-age), s.read.Add(-age)
	db.standings.Store(conn, s)
}

// What reads what is open, and adds to what is not.
var (
	OpenMessagesForTest = openMessages
	ConfirmForTest      = addConfirmed
)

// SentLongAgoForTest has a cursor believe that it has sent nothing for a while, and that the time of sending again has come.
func SentLongAgoForTest(c *Cursor) { c.sent, c.due = time.Now().Add(-time.Hour), time.Unix(1, 0) }

// NotificationForTest is how a watcher listens on the session of [ListenerForTest].
var NotificationForTest = notification

// ListenerForTest is the session that a watcher listens on.
func ListenerForTest(ctx context.Context, db *DB) (*pgx.Conn, error) {
	return db.Listener(ctx, ChangedChannel)
}

// PoolForTest is how the sessions of db are kept.
func PoolForTest(db *DB) *pgxpool.Config { return db.pool.Config() }

// ExecForTest runs a statement that is not tried again.
func ExecForTest(ctx context.Context, db *DB, sql string) error {
	_, err := db.pool.Exec(ctx, sql)
	return err
}

// QueryForTest asks for rows that are not asked for again.
func QueryForTest(ctx context.Context, db *DB, sql string) (pgx.Rows, error) {
	return db.pool.Query(ctx, sql)
}
