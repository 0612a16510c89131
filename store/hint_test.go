package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// What waits to be told is not told inside of a transaction that is rolled back.
func TestATransactionThatFailsLosesNoHint(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	conn, err := pgx.Connect(t.Context(), s.URL)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `LISTEN `+store.ChangedChannel)
	require.NoError(t, err)
	hint := func() error {
		ctx, done := context.WithTimeout(t.Context(), 6*time.Second)
		defer done()
		_, err := conn.WaitForNotification(ctx)
		return err
	}
	other := storetest.OpenSide(t, s.URL, 1, 2, 1) // one connection
	write(t, other.DB)
	require.NoError(t, hint())
	write(t, other.DB) // to be told a second after the first

	err = other.DB.Tx(t.Context(), "failing", func(ctx context.Context, tx *store.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT 1`); err != nil {
			return err
		}
		time.Sleep(1200 * time.Millisecond)
		return errors.New("it is refused")
	})
	require.Error(t, err)

	require.NoError(t, hint(), "the second write is told, too")
}
