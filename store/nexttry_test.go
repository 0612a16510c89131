package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// Until when an agent waits for its next attempt is what its spoke has said last: with the end of the one before, or since, in
// whatever batches that comes.
func TestTheNextTryIsToldAnew(t *testing.T) {
	t.Parallel()
	for name, batches := range map[string][][]int{"at once": {{0, 1, 2}}, "later": {{0, 1}, {2}}, "out of order": {{2, 1, 0}}, "an old word later": {{0, 2}, {1}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			task := p.Order(t, nil)
			now := time.Now().UnixMilli()
			ended := func(attempt int, next int64) *commands.Ended {
				return &commands.Ended{Task: task, Attempt: attempt, Outcome: commands.AttemptFailed, State: commands.Queued, Exit: commands.Exit{Code: 1}, At: now, Next: next}
			}
			takenIn(t, p, reports(t, p, task, ended(1, now+1000))...)
			all := reports(t, p, task, ended(2, now+90_000), &commands.TaskState{Task: task, State: commands.Queued, Attempt: 2, At: now, Next: now + 60_000},
				&commands.TaskState{Task: task, State: commands.Queued, Attempt: 2, At: now, Next: now + 30_000})

			for _, which := range batches {
				var list = all[:0:0]
				for _, i := range which {
					list = append(list, all[i])
				}
				takenIn(t, p, list...)
			}

			var next []int64
			for _, e := range p.Mirror(t, task).Attempts {
				next = append(next, e.Next)
			}
			require.Equal(t, []int64{now + 1000, now + 30_000}, next)
			takenIn(t, p, reports(t, p, task, &commands.TaskState{Task: task, State: commands.Paused, Attempt: 2, At: now})...)
			require.Equal(t, now+30_000, p.Mirror(t, task).Attempts[1].Next, "what says nothing of it changes nothing")
		})
	}
}
