package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// longSnapshot is how many transactions may begin during another one before it is
// named: every claim passes over what was claimed since.
const longSnapshot = 100_000

// A Snapshot is the state of the database that a session still reads.
type Snapshot struct {
	Pid     int
	Program string // as it calls itself
	Age     int64  // transactions that have begun since
}

// LongSnapshot returns the oldest snapshot that a session holds, if it is so old
// that claims cost more for it; nil = none is.
func (db *DB) LongSnapshot(ctx context.Context) (*Snapshot, error) {
	var s Snapshot
	err := db.Read(ctx, "looking for long transactions", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT pid, coalesce(application_name, ''), age(backend_xmin) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_xmin IS NOT NULL AND age(backend_xmin) >= $1 ORDER BY 3 DESC LIMIT 1`, longSnapshot).Scan(&s.Pid, &s.Program, &s.Age)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &s, err
}
