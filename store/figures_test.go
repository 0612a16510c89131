package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// What waits is what the peer has not confirmed, and as old as the oldest of it, whatever came
// behind that was confirmed.
func TestAnOutboxIsAsOldAsItsOldestMessage(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	of := func() store.Outbox {
		list, err := p.Hub.DB.Outboxes(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, p.Hub.Conn.ID, list[0].Conn)
		return list[0]
	}
	require.Equal(t, store.Outbox{Conn: p.Hub.Conn.ID}, of(), "nothing was sent")
	question(t, p.Hub, 6)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET created_at = now() - (10 - seq) * interval '1 hour'`))
	require.Equal(t, int64(6), of().Unconfirmed)
	require.InDelta(t, 9, of().Age.Hours(), 0.1)

	require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 5, Gaps: []commands.Range{{From: 2, To: 3}}}))

	require.Equal(t, int64(3), of().Unconfirmed)
	require.InDelta(t, 8, of().Age.Hours(), 0.1)

	require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 6}))

	require.Equal(t, store.Outbox{Conn: p.Hub.Conn.ID}, of(), "all is confirmed")
}

// A schema of another version is named, and so is what grows.
func TestTheSchemaIsThisProgramsOrIsNamed(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Hub.DB.Migrated(t.Context()))
	s, err := p.Hub.DB.Sizes(t.Context())
	require.NoError(t, err)
	require.Positive(t, s.Tables)

	require.NoError(t, p.Hub.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`))

	require.ErrorContains(t, p.Hub.DB.Migrated(t.Context()), "the database has schema 9999")
}
