package hub

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// How agents stand is said without reading their results, in the words that the whole of them has: in each state, for each reason, with
// and without a result, refusals and a start.
func TestHowAgentsStandNeedsNoResults(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	var results []string
	for _, r := range []commands.Result{
		{Outcome: commands.AttemptFailed, Exit: commands.Exit{Code: 3}},
		{Outcome: commands.AttemptFailed, Exit: commands.Exit{Code: -1, Signal: "SIGSEGV"}},
		{Outcome: commands.CouldNotStart, Exit: commands.Exit{Code: -1}},
		{Exit: commands.Exit{Code: -1}},
	} {
		raw, err := json.Marshal(r)
		require.NoError(t, err)
		results = append(results, string(raw))
	}
	reasons := append(slices.Collect(maps.Keys(endedBy)), "", commands.CancelRequested, commands.RetriesExhausted)
	require.NoError(t, p.Hub.Exec(`INSERT INTO mirrors (task, conn, command, command_digest, request_digest, created_by, spec, expires_at, state, ended_at, reason, attempt, started_at, result, refusal, refusals)
		SELECT gen_random_uuid(), $1, gen_random_uuid(), '', '', 'ann', '{}', now(), state, CASE WHEN is_terminal(state) THEN now() END, reason, attempt, CASE WHEN attempt > 0 THEN now() END, result,
			CASE WHEN code > '' THEN jsonb_build_object('code', code, 'why', repeat('x', 200)) END, CASE WHEN code > '' THEN jsonb_build_array(jsonb_build_object('code', code)) ELSE '[]' END
		FROM unnest(enum_range(NULL::task_state)) AS state, unnest($2::text[]) AS reason, generate_series(0, 1) AS attempt, unnest($3::jsonb[] || NULL::jsonb) AS result, unnest(ARRAY['', 'POLICY', 'TOMBSTONE']) AS code`,
		p.Hub.Conn.ID, reasons, results))
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET result = result || jsonb_build_object('data', repeat('x', $1)) WHERE task IN (SELECT task FROM mirrors WHERE result IS NOT NULL LIMIT 10)`, commands.MaxData))
	var tasks []string
	require.NoError(t, p.Hub.DB.Read(t.Context(), "reading the ids", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT array_agg(task::text) FROM mirrors`).Scan(&tasks)
	}))

	whole, err := p.Hub.DB.MirrorsOf(t.Context(), tasks)
	require.NoError(t, err)
	narrow, err := p.Hub.DB.StandOf(t.Context(), tasks)
	require.NoError(t, err)

	want, largest := map[string]string{}, 0
	for _, m := range whole {
		want[m.Task] = viewOf(m).Words()
		largest = max(largest, len(m.Result))
	}
	require.Greater(t, largest, commands.MaxData)
	require.Len(t, narrow, len(tasks))
	for _, m := range narrow {
		require.Equal(t, want[m.Task], Stands(m), "%s %s %s", m.State, m.Reason, m.Result)
		require.Less(t, len(m.Result)+len(m.Refusal), 120, "%s%s", m.Result, m.Refusal)
	}
	said, err := (&Hub{DB: p.Hub.DB}).Stand(t.Context(), tasks)
	require.NoError(t, err)
	require.Equal(t, want, said)
}
