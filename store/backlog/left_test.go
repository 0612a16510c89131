package backlog_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func leaves(w backlog.Wanted) *commands.Bundle {
	return &commands.Bundle{Blob: w.Blob, Base: strings.Repeat("1", 40), Tip: strings.Repeat("2", 40), Commits: 1}
}

// What a task has left is brought to the hub that asked for it once the task is over, not while it is tried again, until the hub holds it.
func TestWhatATaskHasLeftIsBrought(t *testing.T) {
	t.Parallel()
	s := sceneOf(t)
	r := s.request()
	s.asks(r)
	due := func() []backlog.Wanted {
		list, err := s.backlog.Due(t.Context(), []string{s.Conn.ID}, 10)
		require.NoError(t, err)
		return list
	}
	end := func(outcome commands.Outcome, left backlog.Wanted) {
		held, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: s.claimedFor(r), Outcome: outcome, Bundle: leaves(left)}, Conn: s.Conn.ID}})
		require.NoError(t, err)
		require.Equal(t, []bool{true}, held)
	}

	end(commands.AttemptFailed, s.input(5))
	require.Empty(t, due(), "it is tried again")
	s.exec(`UPDATE tasks SET not_before = NULL`)
	s.exec(`UPDATE due SET at = now() - interval '1 s'`)
	_, err := s.backlog.Sweep(t.Context(), time.Minute)
	require.NoError(t, err)
	end(commands.Succeeded, s.input(7))

	require.Equal(t, []backlog.Wanted{s.input(7)}, due())
	require.Empty(t, s.held(r.Spawn.Task))
	foreign := s.input(7)
	foreign.Conn = storetest.NewID()
	tasks, err := s.backlog.Brought(t.Context(), foreign, true)
	require.NoError(t, err)
	require.Empty(t, tasks, "another hub's word")
	tasks, err = s.backlog.Brought(t.Context(), s.input(7), true)
	require.NoError(t, err)
	require.Equal(t, []string{r.Spawn.Task}, tasks)
	require.Empty(t, due())
	require.Equal(t, []string{r.Spawn.Task}, s.held(r.Spawn.Task))
	require.Equal(t, leaves(s.input(7)), s.result(r.Spawn.Task).Bundle)
}

// A task that ends with no attempt, or with one that has not looked, tells what the attempts before have left, and that is brought.
func TestWhatEarlierAttemptsHaveLeftIsTold(t *testing.T) {
	t.Parallel()
	again := func(s scene) {
		s.exec(`UPDATE tasks SET not_before = NULL`)
		s.exec(`UPDATE due SET at = now() - interval '1 s'`)
		_, err := s.backlog.Sweep(t.Context(), time.Minute)
		require.NoError(t, err)
	}
	for name, end := range map[string]func(s scene, r backlog.Request, end func(backlog.End)) (kept string){
		"in its back-off": func(s scene, r backlog.Request, _ func(backlog.End)) string {
			_, err := s.backlog.KillHere(t.Context(), backlog.HostKill{Kill: commands.Kill{Task: r.Spawn.Task, Reason: "enough"}, ID: storetest.NewID(), Actor: "uid:1"})
			require.NoError(t, err)
			return "special: 1"
		},
		"by a person of its workspace": func(s scene, r backlog.Request, _ func(backlog.End)) string {
			_, err := s.b.Fail(t.Context(), backlog.Act{Task: r.Spawn.Task, Reason: "enough"})
			require.NoError(t, err)
			return "special: 1"
		},
		"at a start": func(s scene, _ backlog.Request, end func(backlog.End)) string {
			again(s)
			end(backlog.End{Outcome: commands.CouldNotStart})
			return "special: 1"
		},
		"behind one that was not collected": func(s scene, r backlog.Request, end func(backlog.End)) string {
			again(s)
			end(backlog.End{Outcome: commands.AttemptFailed, Kept: "all of it"})
			_, err := s.backlog.KillHere(t.Context(), backlog.HostKill{Kill: commands.Kill{Task: r.Spawn.Task, Reason: "enough"}, ID: storetest.NewID(), Actor: "uid:1"})
			require.NoError(t, err)
			return "all of it; special: 1"
		},
		"uncollected": func(s scene, _ backlog.Request, end func(backlog.End)) string {
			again(s)
			end(backlog.End{Outcome: commands.Succeeded, Kept: "all of it"})
			return "all of it; special: 1"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sceneOf(t)
			r := s.request()
			r.Spawn.MaxRetries = 5
			s.asks(r)
			record := func(e backlog.End) {
				e.Fence = s.claimedFor(r)
				_, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &e, Conn: s.Conn.ID}})
				require.NoError(t, err)
			}
			record(backlog.End{Outcome: commands.AttemptFailed, Bundle: leaves(s.input(5)), Collected: true})
			again(s)
			record(backlog.End{Outcome: commands.AttemptFailed, Bundle: leaves(s.input(7)), Kept: "special: 1", Collected: true})

			kept := end(s, r, record)

			result := s.result(r.Spawn.Task)
			require.Equal(t, leaves(s.input(7)), result.Bundle)
			require.Equal(t, kept, result.Kept)
			due, err := s.backlog.Due(t.Context(), []string{s.Conn.ID}, 10)
			require.NoError(t, err)
			require.Equal(t, []backlog.Wanted{s.input(7)}, due)
			_, err = s.backlog.Brought(t.Context(), s.input(7), true)
			require.NoError(t, err)
			require.Equal(t, []string{r.Spawn.Task}, s.held(r.Spawn.Task), "nothing older is to be brought")
		})
	}
}

