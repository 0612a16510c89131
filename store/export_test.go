package store

import (
	"context"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// OverdueForTest makes a resend due.
func OverdueForTest(c *Cursor) { c.due = time.Time{} }

// What is looked at for messages that a peer has lost.
var (
	ReopenLostForTest = reopenLost
	MissingForTest    = missing
)

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
