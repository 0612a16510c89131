package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/tern/v2/migrate"
)

// engineRole is whom every connection of the pool acts as. A transaction of a
// [Backlog] narrows itself to the application's role and one workspace.
const engineRole = "spawnmesh_engine"

//go:embed migrations/*.sql
var migrations embed.FS

// prepareSchema does, as the tables' owner and on a connection of its own, what
// only the owner may: roles and migrations.
func prepareSchema(ctx context.Context, cfg *pgx.ConnConfig) error {
	cfg = cfg.Copy()
	// These settings are for statements that were written for them.
	for _, way := range []string{"enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"} {
		delete(cfg.RuntimeParams, way)
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := checkSettings(ctx, conn); err != nil {
		return err
	}
	if err := ensureRoles(ctx, conn); err != nil {
		return fmt.Errorf("making the database roles spawnmesh_engine and spawnmesh_app; let an administrator run: "+
			"CREATE ROLE spawnmesh_engine NOLOGIN; CREATE ROLE spawnmesh_app NOLOGIN; GRANT spawnmesh_engine, spawnmesh_app TO %s: %w", pgx.Identifier{cfg.User}.Sanitize(), err)
	}
	if err := migrateUp(ctx, conn); err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	return nil
}

// checkSettings refuses a server that may forget what it acknowledged.
func checkSettings(ctx context.Context, conn *pgx.Conn) error {
	for _, name := range []string{"synchronous_commit", "fsync", "full_page_writes"} {
		var value string
		if err := conn.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			return fmt.Errorf("asking the database for %s: %w", name, err)
		}
		if value == "off" {
			return fmt.Errorf("the database runs with %s=off and would forget acknowledged work; set it to on", name)
		}
	}
	var version int
	if err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return fmt.Errorf("asking the database for its version: %w", err)
	}
	if version < 150000 {
		return fmt.Errorf("the database is PostgreSQL %d, spawnmesh needs 15 or newer", version/10000)
	}
	return nil
}

// ensureRoles makes the two roles that row-level security binds, and lets this
// user act as them. Roles belong to the whole server: several databases may be
// made at once.
func ensureRoles(ctx context.Context, conn *pgx.Conn) error {
	for _, role := range []string{engineRole, "spawnmesh_app"} {
		var exists, member bool
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, role).Scan(&exists)
		if err == nil && !exists {
			_, err = conn.Exec(ctx, `CREATE ROLE `+role+` NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE`)
		}
		if err != nil && !madeByAnother(err) {
			return err
		}
		if err := conn.QueryRow(ctx, `SELECT pg_has_role($1, 'MEMBER')`, role).Scan(&member); err != nil {
			return err
		}
		if !member {
			if _, err := conn.Exec(ctx, `GRANT `+role+` TO CURRENT_USER`); err != nil && !madeByAnother(err) {
				return err
			}
		}
	}
	return nil
}

// madeByAnother reports whether somebody else did the same a moment ago.
func madeByAnother(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "42710" || pg.Code == "23505" || pg.Code == "XX000")
}

func migrateUp(ctx context.Context, conn *pgx.Conn) error {
	m, err := migrate.NewMigrator(ctx, conn, "schema_version")
	if err != nil {
		return err
	}
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	if err := m.LoadMigrations(sub); err != nil {
		return err
	}
	have, err := m.GetCurrentVersion(ctx)
	if err != nil {
		return err
	}
	if int(have) > len(m.Migrations) {
		return fmt.Errorf("the database has schema %d, this program knows up to %d: it is older than the database; run the newer one", have, len(m.Migrations))
	}
	if int(have) == len(m.Migrations) {
		return nil
	}
	return m.Migrate(ctx)
}
