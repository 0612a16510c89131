package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// Of what lists have without pages there is a bounded number, and the next one is refused.
func TestHowManyThereAre(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		most int
		add  func(s scene, name string) error
	}{
		"schedules": {1000, func(s scene, name string) error {
			v := aSchedule()
			v.Name = name
			return s.DB.AddSchedule(s.Context(), v, nil, func(now time.Time) time.Time { return now.Add(time.Hour) })
		}},
		"webhooks": {100, func(s scene, name string) error {
			w := aWebhook()
			w.Name = name
			return s.DB.AddWebhook(s.Context(), w)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scene{t, storetest.NewSide(t, 1, 2)}
			require.NoError(t, tt.add(s, "first"))
			require.NoError(t, s.Exec(fmt.Sprintf(`INSERT INTO %[1]s SELECT (jsonb_populate_record(v, jsonb_build_object('id', gen_random_uuid(), 'name', 'n-' || n))).* FROM %[1]s v, generate_series(1, %d) AS n`, name, tt.most-2)))

			require.NoError(t, tt.add(s, "last"))
			err := tt.add(s, "too-many")

			require.Equal(t, commands.Conflict, commands.CodeOf(err))
			require.ErrorContains(t, err, fmt.Sprintf("there are %d %s, which is the limit", tt.most, name))
			require.Equal(t, tt.most, s.Count(t, `SELECT count(*) FROM `+name))
		})
	}
}

// A mirror keeps how the first 100 attempts ended.
func TestAMirrorKeepsTheEndsOf100Attempts(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	spawn := p.Spoke.Read(t, p.Hub.Due(t)...)[0]
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET attempts = (SELECT jsonb_agg(jsonb_build_object('attempt', n)) FROM generate_series(1, 99) AS n)`))
	for attempt := 100; attempt <= 101; attempt++ {
		require.NoError(t, p.Spoke.DB.Tx(t.Context(), "telling", func(_ context.Context, tx *store.Tx) error {
			spawn.Answer(tx, &commands.Ended{Task: task, Attempt: attempt, Outcome: commands.AttemptFailed, State: commands.Queued})
			return nil
		}))
		takenIn(t, p, p.Hub.Read(t, p.Spoke.Due(t)...)...)

		ends := p.Mirror(t, task).Attempts
		require.Len(t, ends, 100)
		require.Equal(t, 100, ends[99].Attempt)
	}
}
