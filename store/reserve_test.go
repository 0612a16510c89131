package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A transaction that sends more than it has reserved, or less, leaves no gap and gives no number twice.
func TestReservedNumbersAreUsedUpOrGivenBack(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	send := func(reserved, sent int) {
		require.NoError(t, p.Hub.DB.Tx(t.Context(), "asking", func(ctx context.Context, tx *store.Tx) error {
			tx.Reserve(p.Hub.Conn.ID, reserved)
			if err := tx.Flush(ctx); err != nil {
				return err
			}
			for range sent {
				tx.Send(store.Draft{Conn: p.Hub.Conn.ID, Body: &commands.Status{Task: storetest.NewID()}, Life: time.Hour})
			}
			return nil
		}))
	}

	send(1, 3)
	send(3, 1)
	send(2, 0)
	send(0, 1)

	require.Equal(t, []int64{1, 2, 3, 4, 5}, numbers(t, p.Hub.DB.NewCursor(p.Hub.Conn.ID)))
	last, err := p.Hub.DB.LastNumbers(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, last[p.Hub.Conn.ID])
}

// What there was no room for is read although nothing more is sent.
func TestWhatThereIsNoRoomForIsReadAtOnce(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.Empty(t, numbers(t, p.Hub.Out))

	question(t, p.Hub, store.RelayBatch+1)

	require.Len(t, numbers(t, p.Hub.Out), store.RelayBatch)
	require.Len(t, numbers(t, p.Hub.Out), 1)
}

// A cursor that a newer one has taken the place of is handed nothing, and reads.
func TestACursorThatWasReplacedReads(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	old := p.Hub.DB.NewCursor(p.Hub.Conn.ID)
	require.Empty(t, numbers(t, old))
	p.Hub.DB.NewCursor(p.Hub.Conn.ID)

	question(t, p.Hub, 1)

	require.Equal(t, []int64{1}, numbers(t, old))
}
