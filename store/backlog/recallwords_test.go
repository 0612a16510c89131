package backlog_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// told is a scene that notes what is told to those who asked.
func told(t *testing.T) (s scene, facts *[]backlog.Moved) {
	side, facts := newSide(t), &[]backlog.Moved{}
	side.backlog = backlog.Open(side.DB, func(_ context.Context, _ *store.Tx, list []backlog.Moved) error {
		*facts = append(*facts, list...)
		return nil
	})
	return scene{t, side, boardOf(t, side, backlog.MainWorkspace)}, facts
}

// What a hub has said of a pause before a task stood as it recalls is older than that: sent again it stops nobody, and lets nobody go
// on. What it says later counts, and so does what the host has said since the restore.
func TestAPauseOfBeforeIsOlderThanWhatIsRecalled(t *testing.T) {
	t.Parallel()
	waits := func(s scene) string { return s.asked().Spawn.Task }
	runs := func(s scene) string { return s.started().Task }
	paused := func(here func(scene) string) func(s scene) string {
		return func(s scene) string {
			task := here(s)
			_, run, err := s.pause(backlog.Pause{Conn: s.Conn.ID, Task: task, Number: 60, Paused: true, Actor: "peer"})
			require.NoError(s, err)
			if run != nil {
				_, err = s.backlog.MarkPaused(s.Context(), *run)
				require.NoError(s, err)
			}
			return task
		}
	}
	later := func(s scene, task string) {
		_, err := s.backlog.PauseHere(s.Context(), backlog.Pause{Task: task, Paused: true, Reason: "so", Actor: "uid:1"})
		require.NoError(s, err)
	}
	running, queued := commands.TaskStanding{State: commands.Running, Attempt: 1, Word: 70}, commands.TaskStanding{State: commands.Queued, Word: 70}
	still := commands.TaskStanding{State: commands.Paused, Attempt: 1, Word: 70}
	for name, tt := range map[string]struct {
		here  func(s scene) string
		since func(s scene, task string) // the restore
		there commands.TaskStanding
		stops bool // it is to stand still
	}{
		"it runs, and went on":                             {runs, nil, running, false},
		"it is paused, and went on":                        {paused(runs), nil, running, false},
		"it runs, and was paused":                          {runs, nil, still, true},
		"it is paused, and was again":                      {paused(runs), nil, still, true},
		"it waits, and was to":                             {waits, nil, queued, false},
		"it waits and is paused, and was to go on":         {paused(waits), nil, queued, false},
		"its host has paused it since":                     {runs, later, running, true},
		"it waits, and its host has paused it since":       {waits, later, queued, true},
		"a second attempt runs, and the first is paused":   {paused(runs), nil, commands.TaskStanding{State: commands.Running, Attempt: 2, Word: 70}, false},
		"a second attempt is paused, and the first is not": {runs, nil, commands.TaskStanding{State: commands.Paused, Attempt: 2, Word: 70}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, facts := told(t)
			task := tt.here(s)
			s.restored()
			if tt.since != nil {
				tt.since(s, task)
			}
			*facts = nil
			tt.there.Task = task

			s.recall(tt.there)

			stops := func() bool {
				return s.Count(t, `SELECT count(*) FROM tasks t LEFT JOIN leases l ON l.task = t.id WHERE t.id = $1 AND coalesce(l.paused, t.state = 'paused')`, task) == 1
			}
			require.Equal(t, tt.stops, stops())
			require.Empty(t, *facts)
			for _, on := range []bool{true, false} {
				_, _, err := s.pause(backlog.Pause{Conn: s.Conn.ID, Task: task, Number: 70, Paused: on, Actor: "peer"})
				require.NoError(t, err)
				require.Equal(t, tt.stops, stops(), "what was said before")
			}
			_, _, err := s.pause(backlog.Pause{Conn: s.Conn.ID, Task: task, Number: 75, Paused: !tt.stops, Actor: "peer"})
			require.NoError(t, err)
			require.Equal(t, !tt.stops, stops(), "what is said later")
		})
	}
}

// The same of a task that is not here yet: its hub's old pause comes with it.
func TestAPauseOfBeforeDoesNotStopWhatComes(t *testing.T) {
	t.Parallel()
	s, _ := told(t)
	s.asked()
	s.restored()
	r := s.request()
	s.recall(commands.TaskStanding{Task: r.Spawn.Task, Command: r.Asked.Command, SHA256: r.Asked.Digest, State: commands.Queued, Comes: true, Word: 70})
	_, _, err := s.pause(pauseOf(r, 70, true))
	require.NoError(t, err)

	require.Equal(t, commands.Queued, s.asks(r)[0].State)
}

