package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var embedded embed.FS

func migrations() fs.FS {
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		panic(err) // the directory was there at build time
	}
	return files
}

// newestMigration is the number of the last file.
func newestMigration() (newest int64) {
	files, err := fs.Glob(migrations(), "*.sql")
	for _, file := range files {
		n, numbered := goose.NumericComponent(file)
		err = errors.Join(err, numbered)
		newest = max(newest, n)
	}
	if err != nil {
		panic(err) // the names were the same at build time
	}
	return newest
}

// migrateUp runs the files that the database has not seen, each in a transaction
// of its own. Programs that start at once take turns: each tries an advisory
// lock once a second, for five minutes. When no file is pending it takes no lock.
func migrateUp(ctx context.Context, db *sql.DB, files fs.FS, failures *failures) error {
	turns, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, noting{files}, goose.WithSessionLocker(turns), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	if err := sameTexts(ctx, db, files); err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return failures.locate(files, err)
	}
	// Asked last: a newer program may have gone first while this one waited.
	have, known, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if have > known {
		return fmt.Errorf("the database has schema %d and this program knows up to %d: "+
			"a newer spawnmesh has migrated it; run that one, nothing was changed", have, known)
	}
	return sameTexts(ctx, db, files)
}

// failures remembers the last statement that the server refused, because the
// error that comes out of goose does not name it.
type failures struct {
	last atomic.Pointer[string] // database/sql may roll back on a goroutine of its own
}

type statementKey struct{}

// TraceQueryStart implements [pgx.QueryTracer].
func (f *failures) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statementKey{}, q.SQL)
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (f *failures) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	if _, ok := errors.AsType[*pgconn.PgError](q.Err); ok {
		statement, _ := ctx.Value(statementKey{}).(string)
		f.last.Store(&statement)
	}
}

// locate puts the file and the line of the refused statement in front of err.
func (f *failures) locate(files fs.FS, err error) error {
	failed, ok := errors.AsType[*goose.PartialError](err)
	if !ok {
		return err
	}
	place := failed.Failed.Source.Path
	text, readErr := fs.ReadFile(files, place)
	pg, refused := errors.AsType[*pgconn.PgError](failed.Err)
	if last := f.last.Load(); refused && last != nil && readErr == nil {
		if line := lineOf(string(text), *last, int(pg.Position)); line > 0 {
			place = fmt.Sprintf("%s:%d", place, line)
		}
	}
	return fmt.Errorf("%s: %w; nothing of this file was kept (spawnmesh needs a database of its own, whose schema public it may change)", place, failed.Err)
}

// lineOf returns the line of text, from 1, where the character at position of
// statement stands, from 1 as in an error of the server. Position 0 is unknown
// and means the first. It returns 0 when the statement is not in text, and takes
// the first of two that are the same.
func lineOf(text, statement string, position int) int {
	before, _, found := strings.Cut(text, statement)
	if !found {
		return 0
	}
	read := []rune(statement)[:max(position-1, 0)]
	return 1 + strings.Count(before, "\n") + strings.Count(string(read), "\n")
}
