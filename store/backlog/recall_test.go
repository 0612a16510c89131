package backlog_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// restored lets the instance begin a life on a database that its directory does
// not know.
func (s scene) restored() {
	_, err := s.DB.BeginIncarnation(s.Context(), []string{""}, "the first one")
	require.NoError(s, err)
	restored, err := s.DB.BeginIncarnation(s.Context(), []string{"a later one"}, "the next one")
	require.NoError(s, err)
	require.True(s, restored)
}

// restoredAgain is restored once more.
func (s scene) restoredAgain() {
	restored, err := s.DB.BeginIncarnation(s.Context(), []string{"a still later one"}, "the one after")
	require.NoError(s, err)
	require.True(s, restored)
}

// recall lets the peer answer what it is asked.
func (s scene) recall(list ...commands.TaskStanding) {
	n, err := s.DB.Numbering(s.Context(), s.Conn.ID, false, nil)
	require.NoError(s, err)
	require.Positive(s, n.Recall, "it asks")
	require.NoError(s, s.page(commands.Recalled{From: n.Recall, Through: n.Recall, Done: true, Tasks: list}))
}

// page lets the peer say one page of its answer.
func (s scene) page(r commands.Recalled) error {
	_, err := s.DB.Recall(s.Context(), s.Peer, &r, func(ctx context.Context, tx *store.Tx) error {
		return s.backlog.Recall(ctx, tx, s.Conn.ID, r.Tasks)
	})
	return err
}

func (s scene) claim() []backlog.Claimed {
	list, err := s.backlog.Claim(s.Context(), backlog.ClaimTerms{Owner: string(s.Self()), Limit: 10})
	require.NoError(s, err)
	return list
}

// What a restored database has to run may have run, so it waits for the one who
// asked for it; after an ordinary restart nothing does.
func TestWhatMayHaveRunIsHeldBack(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	r := s.asked()
	for _, found := range []string{"", "the mark"} {
		restored, err := s.DB.BeginIncarnation(t.Context(), []string{found}, "the mark")
		require.NoError(t, err)
		require.False(t, restored)
	}
	s.restored()

	require.Empty(t, s.claim(), "before the peer has said what it knows")
	pasts, err := s.backlog.Pasts(t.Context(), []string{r.Spawn.Task})
	require.NoError(t, err)
	require.True(t, pasts[r.Spawn.Task].Asked)
	s.recall()

	require.Len(t, s.claim(), 1)
	require.Zero(t, s.Count(t, `SELECT count(*) FROM freezes`))
}

func TestATaskIsWhatItsAskerRecalls(t *testing.T) {
	t.Parallel()
	waits := func(s scene) string { return s.asked().Spawn.Task }
	runs := func(s scene) string { return s.running().Task }
	aside := func(state string) func(s scene) string { // as an agent that is no card stands, by whoever put it there
		return func(s scene) string {
			task := waits(s)
			s.exec(`DELETE FROM ready WHERE task = $1`, task)
			s.exec(`UPDATE tasks SET state = $2::text::task_state WHERE id = $1`, task, state)
			s.exec(`INSERT INTO parked (task, workspace, lane, phase, why) SELECT id, workspace, lane, phase, $2 FROM tasks WHERE id = $1`, task, state)
			return task
		}
	}
	unavailable := commands.TaskStanding{State: commands.Unavailable, Attempt: 1, Outcome: commands.CouldNotStart, Code: -1}
	tests := map[string]struct {
		here    func(s scene) string
		there   commands.TaskStanding
		state   commands.State
		attempt int // the one that is claimed next, or the last one
		begun   bool
	}{
		"it waits, and had not started":            {waits, commands.TaskStanding{State: commands.Queued}, commands.Claimed, 1, false},
		"it waits, and had started":                {waits, commands.TaskStanding{State: commands.Running, Attempt: 1}, commands.Claimed, 1, true},
		"it waits, and had started a third time":   {waits, commands.TaskStanding{State: commands.Running, Attempt: 3}, commands.Claimed, 3, true},
		"it waits, and was to run a second time":   {waits, commands.TaskStanding{State: commands.Queued, Attempt: 1}, commands.Claimed, 2, false},
		"it waits, and was paused unbegun":         {waits, commands.TaskStanding{State: commands.Paused}, commands.Paused, 0, false},
		"it waits, and was paused between":         {waits, commands.TaskStanding{State: commands.Paused, Attempt: 1, Over: true}, commands.Paused, 1, false},
		"it waits, and was paused as it ran":       {waits, commands.TaskStanding{State: commands.Paused, Attempt: 1}, commands.Claimed, 1, true},
		"it waits, and asked between":              {waits, commands.TaskStanding{State: commands.AwaitingInput, Attempt: 1, Over: true}, commands.Claimed, 2, false},
		"it waits, and asked as it ran":            {waits, commands.TaskStanding{State: commands.AwaitingInput, Attempt: 1}, commands.Claimed, 1, true},
		"it waits, and had ended":                  {waits, commands.TaskStanding{State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded}, commands.Completed, 1, false},
		"it waits, and was not to be started":      {waits, unavailable, commands.Unavailable, 1, false},
		"it is paused, and was not to be started":  {aside("paused"), unavailable, commands.Unavailable, 1, false},
		"it is paused, and went on":                {aside("paused"), commands.TaskStanding{State: commands.Running, Attempt: 2}, commands.Claimed, 2, true},
		"it is paused, and was again as it ran":    {aside("paused"), commands.TaskStanding{State: commands.Paused, Attempt: 1}, commands.Claimed, 1, true},
		"it is paused, and was unbegun":            {aside("paused"), commands.TaskStanding{State: commands.Paused}, commands.Paused, 0, false},
		"it is blocked, and was not to be started": {aside("blocked"), unavailable, commands.Unavailable, 1, false},
		"it asks, and was not to be started":       {aside("awaiting_input"), unavailable, commands.Unavailable, 1, false},
		"it is claimed, and had started":           {runs, commands.TaskStanding{State: commands.Running, Attempt: 1}, commands.Claimed, 1, true},
		"it is claimed, and had failed":            {runs, commands.TaskStanding{State: commands.Failed, Attempt: 2, Outcome: commands.AttemptFailed, Code: 3}, commands.Failed, 2, false},
		"it is claimed, and nothing more is told":  {runs, commands.TaskStanding{State: commands.Queued}, commands.Claimed, 1, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := newSide(t)
			s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
			task := tt.here(s)
			s.restored()
			tt.there.Task = task

			s.recall(tt.there)
			s.claim()

			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM standing WHERE id = $1 AND state = $2::text::task_state AND attempt = $3`, task, string(tt.state), tt.attempt))
			pasts, err := s.backlog.Pasts(t.Context(), []string{task})
			require.NoError(t, err)
			if !tt.state.Terminal() {
				require.Equal(t, tt.begun, pasts[task].Begun > 0 && pasts[task].Begun >= tt.attempt)
			} else {
				require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM task_bodies WHERE task = $1 AND result->>'state' = $2 AND (result->'exit'->>'code')::int = $3`, task, string(tt.state), tt.there.Code))
				require.Zero(t, s.Count(t, `SELECT (SELECT count(*) FROM ready) + (SELECT count(*) FROM due) + (SELECT count(*) FROM parked) + (SELECT count(*) FROM leases)`))
			}
			require.Zero(t, s.Count(t, `SELECT count(*) FROM outbox`), "the asker knows")
		})
	}
}

