package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A suspended spoke holds orders, and answers the kills between them: every other number is
// confirmed. When the hub is restored then, what is open gets new numbers, and the gaps of the
// old ones never close. What is answered above them is confirmed all the same.
func TestGapsThatNeverCloseLeaveRoom(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 2200)
	var kills []int64
	for n := int64(1); n <= 2200; n += 2 {
		kills = append(kills, n)
	}
	answer(t, p.Hub, kills)
	require.Equal(t, 1100, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`))
	found, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, commands.Numbering{
		Stored: commands.Numbers{Through: 2205}, Held: []commands.Held{{Seq: 2, SHA256: strings.Repeat("ab", 32)}}}, 0, 20)
	require.NoError(t, err)
	require.Equal(t, 1100, found.Renumbered)

	var open []int64
	require.NoError(t, p.Hub.DB.Tx(t.Context(), "looking", func(ctx context.Context, tx *store.Tx) error {
		return tx.QueryRow(ctx, `SELECT array_agg(seq) FROM open_outbox`).Scan(&open)
	}))
	answer(t, p.Hub, open)

	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`))
}

// answer closes messages as their answers do.
func answer(t *testing.T, s *storetest.Side, numbers []int64) {
	t.Helper()
	list := ids(t, s, numbers...)
	require.NoError(t, s.DB.Tx(t.Context(), "taking answers", func(ctx context.Context, tx *store.Tx) error {
		var bodies []string
		err := tx.QueryRow(ctx, `SELECT array_agg(encode(o.body, 'hex') ORDER BY u.n) FROM unnest($1::uuid[]) WITH ORDINALITY AS u (id, n) JOIN outbox o ON o.id = u.id`, list).Scan(&bodies)
		require.NoError(t, err)
		return store.CloseOutForTest(ctx, tx, s.Conn.ID, list, bodies)
	}))
}
