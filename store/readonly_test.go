package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A server that has taken over from another one takes changes at once, also from who had sessions while it took none.
func TestSessionsThatBeganReadOnlyAreReplaced(t *testing.T) {
	t.Parallel()
	s := storetest.OpenSide(t, storetest.URL(t), 1, 2, 1)
	server, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	database := pgx.Identifier{server.Config().Database}.Sanitize()
	for _, sql := range []string{
		`ALTER DATABASE ` + database + ` SET default_transaction_read_only = on`,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename <> current_user`,
	} {
		_, err := server.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	write := func(within time.Duration) error {
		ctx, done := context.WithTimeout(t.Context(), within)
		defer done()
		return s.DB.Tx(ctx, "writing", func(_ context.Context, tx *store.Tx) error {
			tx.Audit(store.AuditRow{Actor: "ann", Action: "test.row", Object: "o"})
			return nil
		})
	}
	require.Error(t, write(time.Second))
	_, err = server.Exec(t.Context(), `ALTER DATABASE `+database+` RESET default_transaction_read_only`)
	require.NoError(t, err)

	require.NoError(t, write(10*time.Second)) // a session that nobody uses goes after 30 s
}