// What was delivered for review is told by the end of its rework that left nothing, and nothing older is.
func TestWhatWasDeliveredIsToldAfterItsRework(t *testing.T) {
	t.Parallel()
	s := sceneOf(t)
	r := s.request()
	r.Spawn.MaxRetries, r.Spawn.Review = 5, true
	s.asks(r)
	record := func(e backlog.End) {
		e.Fence = s.claimedFor(r)
		_, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &e, Conn: s.Conn.ID}})
		require.NoError(t, err)
		s.exec(`UPDATE tasks SET not_before = NULL`)
		s.exec(`UPDATE due SET at = now() - interval '1 s'`)
		_, err = s.backlog.Sweep(t.Context(), time.Minute)
		require.NoError(t, err)
	}
	record(backlog.End{Outcome: commands.AttemptFailed, Bundle: leaves(s.input(5)), Collected: true})
	record(backlog.End{Outcome: commands.Succeeded, Bundle: leaves(s.input(7)), Collected: true})
	require.NoError(t, s.DB.Tx(t.Context(), "reviewing", func(ctx context.Context, tx *store.Tx) error {
		_, err := s.backlog.Review(ctx, tx, s.Conn.ID, "lab", commands.Review{Task: r.Spawn.Task, Attempt: 2, Verdict: commands.RequestChanges, Message: "name it better"})
		return err
	}))

	record(backlog.End{Outcome: commands.CouldNotStart})

	require.Equal(t, leaves(s.input(7)), s.result(r.Spawn.Task).Bundle)
	due, err := s.backlog.Due(t.Context(), []string{s.Conn.ID}, 10)
	require.NoError(t, err)
	require.Equal(t, []backlog.Wanted{s.input(7)}, due)
}

// What an attempt has undone is not told as left.
func TestWhatIsUndoneIsNotTold(t *testing.T) {
	t.Parallel()
	s := sceneOf(t)
	r := s.request()
	r.Spawn.MaxRetries = 5
	s.asks(r)
	for _, e := range []backlog.End{{Outcome: commands.AttemptFailed, Bundle: leaves(s.input(5)), Collected: true}, {Outcome: commands.AttemptFailed, Collected: true}} {
		e.Fence = s.claimedFor(r)
		_, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &e, Conn: s.Conn.ID}})
		require.NoError(t, err)
		s.exec(`UPDATE tasks SET not_before = NULL`)
		s.exec(`UPDATE due SET at = now() - interval '1 s'`)
		_, err = s.backlog.Sweep(t.Context(), time.Minute)
		require.NoError(t, err)
	}
	_, err := s.backlog.KillHere(t.Context(), backlog.HostKill{Kill: commands.Kill{Task: r.Spawn.Task, Reason: "enough"}, ID: storetest.NewID(), Actor: "uid:1"})
	require.NoError(t, err)
	require.Nil(t, s.result(r.Spawn.Task).Bundle)
}

