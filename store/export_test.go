package store

import (
	"context"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// CountForTest and ExecForTest let tests look at tables and try to break them.
func CountForTest(db *DB, sql string, args ...any) (n int, err error) {
	err = db.pool.QueryRow(context.Background(), sql, args...).Scan(&n)
	return n, err
}

func ExecForTest(db *DB, sql string, args ...any) error {
	_, err := db.pool.Exec(context.Background(), sql, args...)
	return err
}

// OverdueForTest makes a resend due.
func OverdueForTest(c *Cursor, conn string) { c.position(conn).due = time.Time{} }

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