// A pause that was lost with the database is the newest word on its task: what its asker has said before comes to
// nothing when it is sent again, and what it says later counts.
func TestARecalledPauseIsNewerThanWhatWasSaidBefore(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	task := s.asked().Spawn.Task
	s.restored()
	s.recall(commands.TaskStanding{Task: task, State: commands.Paused, Word: 70})
	goOn := func(number int64) commands.State {
		state, _, err := s.pause(backlog.Pause{Conn: s.Conn.ID, Task: task, Number: number, Actor: "peer"})
		require.NoError(t, err)
		return state
	}

	require.Equal(t, commands.Paused, goOn(70))
	require.Empty(t, s.claim())

	require.Equal(t, commands.Queued, goOn(72))
	require.Len(t, s.claim(), 1)
}

// A task that runs there and is not here ends there, unless it is asked for again.
func TestALostTaskEndsWhereItWasAskedFor(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	var told []backlog.Moved
	side.backlog = backlog.Open(side.DB, func(_ context.Context, _ *store.Tx, facts []backlog.Moved) error {
		told = append(told, facts...)
		return nil
	})
	s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	s.asked()
	s.restored()
	gone, comes := s.request(), s.request()
	standing := func(r backlog.Request, comes bool) commands.TaskStanding {
		return commands.TaskStanding{Task: r.Spawn.Task, Command: r.Asked.Command, SHA256: r.Asked.Digest, State: commands.Running, Attempt: 2, Comes: comes}
	}

	s.recall(standing(gone, false), standing(comes, true))

	require.Len(t, told, 1)
	require.Equal(t, []any{gone.Spawn.Task, gone.Asked, commands.Failed, 2}, []any{told[0].Task, told[0].Asked, told[0].State, told[0].Attempt})
	require.NoError(t, s.DB.Tx(t.Context(), "asking again", func(ctx context.Context, tx *store.Tx) error {
		_, err := s.backlog.Request(ctx, tx, []backlog.Request{comes})
		return err
	}))
	for _, c := range s.claim() {
		if c.Fence.Task == comes.Spawn.Task {
			require.Equal(t, 2, c.Fence.Attempt, "the attempt that had started")
		}
	}
}