// result is that of a task.
func (s scene) result(task string) commands.Result {
	var raw []byte
	require.NoError(s, owner(s, s.URL).QueryRow(s.Context(), `SELECT result FROM task_bodies WHERE task = $1`, task).Scan(&raw))
	result, ok := commands.ReadResult(raw)
	require.True(s, ok)
	return result
}

// held are those of a task and of one that there is not of which the hub holds what they left; both are not open.
func (s scene) held(task string) []string {
	tasks := []string{task, storetest.NewID()}
	open, err := s.backlog.Open(s.Context(), tasks)
	require.NoError(s, err)
	require.Empty(s, open)
	list, err := s.backlog.Held(s.Context(), tasks)
	require.NoError(s, err)
	return list
}

// What a hub does not take stays here, and is offered again after an hour, as long as the connection is one.
func TestWhatAHubDoesNotTake(t *testing.T) {
	t.Parallel()
	s := sceneOf(t)
	r := s.request()
	s.asks(r)
	f := s.claimedFor(r)
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: commands.Succeeded, Bundle: leaves(s.input(7))}, Conn: s.Conn.ID}})
	require.NoError(t, err)
	due := func() []backlog.Wanted {
		list, err := s.backlog.Due(t.Context(), []string{storetest.NewID(), s.Conn.ID}, 10)
		require.NoError(t, err)
		return list
	}
	refused := func() {
		tasks, err := s.backlog.Brought(t.Context(), s.input(7), false)
		require.NoError(t, err)
		require.Equal(t, []string{f.Task}, tasks)
	}

	refused()

	require.Empty(t, due())
	require.Empty(t, s.held(f.Task))
	s.exec(`UPDATE blob_uses SET again = again - interval '1 hour'`)
	require.Equal(t, []backlog.Wanted{s.input(7)}, due())
	refused()
	s.exec(`UPDATE blob_uses SET again = again - interval '1 hour'`)
	require.NoError(t, s.DB.Tx(t.Context(), "revoking", func(ctx context.Context, tx *store.Tx) error { return s.backlog.RevokeWork(ctx, tx, s.Conn.ID, true) }))
	require.Empty(t, due(), "nobody takes it any more")
}

// A hub that names otherwise what it holds may have lost some: all of it is offered again, once.
func TestWhatAHubMayHaveLostIsOfferedAgain(t *testing.T) {
	t.Parallel()
	s := sceneOf(t)
	r := s.request()
	s.asks(r)
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: s.claimedFor(r), Outcome: commands.Succeeded, Bundle: leaves(s.input(7))}, Conn: s.Conn.ID}})
	require.NoError(t, err)
	names := func(name string) (due []backlog.Wanted) {
		require.NoError(t, s.backlog.OfferAgain(t.Context(), s.Conn.ID, name))
		due, err := s.backlog.Due(t.Context(), []string{s.Conn.ID}, 10)
		require.NoError(t, err)
		return due
	}
	names("1")
	_, err = s.backlog.Brought(t.Context(), s.input(7), true)
	require.NoError(t, err)

	require.Empty(t, names("1"))
	require.Equal(t, []backlog.Wanted{s.input(7)}, names("2"))
	require.Empty(t, s.held(r.Spawn.Task), "its files stay until the hub holds it again")
	_, err = s.backlog.Brought(t.Context(), s.input(7), true)
	require.NoError(t, err)
	require.Empty(t, names("2"))
}
