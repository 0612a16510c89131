package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
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
