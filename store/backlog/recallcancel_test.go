package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// An agent that its asker recalls as cancelled and that may finish is not run again after a failure, whether its attempt is known here or
// has begun since the backup.
func TestWhatIsRecalledAsCancelledMayFinishOnce(t *testing.T) {
	t.Parallel()
	for name, here := range map[string]func(s scene) string{
		"it runs": func(s scene) string { return s.started().Task }, "it waits": func(s scene) string { return s.asked().Spawn.Task },
	} {
		for reason, want := range map[commands.Reason]commands.State{commands.CancelRequested: commands.Failed, commands.NoReason: commands.Queued} {
			t.Run(name+", "+string(reason), func(t *testing.T) {
				t.Parallel()
				s, _ := told(t)
				task := here(s)
				s.restored()

				s.recall(commands.TaskStanding{Task: task, State: commands.Running, Attempt: 1, Reason: reason})
				s.claim()

				f := s.stood().fence
				require.Equal(t, 1, f.Attempt)
				s.ends(*f, commands.AttemptFailed, commands.NoReason)
				require.Equal(t, []any{want, reason}, []any{s.stood().state, s.stood().reason})
				s.sound()
			})
		}
	}
}

// So may one that is not here yet, whose order comes again, also where the database was restored once more before that: its host's word is
// in nothing that comes again.
func TestWhatComesAgainAndWasCancelledMayFinishOnce(t *testing.T) {
	t.Parallel()
	cancelled, lost := commands.CancelRequested, commands.NoReason
	for name, tt := range map[string]struct {
		told []commands.Reason // each after a restore
		want commands.State
	}{
		"it was cancelled": {[]commands.Reason{cancelled}, commands.Failed},
		"it was not":       {[]commands.Reason{lost}, commands.Queued},
		"it was cancelled after the first restore":        {[]commands.Reason{lost, cancelled}, commands.Failed},
		"its asker has lost that after the first restore": {[]commands.Reason{cancelled, lost}, commands.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := told(t)
			s.Meet(t, store.Obeys)
			s.restored()
			r := s.request()
			for i, reason := range tt.told {
				if i > 0 {
					s.restoredAgain()
				}
				s.recall(commands.TaskStanding{Task: r.Spawn.Task, Command: r.Asked.Command, SHA256: r.Asked.Digest, State: commands.Running, Attempt: 1, Reason: reason, Comes: true})
			}

			require.Nil(t, s.asks(r)[0].Refusal)

			s.ends(*s.stood().fence, commands.AttemptFailed, commands.NoReason)
			require.Equal(t, tt.want, s.stood().state)
			s.sound()
		})
	}
}
