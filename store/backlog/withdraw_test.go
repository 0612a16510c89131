package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What an attempt has asked is withdrawn once its task waits for another attempt, and not for the answer; its hub is told, as far as it
// does not say so itself.
func TestAQuestionIsWithdrawnWithItsAttempt(t *testing.T) {
	t.Parallel()
	blocked := func(s scene, f backlog.Fence) {
		s.ends(f, commands.Parked, commands.Limit)
		_, err := s.b.Block(s.Context(), backlog.Act{Task: f.Task, Reason: "so"})
		require.NoError(s, err)
	}
	for name, tt := range map[string]struct {
		end    func(s scene, f backlog.Fence)
		state  commands.State
		closed string
		told   bool
	}{
		"it failed": {func(s scene, f backlog.Fence) { s.ends(f, commands.AttemptFailed, commands.NoReason) }, commands.Queued, commands.QuestionWithdrawn, true},
		"it was paused, and lost": {func(s scene, f backlog.Fence) {
			require.NoError(s, s.Exec(`UPDATE leases SET paused = true`)) // it asked as it was made to stand still
			s.ends(f, commands.Interrupted, commands.NoReason)
		}, commands.Paused, commands.QuestionWithdrawn, true},
		"it met a limit":           {func(s scene, f backlog.Fence) { s.ends(f, commands.Parked, commands.Limit) }, commands.AwaitingInput, commands.QuestionOpen, false},
		"it is blocked since then": {blocked, commands.Blocked, commands.QuestionWithdrawn, true},
		"its hub knows of a later one": {func(s scene, f backlog.Fence) {
			s.ends(f, commands.Parked, commands.Limit)
			s.restored()
			s.recall(commands.TaskStanding{Task: f.Task, State: commands.Queued, Attempt: 2, Over: true})
		}, commands.Queued, commands.QuestionWithdrawn, false},
		"its hub knows no later one": {func(s scene, f backlog.Fence) {
			s.ends(f, commands.Parked, commands.Limit)
			s.restored()
			s.recall(commands.TaskStanding{Task: f.Task, State: commands.AwaitingInput, Attempt: 1, Over: true})
		}, commands.AwaitingInput, commands.QuestionOpen, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, facts := told(t)
			f := s.started()
			q, err := s.backlog.Ask(t.Context(), f, inquiry)
			require.NoError(t, err)

			tt.end(s, f)

			q, err = s.backlog.Question(t.Context(), q.ID)
			require.NoError(t, err)
			require.Equal(t, []any{tt.state, tt.closed}, []any{s.stood().state, q.State})
			said := ""
			for _, m := range *facts {
				if m.Answered != nil {
					require.NoError(t, m.Answered.Validate())
					require.Equal(t, tt.state, m.Answered.State)
					said = m.Answered.Outcome
				}
			}
			require.Equal(t, tt.told, said == commands.QuestionWithdrawn)
		})
	}
}

// What an agent has asked is withdrawn when its task ends, however it does: no list reads it any more, and no new question stands behind it.
func TestAQuestionIsWithdrawnWithItsTask(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s scene, f backlog.Fence){
		"it has completed": func(s scene, f backlog.Fence) { s.ends(f, commands.Succeeded, commands.NoReason) },
		"it could not go on": func(s scene, f backlog.Fence) {
			require.NoError(s, s.Exec(`UPDATE tasks SET retries = greatest(max_retries, max_losses)`))
			s.ends(f, commands.AttemptFailed, commands.NoReason)
		},
		"it was cancelled while it waited": func(s scene, f backlog.Fence) {
			s.ends(f, commands.Parked, commands.Limit)
			_, err := s.b.Cancel(s.Context(), backlog.Act{Task: f.Task, Reason: "so"})
			require.NoError(s, err)
		},
		"its connection has ended while it waited": func(s scene, f backlog.Fence) {
			s.ends(f, commands.Parked, commands.Limit)
			s.revoke(true)
		},
		"it was failed while it waited": func(s scene, f backlog.Fence) {
			s.ends(f, commands.Parked, commands.Limit)
			_, err := s.b.Fail(s.Context(), backlog.Act{Task: f.Task, Reason: "so"})
			require.NoError(s, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := told(t)
			f := s.started()
			_, err := s.backlog.Ask(t.Context(), f, inquiry)
			require.NoError(t, err)

			end(s, f)

			require.True(t, s.stood().state.Terminal())
			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM questions WHERE outcome = 'withdrawn'`))
		})
	}
}
