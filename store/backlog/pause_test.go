package backlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// pauseOf is the word of who asked for a task.
func pauseOf(r backlog.Request, number int64, on bool) backlog.Pause {
	return backlog.Pause{Conn: r.Conn, Task: r.Spawn.Task, Number: number, Paused: on, Reason: "so", Actor: "hub", Expires: time.Now().Add(time.Hour)}
}

// pause says p, and how the task stands then.
func (s scene) pause(p backlog.Pause) (state commands.State, run *backlog.PauseRun, err error) {
	err = s.DB.Tx(context.Background(), "taking in a pause", func(ctx context.Context, tx *store.Tx) (err error) {
		state, run, err = s.backlog.Pause(ctx, tx, p)
		return err
	})
	return state, run, err
}

// Of two words that with the higher number counts, in whatever order they come, and before the task or after it.
func TestTheNewestPauseCounts(t *testing.T) {
	t.Parallel()
	type word struct {
		number int64
		on     bool
	}
	for name, tt := range map[string]struct {
		words []word
		want  commands.State
	}{
		"one":                           {[]word{{1, true}}, commands.Paused},
		"in order":                      {[]word{{2, true}, {3, false}}, commands.Queued},
		"on 2 after off 3":              {[]word{{1, true}, {3, false}, {2, true}}, commands.Queued},
		"off 2 after on 3":              {[]word{{1, true}, {3, true}, {2, false}}, commands.Paused},
		"off 3 first":                   {[]word{{3, false}, {2, true}}, commands.Queued},
		"the same number a second time": {[]word{{3, false}, {3, true}}, commands.Queued},
	} {
		for where, early := range map[string]bool{"after the task": false, "before it": true} {
			t.Run(name+" "+where, func(t *testing.T) {
				t.Parallel()
				s := newSide(t)
				here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
				s.Meet(t, store.Obeys)
				r := here.request()
				if !early {
					here.asks(r)
				}
				for _, w := range tt.words {
					_, run, err := here.pause(pauseOf(r, w.number, w.on))
					require.NoError(t, err)
					require.Nil(t, run)
				}
				if early {
					require.Equal(t, tt.want, here.asks(r)[0].State)
				}
				require.Zero(t, s.Count(t, `SELECT count(*) FROM pauses WHERE paused AND early IS NOT NULL`), "the pause of a task that is here stays as long as that")

				require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM standing WHERE id = $1 AND state = $2::text::task_state`, r.Spawn.Task, tt.want))
				claimable := s.Count(t, `SELECT count(*) FROM ready WHERE task = $1`, r.Spawn.Task)
				require.Equal(t, tt.want == commands.Queued, claimable == 1)
				require.Equal(t, tt.want == commands.Paused, s.Count(t, `SELECT count(*) FROM parked WHERE task = $1 AND why = 'paused'`, r.Spawn.Task) == 1)
			})
		}
	}
}

// What the host says is newer than what the hub has said, and older than what it says then.
func TestTheHostPauses(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	r := here.asked()
	_, _, err := here.pause(pauseOf(r, 10, true))
	require.NoError(t, err)
	_, err = s.backlog.PauseHere(t.Context(), backlog.Pause{Task: r.Spawn.Task, Actor: "ann"})
	require.NoError(t, err)
	state, _, err := here.pause(pauseOf(r, 10, true))
	require.NoError(t, err)
	require.Equal(t, commands.Queued, state)

	state, _, err = here.pause(pauseOf(r, 20, true))

	require.NoError(t, err)
	require.Equal(t, commands.Paused, state)
}

// A task is paused by who asked for it, and a bounded number of times.
func TestWhoMayPause(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	r := here.asked()
	other := pauseOf(r, 1, true)
	other.Conn = storetest.NewID()
	require.NoError(t, s.Exec(`INSERT INTO connections SELECT (jsonb_populate_record(c, jsonb_build_object('id', $1::text, 'peer_name', 'other', 'peer', 'other'))).* FROM connections c LIMIT 1`, other.Conn))

	_, _, err := here.pause(other)

	require.Equal(t, commands.UnknownTask, commands.CodeOf(err))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM ready WHERE task = $1`, r.Spawn.Task))
	for n := int64(1); n <= 200; n++ {
		_, _, err := here.pause(pauseOf(r, n, n%2 == 1))
		require.NoError(t, err)
	}
	_, _, err = here.pause(pauseOf(r, 201, true))
	require.Equal(t, commands.TooMany, commands.CodeOf(err))
}

// A word that changes nothing is answered by how the task stands, whether it waits or runs, and so often that its end is heard. However
// often it is said, the agent can be paused: it is no pause.
func TestAPauseThatChangesNothingIsTold(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]bool{"pause": true, "resume": false} {
		for where, runs := range map[string]bool{"runs": true, "waits": false} {
			t.Run(name+" of what "+where, func(t *testing.T) {
				t.Parallel()
				s, told := newSide(t), 0
				s.backlog = backlog.Open(s.DB, func(_ context.Context, _ *store.Tx, list []backlog.Moved) error {
					for _, m := range list {
						told += map[bool]int{true: 1}[m.Stands]
					}
					return nil
				})
				here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
				word := backlog.Pause{Conn: s.Conn.ID, Paused: on, Actor: "hub"}
				if runs {
					word.Task = here.started().Task
				} else {
					word.Task = here.asked().Spawn.Task
				}
				say := func(times int) {
					for range times {
						word.Number++
						_, run, err := here.pause(word)
						require.NoError(t, err)
						if run != nil {
							_, err = s.backlog.MarkPaused(t.Context(), *run)
							require.NoError(t, err)
						}
					}
				}
				say(1)
				require.Equal(t, 1, told)

				say(1)

				require.Equal(t, 2, told)
				say(200)
				changed := map[bool]int{true: 1}[on]
				require.Equal(t, changed+100, told)
				for _, word.Paused = range []bool{false, true, false} {
					say(1)
				}
				require.Equal(t, changed+102+changed, told, "each change is told, and nothing else")
			})
		}
	}
}

// Words may come faster than they are proven: what was told last is how the agent stands then.
func TestWhatIsToldOfAPauseIsHowItEnds(t *testing.T) {
	t.Parallel()
	for name, words := range map[string][]bool{"on": {true}, "off": {false}, "off, on": {false, true}, "off, on, off": {false, true, false}, "off, on, off, on": {false, true, false, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			var told commands.State
			s.backlog = backlog.Open(s.DB, func(_ context.Context, _ *store.Tx, list []backlog.Moved) error {
				for _, m := range list {
					told = m.State
				}
				return nil
			})
			here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
			word := backlog.Pause{Conn: s.Conn.ID, Task: here.started().Task, Number: 1, Paused: true, Actor: "hub"}
			_, run, err := here.pause(word)
			require.NoError(t, err)
			_, err = s.backlog.MarkPaused(t.Context(), *run)
			require.NoError(t, err)

			for _, word.Paused = range words {
				word.Number++
				_, run, err = here.pause(word)
				require.NoError(t, err)
			}
			_, err = s.backlog.MarkPaused(t.Context(), *run)

			require.NoError(t, err)
			require.Equal(t, map[bool]commands.State{true: commands.Paused, false: commands.Running}[word.Paused], told)
			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM standing WHERE state = $1::text::task_state`, string(told)))
		})
	}
}

// A graceful cancel lets what stands still go on, since it would never end, and nothing pauses it again: in both orders.
func TestAGracefulCancelEndsAPause(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	f := here.started()
	word := backlog.Pause{Conn: s.Conn.ID, Task: f.Task, Number: 1, Paused: true, Actor: "hub"}
	_, run, err := here.pause(word)
	require.NoError(t, err)
	require.Equal(t, &backlog.PauseRun{Fence: f, Paused: true}, run)
	held, err := s.backlog.MarkPaused(t.Context(), *run)
	require.NoError(t, err)
	require.True(t, held)

	kill, err := s.backlog.KillHere(t.Context(), backlog.HostKill{ID: storetest.NewID(), Actor: "ann", Kill: commands.Kill{Task: f.Task, Reason: "enough", Cancel: commands.CancelAfter}})

	require.NoError(t, err)
	require.Equal(t, &backlog.KillRun{Fence: f, Goes: true}, kill)
	list, err := s.backlog.ToPause(t.Context(), string(s.DB.Self()))
	require.NoError(t, err)
	require.Equal(t, []backlog.PauseRun{{Fence: f}}, list)
	held, err = s.backlog.MarkPaused(t.Context(), list[0])
	require.NoError(t, err)
	require.True(t, held)
	word.Number = 2
	_, _, err = here.pause(word)
	require.Equal(t, commands.Conflict, commands.CodeOf(err), "%v", err)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM standing WHERE id = $1 AND state = 'running'`, f.Task))
}

// Lists, counts and figures say of an agent that stands still what its task says, and why says who lets it go on.
func TestAnAgentThatStandsStillIsPausedEverywhere(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	f := here.stopped()

	for state, want := range map[commands.State]int{commands.Paused: 1, commands.Running: 0} {
		list, err := here.b.List(t.Context(), backlog.Filter{State: state})
		require.NoError(t, err)
		require.Len(t, list, want, state)
	}
	stats, err := here.b.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{1, 0}, []int64{stats.States[commands.Paused], stats.States[commands.Running]})
	figures, err := s.backlog.Figures(t.Context())
	require.NoError(t, err)
	require.Contains(t, figures.Lanes, backlog.LaneCount{Lane: "default", State: "paused", Tasks: 1})
	why, err := here.b.Why(t.Context(), f.Task)
	require.NoError(t, err)
	require.Equal(t, "spawnmesh resume "+commands.ShortID(f.Task), why.Reasons[0].Fix)
}

