package backlog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// passedBy are the ways in which it is known that a second attempt has begun after the one that a restored database has as open.
var passedBy = map[string]func(s scene, task string){
	"by its asker": func(s scene, task string) {
		s.exec(`INSERT INTO recalled (task, conn, attempt, over) VALUES ($1, $2, 2, false)`, task, s.Conn.ID)
	},
	"by its directory": func(s scene, task string) { s.backlog.NoteBegun(task, 2) },
}

// passedOn checks that the second attempt of a task is open, of which reason is asked, and the first one is closed. It returns its fence.
func (s scene) passedOn(f backlog.Fence, reason commands.Reason) backlog.Fence {
	stood := s.stood()
	require.NotNil(s, stood.fence)
	require.Equal(s, []any{commands.Claimed, reason, 2}, []any{stood.state, stood.reason, stood.fence.Attempt})
	require.Equal(s, 1, s.Count(s, `SELECT count(*) FROM ended_attempts WHERE task = $1 AND number = 1`, f.Task))
	require.Equal(s, 1, s.Count(s, `SELECT retries FROM tasks`), "the first one has spent one")
	require.True(s, s.backlog.Opened())
	held, err := s.backlog.Record(s.Context(), []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: commands.AttemptFailed}}})
	require.NoError(s, err)
	require.Equal(s, []bool{false}, held, "nothing counts that is told of the first one")
	s.sound()
	return *stood.fence
}

