package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What a hub recalls of a task that another hub, or this host itself, has asked for changes nothing of that, whatever it says: it is told
// what is told of a task that is not here.
func TestWhatIsRecalledOfTasksOfOthersChangesNothing(t *testing.T) {
	t.Parallel()
	runs := map[string]func(s scene) (task string){
		"it runs": func(s scene) string { return s.started().Task },
		"a card runs": func(s scene) string {
			card := create(s, s.b, backlog.TaskSpec{Title: "a", MaxRetries: 1})[0].ID
			list, err := s.b.Claim(s.Context(), backlog.ClaimTerms{Owner: "w"})
			require.NoError(s, err)
			require.Len(s, list, 1)
			return card
		},
	}
	for name, here := range runs {
		for what, recalled := range map[string]commands.TaskStanding{
			"it was cancelled":        {State: commands.Running, Attempt: 1, Reason: commands.CancelRequested},
			"a later attempt began":   {State: commands.Running, Attempt: 7},
			"it waits behind a later": {State: commands.Queued, Attempt: 7, Over: true},
			"it has ended":            {State: commands.Completed, Attempt: 7, Outcome: commands.Succeeded},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				s, facts := told(t)
				recalled.Task = here(s)
				s.MeetAnother(t, store.Obeys)
				s.restored()
				*facts = nil
				before := s.stood()

				s.recall(recalled)
				s.claim()

				require.Equal(t, before, s.stood())
				for _, m := range *facts {
					require.Equal(t, s.Conn.ID, m.Conn, "only who recalls it is told of it")
				}
				require.Zero(t, s.Count(t, `SELECT count(*) FROM ended_attempts`))
				s.ends(*before.fence, commands.AttemptFailed, commands.NoReason)
				require.Equal(t, commands.Queued, s.stood().state, "it is tried again")
				s.sound()
			})
		}
	}
}

// Nor is an order that comes later what another hub has said of it: it starts with its first attempt, and expires as it says.
func TestWhatAnotherRecallsOfAnOrderIsNotSoWhenItComes(t *testing.T) {
	t.Parallel()
	s, _ := told(t)
	s.Meet(t, store.Obeys)
	r := s.request()
	s.MeetAnother(t, store.Obeys)
	s.restored()
	s.recall(commands.TaskStanding{Task: r.Spawn.Task, State: commands.Running, Attempt: 7, Reason: commands.CancelRequested})

	require.Nil(t, s.asks(r)[0].Refusal)

	require.Zero(t, s.Count(t, `SELECT count(*) FROM ready WHERE expires_at = 'infinity'`))
	pasts, err := s.backlog.Pasts(t.Context(), []string{r.Spawn.Task})
	require.NoError(t, err)
	require.Zero(t, pasts[r.Spawn.Task].Begun)
	require.Nil(t, s.stood().fence, "no attempt is open")
	require.Zero(t, s.Count(t, `SELECT count(*) FROM tasks WHERE attempt > 0`))
	s.sound()
}

// Two hubs may recall the same task. It stands as the one says who has asked for it, whatever the other says.
func TestTwoHubsRecallTheSameTask(t *testing.T) {
	t.Parallel()
	s, _ := told(t)
	r := s.asked()
	own := *s.Side
	s.MeetAnother(t, store.Obeys)
	s.restored()
	s.recall(commands.TaskStanding{Task: r.Spawn.Task, State: commands.Running, Attempt: 1, Reason: commands.CancelRequested})
	s.Conn, s.Peer = own.Conn, own.Peer

	s.recall(commands.TaskStanding{Task: r.Spawn.Task, State: commands.Running, Attempt: 1})

	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM recalled WHERE task = $1 AND NOT over`, r.Spawn.Task))
	st := s.stood()
	require.NotNil(t, st.fence)
	require.Equal(t, 1, st.fence.Attempt)
	require.Equal(t, commands.NoReason, st.reason, "nobody has cancelled it")
	s.sound()
}
