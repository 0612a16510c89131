package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// An Outbox is what of the messages to one peer is not confirmed.
type Outbox struct {
	Conn        string
	Unconfirmed int64         // numbers of messages: what was never used of them is confirmed
	Age         time.Duration // of the oldest; 0 = there is none
}

// Outboxes returns those of all connections that have not ended. It counts sets of numbers
// and reads one message of each connection, however many wait.
func (db *DB) Outboxes(ctx context.Context) (list []Outbox, err error) {
	err = db.Read(ctx, "looking at what is not confirmed", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `
			SELECT c.id::text, coalesce((SELECT sum(upper(g) - lower(g)) FROM unnest(x.gaps) AS g), 0)::bigint,
				coalesce(extract(epoch FROM clock_timestamp() - (
					SELECT o.created_at FROM (SELECT g FROM unnest(x.gaps) AS g ORDER BY lower(g) OFFSET 0) AS open,
						LATERAL (SELECT created_at FROM outbox WHERE conn = c.id AND seq >= lower(open.g) AND seq < upper(open.g) ORDER BY seq LIMIT 1) AS o LIMIT 1)), 0)::float8
			FROM connections c JOIN sequences s ON s.conn = c.id LEFT JOIN confirmed f ON f.conn = c.id,
				LATERAL (SELECT int8multirange(int8range(1, s.last + 1)) - coalesce(f.numbers, '{}') AS gaps) AS x
			WHERE NOT has_ended(c.state)`)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o Outbox, err error) {
			var seconds float64
			err = row.Scan(&o.Conn, &o.Unconfirmed, &seconds)
			o.Age = max(0, time.Duration(seconds*float64(time.Second))) // the clock may have been set back
			return o, err
		})
		return err
	})
	return list, err
}

// Sizes are bytes.
type Sizes struct {
	Tables    int64 // those that grow, with their indexes
	Logs      int64 // output of agents that is kept in files
	Envelopes int64 // signed bytes of messages that were received
}

// Sizes asks how large the files of the tables are, and for sums that are kept.
func (db *DB) Sizes(ctx context.Context) (s Sizes, err error) {
	err = db.Read(ctx, "asking for sizes", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT kept_bytes('', $1), kept_bytes('logs', '{}'), kept_bytes('envelopes', '{}')`, growing()).Scan(&s.Tables, &s.Logs, &s.Envelopes)
	})
	return s, err
}

// growing are the tables with as many rows as there is work and history.
func growing() []string {
	list := []string{"ready", "due", "parked", "leases", "logs", "log_segments", "log_streams", "log_sums", "tallies"}
	for _, k := range Kinds {
		list = append(list, k.tables...)
	}
	return list
}

// Migrated is nil where the schema is that of this program.
func (db *DB) Migrated(ctx context.Context) error {
	var have int64
	err := db.Read(ctx, "asking for the version of the schema", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT max(version_id) FROM goose_db_version`).Scan(&have)
	})
	if know := newestMigration(); err == nil && have != know {
		err = fmt.Errorf("the database has schema %d, and this program knows %d: another version of it has migrated the database, or a backup was restored; start the one that fits", have, know)
	}
	return err
}
