package store

import (
	"context"
	"time"
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