// A word about a task is one about its last attempt, also where a restored database has an earlier one as open.
func TestAWordIsNotAboutAnAttemptThatWasPassed(t *testing.T) {
	t.Parallel()
	for name, known := range passedBy {
		for word, w := range words {
			if strings.HasPrefix(word, "a pause") || strings.HasPrefix(word, "a resume") {
				continue // it is in force for every later attempt
			}
			t.Run(word+", known "+name, func(t *testing.T) {
				t.Parallel()
				s, facts := told(t)
				f := s.started()
				s.restored()
				require.NoError(t, s.backlog.LookForRestore(t.Context()))
				known(s, f.Task)
				*facts = nil

				w.say(s, backlog.Request{Conn: s.Conn.ID, Spawn: &commands.Spawn{Task: f.Task}})

				for _, m := range *facts {
					require.True(t, m.Stands, "nothing has ended")
				}
				last := s.passedOn(f, w.reason)
				require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM ended_attempts WHERE outcome = 'interrupted'`))
				s.ends(last, commands.Succeeded, commands.NoReason)
				require.Equal(t, w.state, s.stood().state)
			})
		}
	}
}

// What a word was said of before the later attempt was found goes on with that: the end of the passed one ends nothing. One that has
// succeeded has ended its task.
func TestTheEndOfAnAttemptThatWasPassedEndsNothing(t *testing.T) {
	t.Parallel()
	kill := func(cancel string) func(s scene, f *backlog.Fence) {
		return func(s scene, f *backlog.Fence) {
			if run := s.killedHere(f.Task, cancel); run != nil {
				f.Epoch = run.Fence.Epoch
			}
		}
	}
	for name, known := range passedBy {
		for word, w := range map[string]struct {
			say    func(s scene, f *backlog.Fence)
			reason commands.Reason
		}{
			"nothing":    {func(scene, *backlog.Fence) {}, commands.NoReason},
			"a kill":     {kill(""), commands.Operator},
			"a cancel":   {kill(commands.CancelAfter), commands.CancelRequested},
			"no retries": {func(s scene, _ *backlog.Fence) { s.exec(`UPDATE tasks SET parks = 100, reclaims = 100`) }, commands.NoReason},
		} {
			for _, outcome := range []commands.Outcome{commands.AttemptFailed, commands.Interrupted, commands.AttemptKilled} {
				t.Run(word+", "+string(outcome)+", known "+name, func(t *testing.T) {
					t.Parallel()
					s, _ := told(t)
					f := s.started()
					s.restored()
					require.NoError(t, s.backlog.LookForRestore(t.Context()))
					w.say(s, &f)
					known(s, f.Task)

					s.ends(f, outcome, commands.NoReason)

					stood := s.stood()
					require.Equal(t, []any{commands.Claimed, w.reason}, []any{stood.state, stood.reason})
					require.Equal(t, 2, stood.fence.Attempt)
					s.sound()
				})
			}
		}
		t.Run("it has succeeded, known "+name, func(t *testing.T) {
			t.Parallel()
			s, _ := told(t)
			f := s.started()
			s.restored()
			require.NoError(t, s.backlog.LookForRestore(t.Context()))
			known(s, f.Task)

			s.ends(f, commands.Succeeded, commands.NoReason)

			require.Equal(t, commands.Completed, s.stood().state)
			s.sound()
		})
	}
}

// The last attempt that the asker recalls is the one that goes on, and not the one that is open here.
func TestWhatIsRecalledPassesWhatIsOpen(t *testing.T) {
	t.Parallel()
	for reason, want := range map[commands.Reason]commands.State{commands.CancelRequested: commands.Failed, commands.NoReason: commands.Queued} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			s, facts := told(t)
			f := s.started()
			s.exec(`UPDATE tasks SET max_retries = 5`)
			s.restored()
			*facts = nil

			s.recall(commands.TaskStanding{Task: f.Task, State: commands.Running, Attempt: 2, Reason: reason})

			require.Empty(t, *facts, "its asker knows")
			s.ends(s.passedOn(f, reason), commands.AttemptFailed, commands.NoReason)
			require.Equal(t, []any{want, reason}, []any{s.stood().state, s.stood().reason})
		})
	}
}

// A task whose end is recalled ends, whatever has begun of it.
func TestARecalledEndOpensNothing(t *testing.T) {
	t.Parallel()
	s, _ := told(t)
	f := s.started()
	s.restored()
	require.NoError(t, s.backlog.LookForRestore(t.Context()))
	s.backlog.NoteBegun(f.Task, 2)

	s.recall(commands.TaskStanding{Task: f.Task, State: commands.Completed, Attempt: 2, Outcome: commands.Succeeded})

	require.Equal(t, commands.Completed, s.stood().state)
	require.Zero(t, s.Count(t, `SELECT count(*) FROM leases`))
}

// A later attempt is known until somebody follows it: the first one may be taken over before that.
func TestALaterAttemptIsKnownUntilItIsTakenOver(t *testing.T) {
	t.Parallel()
	s, _ := told(t)
	f := s.started()
	s.restored()
	require.NoError(t, s.backlog.LookForRestore(t.Context()))
	s.backlog.NoteBegun(f.Task, 2)

	s.backlog.TakenOver(f.Task, 1)
	s.killedHere(f.Task, "")

	s.passedOn(f, commands.Operator)
}

// What an attempt has asked that was passed stays open: the later one may have asked the same question, and wait for the answer.
func TestTheQuestionOfAnAttemptThatWasPassedStaysOpen(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(s scene, f backlog.Fence, known func(scene, string)){
		"as it ends": func(s scene, f backlog.Fence, known func(scene, string)) {
			known(s, f.Task)
			s.ends(f, commands.AttemptFailed, commands.NoReason)
		},
		"as its asker recalls": func(s scene, f backlog.Fence, _ func(scene, string)) {
			s.recall(commands.TaskStanding{Task: f.Task, State: commands.AwaitingInput, Attempt: 2})
		},
	} {
		for name, known := range passedBy {
			t.Run(how+", known "+name, func(t *testing.T) {
				t.Parallel()
				s, facts := told(t)
				f := s.started()
				_, err := s.backlog.Ask(t.Context(), f, inquiry)
				require.NoError(t, err)
				s.restored()
				require.NoError(t, s.backlog.LookForRestore(t.Context()))
				*facts = nil

				end(s, f, known)

				require.Equal(t, 2, s.stood().fence.Attempt)
				require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM questions WHERE outcome IS NULL`))
				for _, m := range *facts {
					require.Nil(t, m.Answered, "nobody is told that it is closed")
				}
			})
		}
	}
}

// An end that is handed in twice at once passes the attempt, whichever of the two counts.
func TestAnEndThatIsHandedInTwicePassesItsAttempt(t *testing.T) {
	t.Parallel()
	for range 2 {
		s, _ := told(t)
		f := s.started()
		s.exec(`UPDATE leases SET reason = 'cancel_requested'`)
		s.restored()
		require.NoError(t, s.backlog.LookForRestore(t.Context()))
		s.backlog.NoteBegun(f.Task, 2)
		end := backlog.Progress{End: &backlog.End{Fence: f, Outcome: commands.Interrupted}, Conn: s.Conn.ID}

		_, err := s.backlog.Record(t.Context(), []backlog.Progress{end, end, end})

		require.NoError(t, err)
		require.Equal(t, []any{commands.Claimed, 2}, []any{s.stood().state, s.stood().fence.Attempt})
		s.sound()
	}
}
