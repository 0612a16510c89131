package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// isSetBack makes what was noted of webhooks what a clock has noted that was ahead by a year.
func (s scene) isSetBack() {
	require.NoError(s, s.Exec(`UPDATE webhooks SET created_at = created_at + y, failing_since = failing_since + y, held_at = held_at + y, held_until = held_until + y FROM (VALUES (interval '1 year')) AS v (y)`))
	require.NoError(s, s.Exec(`UPDATE webhook_deliveries SET next_try_at = next_try_at + y, waits_since = waits_since + y, leased_until = leased_until + y FROM (VALUES (interval '1 year')) AS v (y)`))
}

// fails notes that a claimed delivery has failed: the next try is in an hour, and so long nothing is sent.
func (s scene) fails(t store.Trial) {
	_, err := s.DB.NoteFailure(s.Context(), store.Failure{Trial: t, Error: "no", Again: time.Hour, Hold: func(int) time.Duration { return time.Hour }, Disable: func(time.Duration) string { return "" }})
	require.NoError(s, err)
}

// What a clock of the database has put off that was ahead waits for its time from now on, and not for a year longer.
func TestAClockThatWasAheadPutsNoDeliveryOff(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(s scene)
		want   string // what is true then of webhooks w and deliveries d
		n      int    // of how many
	}{
		"to be told": {func(s scene) { s.planned() }, `next_try_at <= now()`, 3},
		"a failure": {func(s scene) { s.fails(s.trial()) }, `tries = 1 AND status = 0 AND error = 'no' AND leased_until IS NULL AND next_try_at > now() AND next_try_at <= now() + interval '1 hour'
			AND held_until > now() AND held_until <= now() + interval '1 hour' AND failing_since <= now()`, 1},
		"leased":           {func(s scene) { s.trial() }, `leased_until > now() AND leased_until <= now() + interval '1 minute'`, 3},
		"it answers again": {func(s scene) { s.answers() }, `next_try_at <= now() AND held_until IS NULL`, 3},
		"sent again":       {func(s scene) { s.resent() }, `tries = 0 AND next_try_at <= now()`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scene{t, storetest.NewSide(t, 1, 2)}
			tt.before(s)
			count := `SELECT count(*) FROM webhooks w JOIN webhook_deliveries d ON d.webhook = w.id WHERE ` + tt.want
			was := s.rows()
			require.NoError(t, s.DB.WaitAnew(t.Context(), time.Minute))
			require.Equal(t, was, s.rows(), "a clock that was right has put off what waits")

			s.isSetBack()
			require.Zero(t, s.Count(t, count))
			require.NoError(t, s.DB.WaitAnew(t.Context(), time.Minute))

			require.Equal(t, tt.n, s.Count(t, count))
		})
	}
}

// answers is a webhook that failed, and answers again while the clock is ahead.
func (s scene) answers() {
	t := s.trial()
	s.fails(t)
	require.NoError(s, s.Exec(`UPDATE webhook_deliveries SET leased_until = NULL, next_try_at = now() + interval '1 hour', waits_since = now() - interval '2 years'`))
	_, err := s.DB.NoteAnswers(s.Context(), t.Webhook.ID, true)
	require.NoError(s, err)
}

// resent has deliveries that failed and are sent again while the clock is ahead.
func (s scene) resent() {
	s.planned()
	require.NoError(s, s.Exec(`UPDATE webhook_deliveries SET state = 'failed', ended_at = now(), tries = 3, waits_since = now() - interval '2 years'`))
	list, err := s.DB.Deliveries(s.Context(), s.id("webhooks"), 0, 10)
	require.NoError(s, err)
	for _, d := range list {
		_, err := s.DB.ResendDelivery(s.Context(), "pager", d.ID, "test")
		require.NoError(s, err)
	}
}

// id is that of the only row of a table.
func (s scene) id(table string) (id string) {
	require.NoError(s, s.DB.Read(s.Context(), "reading an id", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT id::text FROM `+table).Scan(&id)
	}))
	return id
}

// rows are the webhooks and deliveries, as they stand.
func (s scene) rows() (all string) {
	require.NoError(s, s.DB.Read(s.Context(), "reading webhooks", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT string_agg(w::text || d::text, ' ' ORDER BY d.n) FROM webhooks w JOIN webhook_deliveries d ON d.webhook = w.id`).Scan(&all)
	}))
	return all
}

// A webhook that fails is probed as its hold says, whenever it was made.
func TestTheNextProbeWaitsForNoClock(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}
	s.planned()
	require.NoError(t, s.Exec(`UPDATE webhooks SET created_at = created_at + interval '1 year', failures = $1, failing_since = now()`, store.BreakAfter))

	next, err := s.DB.NextDelivery(t.Context(), time.Hour)

	require.NoError(t, err)
	require.LessOrEqual(t, next, time.Duration(0))
}
