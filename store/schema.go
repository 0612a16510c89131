package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// engineRole is whom every connection of the pool acts as. A transaction of a
// [Backlog] narrows itself to the application's role and one workspace.
const (
	engineRole = "spawnmesh_engine"
	appRole    = "spawnmesh_app"
)

const oldestServer = 150000 // as in server_version_num

// Prepare makes a database ready to be opened. It does, as the tables' owner and on
// a connection of its own, what only the owner may, which is roles and migrations.
// [Open] calls it where something is missing. Afterwards the database is nobody's yet.
func Prepare(ctx context.Context, address string) error {
	pc, err := pgxpool.ParseConfig(address)
	if err != nil {
		return fmt.Errorf("reading the database address: %w", err)
	}
	failures := &failures{}
	pc.ConnConfig.RuntimeParams["application_name"] = "spawnmesh"
	pc.ConnConfig.Tracer = failures
	db := stdlib.OpenDB(*pc.ConnConfig)
	defer db.Close()
	db.SetMaxOpenConns(1)
	if err := db.PingContext(ctx); err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	if err := checkSettings(ctx, db); err != nil {
		return err
	}
	if err := makeRoles(ctx, db, pc.ConnConfig.User); err != nil {
		return err
	}
	if err := closeToPublic(ctx, db); err != nil {
		return err
	}
	if err := migrateUp(ctx, db, migrations(), failures); err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	return nil
}

// prepared reports whether [Prepare] would find nothing to do and nothing to
// refuse. It asks in two statements on a connection of the pool, because nearly
// every database that is opened has been opened before.
func (db *DB) prepared(ctx context.Context) (ready bool, err error) {
	err = db.pool.QueryRow(ctx, `SELECT current_setting('synchronous_commit') <> 'off' AND current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'
			AND current_setting('server_version_num')::int >= $1 AND NOT has_database_privilege('public', current_database(), 'CONNECT')
			AND pg_has_role(session_user, $2, 'MEMBER') AND pg_has_role(session_user, $3, 'MEMBER') AND to_regclass('goose_db_version') IS NOT NULL`,
		oldestServer, engineRole, appRole).Scan(&ready)
	if err != nil || !ready {
		return false, err
	}
	// The table of versions is made before the migration that lets the engine read it: whoever
	// comes in between may not read it, nor may who comes after a first start that was killed there.
	known, err := digestsOf(migrations())
	if err != nil {
		return false, err
	}
	err = db.pool.QueryRow(ctx, `SELECT max(version_id) = $1 AND (SELECT jsonb_object_agg(version, sha256) FROM migration_digests) = $2 FROM goose_db_version`, newestMigration(), known).Scan(&ready)
	return ready && err == nil, err
}

// closeToPublic lets nobody into the database whom its owner did not name. The roles
// that may touch the tables belong to the whole server: another instance's user
// may act as them too, so it must not get in.
func closeToPublic(ctx context.Context, db *sql.DB) error {
	var open bool
	var name, user string
	const ask = `SELECT has_database_privilege('public', current_database(), 'CONNECT'), quote_ident(current_database()), quote_ident(current_user)`
	if err := db.QueryRowContext(ctx, ask).Scan(&open, &name, &user); err != nil {
		return fmt.Errorf("asking who may use the database: %w", err)
	}
	if !open {
		return nil
	}
	_, err := db.ExecContext(ctx, `REVOKE CONNECT, TEMPORARY ON DATABASE `+name+` FROM PUBLIC`)
	if err == nil {
		err = db.QueryRowContext(ctx, ask).Scan(&open, &name, &user)
	}
	if err != nil && !madeByAnother(err) {
		return fmt.Errorf("closing the database to other users of its server: %w", err)
	}
	if open && err == nil {
		return fmt.Errorf("every user of the server may connect to database %[1]s; let its owner run: REVOKE CONNECT ON DATABASE %[1]s FROM PUBLIC; GRANT CONNECT ON DATABASE %[1]s TO %[2]s", name, user)
	}
	return nil
}

// checkSettings refuses a server that may forget what it acknowledged.
func checkSettings(ctx context.Context, db *sql.DB) error {
	for _, name := range []string{"synchronous_commit", "fsync", "full_page_writes"} {
		var value string
		if err := db.QueryRowContext(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			return fmt.Errorf("asking the database for %s: %w", name, err)
		}
		if value == "off" {
			return fmt.Errorf("the database runs with %s=off and would forget acknowledged work; set it to on", name)
		}
	}
	var version int
	if err := db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return fmt.Errorf("asking the database for its version: %w", err)
	}
	if version < oldestServer {
		return fmt.Errorf("the database is PostgreSQL %d, spawnmesh needs %d or newer", version/10000, oldestServer/10000)
	}
	return nil
}

// ensureRoles makes the two roles that row-level security binds, and lets this
// user act as them. Roles belong to the whole server: several databases may be
// made at once.
// MakeRoles makes the roles that what is in a database of an instance is granted to.
func MakeRoles(ctx context.Context, address string) error {
	pc, err := pgx.ParseConfig(address)
	if err != nil {
		return fmt.Errorf("reading the database address: %w", err)
	}
	db := stdlib.OpenDB(*pc)
	defer db.Close()
	return makeRoles(ctx, db, pc.User)
}

func makeRoles(ctx context.Context, db *sql.DB, user string) error {
	if err := ensureRoles(ctx, db); err != nil {
		return fmt.Errorf("making the database roles spawnmesh_engine and spawnmesh_app; let an administrator run: "+
			"CREATE ROLE spawnmesh_engine NOLOGIN; CREATE ROLE spawnmesh_app NOLOGIN; GRANT spawnmesh_engine, spawnmesh_app TO %s: %w", pgx.Identifier{user}.Sanitize(), err)
	}
	return nil
}

func ensureRoles(ctx context.Context, db *sql.DB) error {
	for _, role := range []string{engineRole, appRole} {
		var exists, member bool
		err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, role).Scan(&exists)
		if err == nil && !exists {
			_, err = db.ExecContext(ctx, `CREATE ROLE `+role+` NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE`)
		}
		if err != nil && !madeByAnother(err) {
			return err
		}
		if err := db.QueryRowContext(ctx, `SELECT pg_has_role($1, 'MEMBER')`, role).Scan(&member); err != nil {
			return err
		}
		if !member {
			if _, err := db.ExecContext(ctx, `GRANT `+role+` TO CURRENT_USER`); err != nil && !madeByAnother(err) {
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
