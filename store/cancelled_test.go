package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// An agent that was cancelled and may finish has been cancelled until its end, whatever else its spoke says of it, at once or later.
func TestWhatWasCancelledStaysCancelled(t *testing.T) {
	t.Parallel()
	for name, alone := range map[string]bool{"at once": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			task := p.Order(t, nil)
			batch := reports(t, p, task, &commands.Started{Task: task, Attempt: 1, At: time.Now().UnixMilli()},
				&commands.TaskState{Task: task, State: commands.Running, Reason: commands.CancelRequested, Attempt: 1}, asked(task))

			if alone {
				takenIn(t, p, batch[:2]...)
				batch = batch[2:]
			}
			takenIn(t, p, batch...)

			m := p.Mirror(t, task)
			require.Equal(t, []any{commands.AwaitingInput, commands.CancelRequested}, []any{m.State, m.Reason})
			takenIn(t, p, reports(t, p, task, &commands.Result{Task: task, State: commands.Failed, Attempt: 1, Outcome: commands.AttemptFailed, Exit: commands.Exit{Code: 3}})...)
			m = p.Mirror(t, task)
			require.Equal(t, []any{commands.Failed, commands.NoReason}, []any{m.State, m.Reason})
		})
	}
}
