package backlog_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
)

// Audit rows that are no leaves are looked for a batch at a time, however many rows there are, and were.
func TestStraysAreLookedForInBatches(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]statistics{"with statistics": everything, "without": nothing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLarge(t, pgtest.URL(t), 1_000, 100, known)
			_, err := owner(t, l.URL).Exec(t.Context(), `INSERT INTO audit_leaves (leaf, seq) SELECT -1000000 - n, -n FROM generate_series(1, 20000) AS n`) // retention has removed their rows
			require.NoError(t, err)

			asked := l.watch.during(t, func(ctx context.Context) error {
				list, err := l.DB.AuditStrays(ctx, 10)
				return counted(len(list), 0, err)
			})

			require.Greater(t, len(asked), 60)
			for _, s := range asked {
				require.Empty(t, explain(t, l.watch.config, s).Wasteful(), s.sql)
			}
		})
	}
}
