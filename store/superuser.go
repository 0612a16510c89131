package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Superuser returns the role that this program logs in as where that is a superuser of its server, which it need not
// be; "" where it is none.
func (db *DB) Superuser(ctx context.Context) (role string, err error) {
	err = db.Read(ctx, "asking for the rights of the database's user", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT coalesce((SELECT rolname FROM pg_roles WHERE rolname = session_user AND rolsuper), '')`).Scan(&role)
	})
	return role, err
}
