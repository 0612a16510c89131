package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A delivery that was claimed and not tried to its end has no try less than before.
func TestAReturnedDeliveryKeepsItsTries(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}
	claimed := s.trial()
	require.Equal(t, 1, claimed.Tries)

	require.NoError(t, s.DB.ReturnDeliveries(t.Context(), []store.Trial{claimed}))

	list, err := s.DB.ClaimDeliveries(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, []any{claimed.ID, 1}, []any{list[0].ID, list[0].Tries})
}

// Who enables a webhook has it told which events were given up as it was disabled.
func TestADisabledWebhookIsToldWhatItMissed(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}
	s.planned()
	require.Equal(t, 3, s.Count(t, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`))
	first := s.Count(t, `SELECT min(first) FROM webhook_deliveries`)

	_, err := s.DB.DisableWebhook(t.Context(), "pager", "too loud", "test")
	require.NoError(t, err)
	require.Zero(t, s.Count(t, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`))
	_, err = s.DB.EnableWebhook(t.Context(), "pager", "again", "test", aPlanner)
	require.NoError(t, err)

	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending' AND type = 'gap' AND first = $1`, first))
}
