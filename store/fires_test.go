package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// Many who have seen that a schedule is due order it once, and what is due later is not ordered by them.
func TestADueScheduleIsOrderedOnceByMany(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	db := p.Hub.DB
	id := storetest.NewID()
	due := time.Now().Add(-time.Minute).Truncate(time.Second)
	spawn := commands.Spawn{Runtime: commands.RuntimeNoop}
	require.NoError(t, db.AddSchedule(t.Context(), store.Schedule{ID: id, Name: "often", Cron: "x", Zone: "UTC", Overlap: store.OverlapQueue, CreatedBy: "test", Template: store.Template{Spawn: &spawn}}, nil,
		func(time.Time) time.Time { return due }))
	fire := func(ctx context.Context) error {
		_, err := db.Fire(ctx, id, func(s store.Schedule, _ func() (commands.Values, error), now time.Time) store.Firing {
			order := spawn
			order.Task = storetest.NewID()
			return store.Firing{Next: now.Add(time.Hour), Actor: "test", Order: &store.SpawnOrder{Conn: p.Hub.Conn.ID, Spawn: &order, Life: time.Hour, IdempotencyKey: "schedule/" + id + s.Next.String(), Actor: "test"}}
		})
		return err
	}

	for range 3 {
		g, ctx := errgroup.WithContext(t.Context())
		for range 8 {
			g.Go(func() error { return fire(ctx) })
		}
		require.NoError(t, g.Wait())
	}

	list, err := db.Fires(t.Context(), id, 0, 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.True(t, list[0].Due.Equal(due))
	require.Equal(t, store.FireOrdered, list[0].Outcome)
	mirrors, err := db.MirrorsOf(t.Context(), []string{list[0].Task})
	require.NoError(t, err)
	require.Len(t, mirrors, 1)
}

// A database that was restored orders nothing of what has become due until somebody has looked.
func TestARestorePausesSchedules(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}
	_, err := s.DB.BeginIncarnation(t.Context(), []string{""}, "one")
	require.NoError(t, err)
	id := s.scheduled()
	due := func() []string {
		ids, err := s.DB.DueSchedules(t.Context(), 10)
		require.NoError(t, err)
		return ids
	}
	_, err = s.DB.BeginIncarnation(t.Context(), []string{"one"}, "two")
	require.NoError(t, err)
	require.Equal(t, []string{id}, due(), "it was started again")

	restored, err := s.DB.BeginIncarnation(t.Context(), []string{"another"}, "three")

	require.NoError(t, err)
	require.True(t, restored)
	require.Empty(t, due())
	v, err := s.DB.FindSchedule(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{store.SchedulePaused, "restored"}, []string{v.State, v.Why})
	require.True(t, v.Restored)
	require.Equal(t, "self", v.PausedBy)
	require.NotNil(t, v.PausedAt)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'schedule.paused' AND object = 'nightly'`))
}

// A schedule that will not be due again is paused, and says why.
func TestAScheduleThatIsNeverDueIsPaused(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}
	id := s.scheduled()

	fired, err := s.DB.Fire(t.Context(), id, func(store.Schedule, func() (commands.Values, error), time.Time) store.Firing {
		return store.Firing{Actor: "test", Refused: commands.Refuse(commands.NoSpoke, "nobody")}
	})

	require.NoError(t, err)
	require.Equal(t, store.FireRefused, fired.Outcome)
	v, err := s.DB.FindSchedule(t.Context(), id)
	require.NoError(t, err)
	require.Nil(t, v.Next)
	require.Equal(t, []string{store.SchedulePaused, "it is not due within five years"}, []string{v.State, v.Why})
	require.Equal(t, "self", v.PausedBy)
	require.NotNil(t, v.PausedAt)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'schedule.paused' AND actor = 'self' AND object = 'nightly' AND why = $1`, v.Why))
}