// A question that is closed as far as its hub knows is not open again; one that was asked since the restore is.
func TestAQuestionOfBeforeIsClosedAsItsAskerRecalls(t *testing.T) {
	t.Parallel()
	ask := func(s scene, f backlog.Fence) {
		_, err := s.backlog.Ask(s.Context(), f, inquiry)
		require.NoError(s, err)
	}
	for name, tt := range map[string]struct {
		since bool // it is asked since the restore
		lost  bool // the attempt that asked has ended, and its task waits for the answer
		there commands.TaskStanding
		open  bool
		state commands.State
	}{
		"its agent went on":                  {there: commands.TaskStanding{State: commands.Running, Attempt: 1}, state: commands.Running},
		"another attempt runs":               {there: commands.TaskStanding{State: commands.Running, Attempt: 2}, state: commands.Claimed},
		"it was lost, and another one runs":  {lost: true, there: commands.TaskStanding{State: commands.Running, Attempt: 2}, state: commands.Claimed},
		"it waits there, too":                {there: commands.TaskStanding{State: commands.AwaitingInput, Attempt: 1}, open: true, state: commands.AwaitingInput},
		"nobody can have answered it before": {since: true, there: commands.TaskStanding{State: commands.Running, Attempt: 1}, open: true, state: commands.AwaitingInput},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, facts := told(t)
			f := s.started()
			if !tt.since {
				ask(s, f)
			}
			if tt.lost {
				s.exec(`UPDATE tasks SET max_losses = 3 WHERE id = $1`, f.Task)
				_, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: commands.Interrupted}}})
				require.NoError(t, err)
				require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM parked WHERE task = $1 AND why = 'awaiting_input'`, f.Task))
			}
			s.restored()
			if tt.since {
				ask(s, f)
			}
			*facts = nil
			tt.there.Task = f.Task

			s.recall(tt.there)

			require.Empty(t, *facts, "its hub knows")
			require.Equal(t, tt.open, s.Count(t, `SELECT count(*) FROM questions WHERE outcome IS NULL`) == 1)
			require.Equal(t, !tt.open, s.Count(t, `SELECT count(*) FROM questions WHERE outcome = 'withdrawn' AND answered_at IS NOT NULL`) == 1)
			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM standing WHERE id = $1 AND state = $2::text::task_state`, f.Task, string(tt.state)))
			if tt.lost {
				require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND attempt = 2`, f.Task), "it is to be taken over, and not claimed")
			}
		})
	}
}

// An attempt that had begun, of a task whose end is recalled, was not given back unbegun.
func TestAnAttemptOfARecalledEndWasLost(t *testing.T) {
	t.Parallel()
	for name, began := range map[string]bool{"begun": true, "not begun": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := told(t)
			here, outcome, words := s.running, "released", 0
			if began {
				here, outcome, words = s.started, "interrupted", 1
			}
			f := here()
			s.restored()

			s.recall(commands.TaskStanding{Task: f.Task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded})

			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM attempts WHERE task = $1 AND number = 1 AND outcome = $2`, f.Task, outcome))
			require.Equal(t, words, s.Count(t, `SELECT count(*) FROM attempts WHERE task = $1 AND exit->>'error' LIKE '%as its hub recalls it'`, f.Task))
			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'completed'`, f.Task))
		})
	}
}

// An agent that has asked since the backup waits for nothing here until it asks again: its asker is told that it runs.
func TestAnAgentWhoseQuestionIsLostRuns(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		asks  bool // here, too
		there commands.TaskStanding
		told  int
	}{
		"its asker knows a question":        {false, commands.TaskStanding{State: commands.AwaitingInput, Attempt: 1}, 1},
		"it is known here":                  {true, commands.TaskStanding{State: commands.AwaitingInput, Attempt: 1}, 0},
		"its asker knows that it runs":      {false, commands.TaskStanding{State: commands.Running, Attempt: 1}, 0},
		"a later attempt of it has asked":   {false, commands.TaskStanding{State: commands.AwaitingInput, Attempt: 2}, 0},
		"it has asked, and its try is over": {false, commands.TaskStanding{State: commands.AwaitingInput, Attempt: 1, Over: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, facts := told(t)
			f := s.started()
			if tt.asks {
				_, err := s.backlog.Ask(t.Context(), f, inquiry)
				require.NoError(t, err)
			}
			s.restored()
			*facts = nil
			tt.there.Task = f.Task

			s.recall(tt.there)

			require.Len(t, *facts, tt.told)
			for _, m := range *facts {
				require.Equal(t, []any{true, f.Task, commands.Running, 1}, []any{m.Stands, m.Task, m.State, m.Attempt})
			}
		})
	}
}
