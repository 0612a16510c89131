package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
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

// What came of a delivery is noted by its number, and the like, also where the statement was planned while none was open.
func TestWhatHasAKeyIsFoundByIt(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewPair(t).Hub}
	s.FindsByKey(t, store.ByKeyForTest...)
	require.NoError(t, s.DB.NoteDelivered(t.Context(), []store.Delivered{{Trial: s.trial(), Status: 204}}))
	require.NoError(t, s.Exec(`INSERT INTO mirrors (task, conn, state, command, command_digest, request_digest, created_by, spec, expires_at, ended_at)
		SELECT gen_random_uuid(), id, 'completed', gen_random_uuid(), '', '', 'test', '{}', now(), now() FROM connections, generate_series(1, 1000)`))
	asOwner(t, s.Side, `ANALYZE`)

	s.FindsByKey(t, store.ByKeyForTest...)
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

// A webhook that had been told everything as it was disabled has missed what came after that.
func TestAGapBeginsAfterWhatWasTold(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}
	s.planned()
	require.NoError(t, s.Exec(`UPDATE webhook_deliveries SET state = 'delivered', ended_at = clock_timestamp()`))
	told := s.Count(t, `SELECT max(first) FROM webhook_deliveries`)
	_, err := s.DB.DisableWebhook(t.Context(), "pager", "too loud", "test")
	require.NoError(t, err)
	require.NoError(t, s.DB.NoteEvent(t.Context(), store.LinkEvent, "", "down"))
	_, _, err = s.DB.NumberEvents(t.Context(), 10)
	require.NoError(t, err)

	_, err = s.DB.EnableWebhook(t.Context(), "pager", "again", "test", aPlanner)

	require.NoError(t, err)
	require.Equal(t, told+1, s.Count(t, `SELECT first FROM webhook_deliveries WHERE type = 'gap'`))
}

// A webhook is counted as failing from the failure on with which it gets one delivery at a time.
func TestWebhooksThatFailAreCounted(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}
	s.hooked()
	for failures, broken := range map[int]int{store.BreakAfter - 1: 0, store.BreakAfter: 1, store.BreakAfter + 1: 1} {
		require.NoError(t, s.Exec(`UPDATE webhooks SET failures = $1, failing_since = clock_timestamp()`, failures))

		f, err := s.DB.WebhookFigures(t.Context())

		require.NoError(t, err)
		require.Equal(t, broken, f.Broken, "after %d failures", failures)
	}
}

// What is sent again was told once: it is in no gap, unless it waited to be told the first time.
func TestWhatIsSentAgainIsNoGap(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		outcome string // of its first delivery
		gap     int    // how many of the events are in the gap then
	}{"delivered": {store.DeliveryDelivered, 0}, "failed": {store.DeliveryFailed, 3}, "pending": {store.DeliveryPending, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scene{t, storetest.NewSide(t, 1, 2)}
			webhook := s.planned()
			require.NoError(t, s.Exec(`UPDATE webhook_deliveries SET state = 'delivered', ended_at = clock_timestamp()`))
			require.NoError(t, s.Exec(`UPDATE webhook_deliveries SET state = $1, ended_at = CASE WHEN $1 <> 'pending' THEN clock_timestamp() END WHERE first = (SELECT min(first) FROM webhook_deliveries)`, tt.outcome))
			list, err := s.DB.Deliveries(t.Context(), webhook, 0, 10)
			require.NoError(t, err)
			for range 2 { // the second time before the first was tried
				_, err = s.DB.ResendDelivery(t.Context(), "pager", list[2].ID, "test")
				require.NoError(t, err)
			}

			_, err = s.DB.DisableWebhook(t.Context(), "pager", "too loud", "test")
			require.NoError(t, err)

			require.Equal(t, tt.gap, s.Count(t, `SELECT count(*) FROM events e, webhooks w WHERE e.seq BETWEEN w.given_up AND w.cursor`))
		})
	}
}

// A webhook that is deleted is gone at once, and its name is free. What it was told goes as rows are pruned: whoever plans
// deliveries to others waits for none of it.
func TestADeletedWebhookLeavesItsDeliveriesToPruning(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}
	gone := s.planned()
	require.NoError(t, s.Exec(`INSERT INTO webhook_deliveries (id, webhook, type, body, at, state, ended_at)
		SELECT 'old-' || n, $1, 'task', '{}', now(), 'delivered', now() FROM generate_series(1, 6000) AS n`, gone))

	_, err := s.DB.RemoveWebhook(t.Context(), "pager", "test")

	require.NoError(t, err)
	require.Equal(t, 6003, s.Count(t, `SELECT count(*) FROM webhook_deliveries`))
	_, err = s.DB.FindWebhook(t.Context(), gone)
	require.Equal(t, commands.NotFound, commands.CodeOf(err))
	next := s.hooked()
	_, err = s.DB.PlanDeliveries(t.Context(), aPlanner)
	require.NoError(t, err)
	list, err := s.DB.ClaimDeliveries(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Len(t, list, 3)
	for _, trial := range list {
		require.Equal(t, next, trial.Webhook.ID)
	}
	removed, err := s.DB.Prune(t.Context(), 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, int64(6003), removed["deliveries"])
	require.Equal(t, 3, s.Count(t, `SELECT count(*) FROM webhook_deliveries WHERE webhook = $1`, next))
}
