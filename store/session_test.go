package store_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// Sessions do not depend on how a named server is set up.
func TestWhatASessionSets(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	var jit, plans, seqscan string

	require.NoError(t, s.DB.Read(t.Context(), "reading settings", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT current_setting('jit'), current_setting('plan_cache_mode'), current_setting('enable_seqscan')`).Scan(&jit, &plans, &seqscan)
	}))

	require.Equal(t, "off force_generic_plan off", jit+" "+plans+" "+seqscan)
}
