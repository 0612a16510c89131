package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// However often an agent is to be killed, its mirror keeps the first 100 orders, and each is sent.
func TestAMirrorKeepsTheFirst100Kills(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	kill := func(reason string) {
		t.Helper()
		sent, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: task, Reason: reason}, time.Hour, "test")
		require.NoError(t, err)
		require.True(t, sent)
	}
	kill("the first")
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET kill = kill || (SELECT jsonb_agg(m.kill->0) FROM mirrors m, generate_series(1, 98) WHERE m.task = $1) WHERE task = $1`, task))
	require.Equal(t, 99, p.Hub.Count(t, `SELECT jsonb_array_length(kill) FROM mirrors WHERE task = $1`, task))

	for range 3 {
		kill("one more")
	}

	require.Equal(t, 100, p.Hub.Count(t, `SELECT jsonb_array_length(kill) FROM mirrors WHERE task = $1`, task))
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM mirrors, jsonb_array_elements(kill) AS k WHERE task = $1 AND k->>'reason' = 'one more'`, task))
	require.Equal(t, 4, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE task = $1 AND kind = 'agent.kill'`, task))
}
