package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
)

// Limits that a new policy lifts and the row of the audit that says so are one transaction: where the row cannot be written, they hold.
func TestLimitsAreLiftedWithTheirRow(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	require.NoError(t, s.Exec(`INSERT INTO account_limits (workspace, account, until, task) VALUES ('main', 'claude', now() + interval '1 hour', gen_random_uuid())`))
	row := store.AuditRow{Actor: "uid:1", Action: "policy.reloaded", Why: "a\x00b"}
	told := func([]string) store.AuditRow { return row }

	_, err := s.backlog.LiftLimits(t.Context(), told)

	require.Error(t, err, "no text of a database has a NUL")
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM account_limits`))
	row.Why = "policy 2"
	accounts, err := s.backlog.LiftLimits(t.Context(), told)
	require.NoError(t, err)
	require.Equal(t, []string{"claude"}, accounts)
	require.Zero(t, s.Count(t, `SELECT count(*) FROM account_limits`))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'policy.reloaded' AND why = 'policy 2'`))
}
