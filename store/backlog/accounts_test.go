package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A claim looks up what the accounts of its classes have met, however many others have met a limit.
func TestAClaimReadsTheLimitsOfItsAccounts(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	create(t, boardOf(t, s, backlog.MainWorkspace), backlog.TaskSpec{Title: "t", Account: "account-7"}, backlog.TaskSpec{Title: "t", Account: "other"})
	admin := owner(t, s.URL)
	_, err := admin.Exec(t.Context(), `INSERT INTO account_limits (workspace, account, until, task) SELECT 'main', 'account-' || n, now() + interval '1 hour', gen_random_uuid() FROM generate_series(1, 1000) AS n; ANALYZE account_limits`)
	require.NoError(t, err)
	tx, err := admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	var bound string
	var read int

	require.NoError(t, tx.QueryRow(t.Context(), `SELECT string_agg(name, ' ') FROM bindings('main', '', ARRAY (SELECT id FROM classes)) WHERE what = 'limit'`).Scan(&bound))

	require.Equal(t, "account-7", bound)
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'account_limits'`).Scan(&read))
	require.LessOrEqual(t, read, 2)
}