// An order that comes after the recall is what was told of it: the next attempt starts where the last one is over, and what
// was paused then does not start.
func TestWhatComesAfterTheRecallGoesOn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		told  commands.TaskStanding
		state commands.State
		next  int
		begun bool // and so taken over
	}{
		"queued":                 {commands.TaskStanding{State: commands.Queued}, commands.Claimed, 1, false},
		"queued again":           {commands.TaskStanding{State: commands.Queued, Attempt: 2, Over: true}, commands.Claimed, 3, false},
		"asking between two":     {commands.TaskStanding{State: commands.AwaitingInput, Attempt: 2, Over: true}, commands.Claimed, 3, false},
		"running":                {commands.TaskStanding{State: commands.Running, Attempt: 2}, commands.Claimed, 2, true},
		"paused before it began": {commands.TaskStanding{State: commands.Paused}, commands.Paused, 0, false},
		"paused between two":     {commands.TaskStanding{State: commands.Paused, Attempt: 2, Over: true}, commands.Paused, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := newSide(t)
			s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
			s.asked()
			s.restored()
			r := s.request()
			tt.told.Task, tt.told.Command, tt.told.SHA256, tt.told.Comes = r.Spawn.Task, r.Asked.Command, r.Asked.Digest, true
			s.recall(tt.told)
			require.NoError(t, s.DB.Tx(t.Context(), "asking again", func(ctx context.Context, tx *store.Tx) error {
				_, err := s.backlog.Request(ctx, tx, []backlog.Request{r})
				return err
			}))

			s.claim()

			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM standing WHERE id = $1 AND state = $2::text::task_state AND attempt = $3`, r.Spawn.Task, string(tt.state), tt.next))
			pasts, err := s.backlog.Pasts(t.Context(), []string{r.Spawn.Task})
			require.NoError(t, err)
			next := tt.next
			if tt.state == commands.Paused {
				next++
			}
			require.Equal(t, tt.begun, pasts[r.Spawn.Task].Begun >= next)
		})
	}
}

// What was told as lost comes all the same. Where it had never begun, its order ends when it says; what ran does not expire unstarted.
func TestWhatIsLostAndComesAfterAllExpires(t *testing.T) {
	t.Parallel()
	for _, attempt := range []int{0, 1} {
		side := newSide(t)
		s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
		s.asked()
		s.restored()
		r := s.request()
		s.recall(commands.TaskStanding{Task: r.Spawn.Task, Command: r.Asked.Command, SHA256: r.Asked.Digest, State: commands.Queued, Attempt: attempt, Over: attempt > 0})

		require.Nil(t, s.asks(r)[0].Refusal)

		require.Equal(t, attempt == 0, s.Count(t, `SELECT count(*) FROM ready WHERE task = $1 AND expires_at < 'infinity'`, r.Spawn.Task) == 1, "attempt %d", attempt)
	}
}

// Its asker may have given a task again after the backup: what is told of it answers that
// order from then on. The tasks of others are left alone.
func TestARecalledTaskAnswersTheOrderThatItsAskerKnows(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	own, foreign := s.asked(), s.request()
	foreign.Conn = storetest.NewID()
	require.NoError(t, s.DB.Tx(t.Context(), "asking", func(ctx context.Context, tx *store.Tx) error {
		_, err := s.backlog.Request(ctx, tx, []backlog.Request{foreign})
		return err
	}))
	s.restored()
	again := message()
	standing := func(r backlog.Request) commands.TaskStanding {
		return commands.TaskStanding{Task: r.Spawn.Task, Command: again.Command, SHA256: again.Digest, State: commands.Queued}
	}

	s.recall(standing(own), standing(foreign))

	answers := func(r backlog.Request, a backlog.Asked) int {
		return s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND command = $2`, r.Spawn.Task, a.Command)
	}
	require.Equal(t, 1, answers(own, again))
	require.Equal(t, 1, answers(foreign, foreign.Asked))
}

// How a task ended is told to the order that its asker knows, and once: not where the asker
// knows the end, nor where the order comes again and is answered then.
func TestTheEndOfARecalledTaskIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		there commands.TaskStanding
		tells int
	}{
		"it waits there":     {commands.TaskStanding{State: commands.Queued}, 1},
		"it comes again":     {commands.TaskStanding{State: commands.Queued, Comes: true}, 0},
		"it has ended there": {commands.TaskStanding{State: commands.Completed}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := newSide(t)
			var told []backlog.Moved
			side.backlog = backlog.Open(side.DB, func(_ context.Context, _ *store.Tx, facts []backlog.Moved) error {
				told = append(told, facts...)
				return nil
			})
			s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
			r := s.asked()
			_, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: s.claim()[0].Fence, Outcome: commands.Succeeded}}})
			require.NoError(t, err)
			told = nil
			s.restored()
			again := message()
			test.there.Task, test.there.Command, test.there.SHA256 = r.Spawn.Task, again.Command, again.Digest

			s.recall(test.there)

			require.Len(t, told, test.tells)
			for _, m := range told {
				require.Equal(t, again, m.Asked)
				require.Equal(t, commands.Completed, m.Result().State)
			}
			r.Asked = again
			require.NoError(t, s.DB.Tx(t.Context(), "asking again", func(ctx context.Context, tx *store.Tx) error {
				out, err := s.backlog.Request(ctx, tx, []backlog.Request{r})
				require.NotNil(t, out[0].Result)
				require.Equal(t, 1, out[0].Attempt)
				return err
			}))
		})
	}
}