// Who pauses a schedule while it is ordered waits for that, and the schedule stays paused: it is not due again.
func TestAPauseWaitsForWhatIsDue(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}
	id := s.scheduled()
	paused := make(chan error, 1)
	eye, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer eye.Close(context.WithoutCancel(t.Context()))

	_, err = s.DB.Fire(t.Context(), id, func(v store.Schedule, _ func() (commands.Values, error), now time.Time) store.Firing {
		go func() {
			_, err := s.DB.ChangeSchedule(context.WithoutCancel(t.Context()), id, "test", func(v *store.Schedule, _ time.Time) (string, string, error) {
				v.State, v.Why, v.Next = store.SchedulePaused, "the disk", nil
				return "schedule.paused", v.Why, nil
			})
			paused <- err
		}()
		for waits := false; !waits && len(paused) == 0; {
			require.NoError(t, eye.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits))
		}
		return store.Firing{Next: now.Add(time.Hour), Actor: "test", Refused: commands.Refuse(commands.NoSpoke, "nobody")}
	})

	require.NoError(t, err)
	require.NoError(t, <-paused)
	v, err := s.DB.FindSchedule(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, store.SchedulePaused, v.State)
	require.Nil(t, v.Next)
	require.Equal(t, "test", v.PausedBy)
}

// A schedule names who has paused it and when, until it goes on: whoever changes it meanwhile, or pauses it again, has not.
func TestAPausedScheduleSaysByWhom(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}
	id := s.scheduled()
	change := func(actor string, to func(*store.Schedule)) store.Schedule {
		v, err := s.DB.ChangeSchedule(t.Context(), id, actor, func(v *store.Schedule, _ time.Time) (string, string, error) {
			to(v)
			return "schedule.changed", "", nil
		})
		require.NoError(t, err)
		return v
	}
	pause := func(v *store.Schedule) { v.State, v.Next = store.SchedulePaused, nil }
	due := func(v *store.Schedule) { v.State, v.Next = store.ScheduleActive, new(time.Now().Add(time.Hour)) }

	first := change("ann", pause)
	require.Equal(t, "ann", first.PausedBy)
	require.NotNil(t, first.PausedAt)
	change("ben", func(v *store.Schedule) { v.Overlap = store.OverlapQueue })
	change("eve", pause)
	v, err := s.DB.FindSchedule(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []any{"ann", first.PausedAt}, []any{v.PausedBy, v.PausedAt})

	v = change("ben", due)
	require.Empty(t, v.PausedBy)
	require.Nil(t, v.PausedAt)
}

// What replaces the last agent of a schedule ends that, unless an order stands that does.
func TestWhatIsReplacedIsEnded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kill   string
		killed bool
	}{
		"nobody has ended it":              {`NULL`, true},
		"a kill is ordered":                {`'[{"reason": "x"}]'`, false},
		"a cancel is ordered":              {`'[{"cancel": "now"}]'`, false},
		"it may finish":                    {`'[{"cancel": "after"}]'`, true},
		"it may finish, and a kill":        {`'[{"cancel": "after"}, {"reason": "x"}]'`, false},
		"its kill was refused":             {`'[{"reason": "x", "state": "refused"}]'`, true},
		"its kill was refused, another is": {`'[{"reason": "x", "state": "refused"}, {"reason": "y"}]'`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			spawn := commands.Spawn{Runtime: commands.RuntimeNoop}
			id := storetest.NewID()
			due := func(now time.Time) time.Time { return now.Add(-time.Minute) }
			require.NoError(t, p.Hub.DB.AddSchedule(t.Context(), store.Schedule{ID: id, Name: "often", Cron: "x", Zone: "UTC", Overlap: store.OverlapReplace, CreatedBy: "test", Template: store.Template{Spawn: &spawn}}, nil, due))
			fire := func() *store.Fired {
				fired, err := p.Hub.DB.Fire(t.Context(), id, func(_ store.Schedule, _ func() (commands.Values, error), now time.Time) store.Firing {
					order := spawn
					order.Task = storetest.NewID()
					return store.Firing{Next: due(now), Actor: "test", Kill: commands.Kill{Reason: "replaced"}, Life: time.Hour,
						Order: &store.SpawnOrder{Conn: p.Hub.Conn.ID, Spawn: &order, Life: time.Hour, IdempotencyKey: order.Task, Actor: "test"}}
				})
				require.NoError(t, err)
				require.Equal(t, store.FireOrdered, fired.Outcome)
				return fired
			}
			last := fire().Task
			require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET kill = `+tt.kill))

			require.Equal(t, tt.killed, fire().Killed != nil)

			require.Equal(t, tt.killed, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE kind = 'agent.kill' AND task = $1`, last) == 1)
		})
	}
}