// The age of an attempt, by which its time is over, has no time in it that its agent stood still.
func TestTheAgeOfAnAttemptHasNoPauses(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	f := here.started()
	age := func() time.Duration {
		list, err := s.backlog.OpenAttempts(t.Context(), string(s.DB.Self()), nil, "")
		require.NoError(t, err)
		require.Len(t, list, 1)
		return list[0].Age.Round(time.Minute)
	}
	turn := func(on bool) {
		run, err := s.backlog.PauseHere(t.Context(), backlog.Pause{Task: f.Task, Paused: on, Actor: "ann"})
		require.NoError(t, err)
		require.NotNil(t, run)
	}
	mark := func(on bool) {
		held, err := s.backlog.MarkPaused(t.Context(), backlog.PauseRun{Fence: f, Paused: on})
		require.NoError(t, err)
		require.True(t, held)
	}
	passes := func(hours string) { // by the database's clock
		here.exec(`UPDATE leases SET claimed_at = claimed_at - $1::interval, started_at = started_at - $1::interval, paused_at = paused_at - $1::interval`, hours)
	}
	passes("1h")
	require.Equal(t, time.Hour, age())
	turn(true)
	mark(true)
	passes("2h")
	require.Equal(t, time.Hour, age(), "it stands still")
	turn(false)
	passes("4h")
	require.Equal(t, 5*time.Hour, age(), "it may go on, though nobody has said so")
	mark(false)
	turn(true)
	mark(true)
	passes("8h")
	turn(false)
	mark(false)

	require.Equal(t, 5*time.Hour, age())
}
