package backlog_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// standsIn is the state of a task, why, and the place where it stands.
func (s scene) standsIn(task string) (list []string) {
	var state, reason, place string
	require.NoError(s, owner(s, s.URL).QueryRow(s.Context(), `SELECT state::text, reason, coalesce((SELECT 'ready' FROM ready WHERE task = id), (SELECT 'due' FROM due WHERE task = id),
		(SELECT why || CASE WHEN input THEN ' input' ELSE '' END FROM parked WHERE task = id), '') FROM tasks WHERE id = $1`, task).Scan(&state, &reason, &place))
	return []string{state, reason, place}
}

func sceneOf(t testing.TB) scene {
	side := newSide(t)
	side.Meet(t, store.Obeys)
	return scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
}

// A task waits for the last of its inputs, and whatever of it is here is said; what another connection has sent is none of them.
func TestATaskWaitsForItsInputs(t *testing.T) {
	t.Parallel()
	s := sceneOf(t)
	r, plain := s.withInput(12<<20, 288<<20), s.request()
	task := r.Spawn.Task
	require.Equal(t, commands.Queued, s.asks(r, plain)[0].State)
	require.Equal(t, []string{"queued", "waiting_input", "deps input"}, s.standsIn(task))
	wanted, err := s.backlog.Wanted(t.Context(), []string{s.Conn.ID}, 10)
	require.NoError(t, err)
	require.ElementsMatch(t, []backlog.Wanted{s.input(12 << 20), s.input(288 << 20)}, wanted)
	away, err := s.backlog.Wanted(t.Context(), []string{storetest.NewID()}, 10)
	require.NoError(t, err)
	require.Empty(t, away, "of a hub that is there")
	list, err := s.backlog.Claim(t.Context(), backlog.ClaimTerms{Owner: string(s.Self()), Limit: 9})
	require.NoError(t, err)
	require.Len(t, list, 1, "the other one")

	foreign := s.input(12 << 20)
	foreign.Conn = storetest.NewID()
	require.NoError(t, s.backlog.InputCame(t.Context(), foreign))
	require.Equal(t, []string{"queued", "waiting_input", "deps input"}, s.standsIn(task))
	require.NoError(t, s.backlog.InputCame(t.Context(), s.input(12<<20)))
	require.NoError(t, s.backlog.InputCame(t.Context(), s.input(12<<20)), "twice is once")

	why, err := s.b.Why(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, commands.CauseInput, why.Reasons[0].Code)
	require.Equal(t, "its inputs are on the way: 12.0 of 300.0 MiB are here", why.Reasons[0].Text)
	require.NotNil(t, why.Reasons[0].Since)
	for _, reason := range why.Reasons {
		require.NotEqual(t, commands.CauseDependency, reason.Code)
	}
	wanted, err = s.backlog.Wanted(t.Context(), []string{s.Conn.ID}, 10)
	require.NoError(t, err)
	require.Equal(t, []backlog.Wanted{s.input(288 << 20)}, wanted)
	require.NoError(t, s.backlog.InputCame(t.Context(), s.input(288<<20)))
	require.Equal(t, []string{"queued", "", "ready"}, s.standsIn(task))

	again := s.withInput(12 << 20)
	s.asks(again)
	require.Equal(t, []string{"queued", "", "ready"}, s.standsIn(again.Spawn.Task), "what is here is not waited for")
	here, err := s.backlog.InputsOf(t.Context(), again.Spawn.Task)
	require.NoError(t, err)
	require.Equal(t, []backlog.InputHere{{Blob: s.input(12 << 20).Blob, Held: true}}, here)
	requireSound(t, s)
}

// What waits for inputs may be paused and killed, depend on others and expire as all else; where it is queued again it waits again.
func TestWhatWaitsForInputsIsMovedAsAllElse(t *testing.T) {
	t.Parallel()
	s := sceneOf(t)
	first := create(t, s.b, backlog.TaskSpec{Key: "first", Title: "t"})[0].ID
	r := s.withInput(7)
	task := r.Spawn.Task
	s.asks(r)
	require.NoError(t, s.b.Link(t.Context(), task, first))
	require.Equal(t, []string{"queued", "waiting_input", "deps input"}, s.standsIn(task))
	_, err := s.backlog.PauseHere(t.Context(), backlog.Pause{Task: task, Paused: true, Reason: "so", Actor: "uid:1"})
	require.NoError(t, err)
	wanted, err := s.backlog.Wanted(t.Context(), []string{s.Conn.ID}, 10)
	require.NoError(t, err)
	require.Empty(t, wanted, "nothing is fetched for what is paused")
	_, err = s.backlog.PauseHere(t.Context(), backlog.Pause{Task: task, Reason: "on", Actor: "uid:1"})
	require.NoError(t, err)
	require.Equal(t, []string{"queued", "waiting_input", "deps input"}, s.standsIn(task))

	require.NoError(t, s.backlog.InputCame(t.Context(), s.input(7)))

	require.Equal(t, []string{"queued", "", "deps"}, s.standsIn(task), "it waits for the other task")
	requireSound(t, s)
	_, err = s.b.Complete(t.Context(), backlog.Act{Task: first})
	require.NoError(t, err)
	require.Equal(t, []string{"queued", "", "ready"}, s.standsIn(task))

	late, paused := s.withInput(8), s.withInput(8)
	s.asks(late, paused)
	_, err = s.backlog.PauseHere(t.Context(), backlog.Pause{Task: paused.Spawn.Task, Paused: true, Reason: "so", Actor: "uid:1"})
	require.NoError(t, err)
	require.NoError(t, s.Exec(`UPDATE parked SET expires_at = now() - interval '1 s' WHERE input`))
	swept, err := s.backlog.Sweep(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, swept.Expired)
	require.Equal(t, []string{"expired", "command_expired", ""}, s.standsIn(late.Spawn.Task))
	require.NoError(t, s.backlog.InputCame(t.Context(), s.input(8)))
	require.Equal(t, []string{"expired", "command_expired", ""}, s.standsIn(late.Spawn.Task))
	require.Equal(t, "paused", s.standsIn(paused.Spawn.Task)[2])
	_, err = s.backlog.PauseHere(t.Context(), backlog.Pause{Task: paused.Spawn.Task, Reason: "on", Actor: "uid:1"})
	require.NoError(t, err)
	require.Equal(t, []string{"queued", "", "ready"}, s.standsIn(paused.Spawn.Task))
	requireSound(t, s)
}

// Inputs of a connection have a bound together, those that have not come too; the same bytes count once, and what is known is not refused.
func TestInputsOfAConnectionAreBounded(t *testing.T) {
	t.Parallel()
	s := sceneOf(t)
	s.backlog.InputsMost = func() int64 { return 20 }
	first, same, second, large := s.withInput(7, 8), s.withInput(8), s.withInput(6), s.withInput(5)
	var refused []bool
	for _, r := range append(s.asks(first, same, second, large), s.asks(first)...) {
		if r.Refusal != nil {
			require.Equal(t, commands.InputTooLarge, r.Refusal.Code)
		}
		refused = append(refused, r.Refusal != nil)
	}
	require.Equal(t, []bool{false, false, true, false, false}, refused)
	require.Equal(t, []string{"queued", "waiting_input", "deps input"}, s.standsIn(large.Spawn.Task))
	requireSound(t, s)
	other := s.withInput(8) // said to have another size
	other.Spawn.Inputs[0].Size = 19
	require.Equal(t, commands.InputTooLarge, s.asks(other)[0].Refusal.Code)
	s.backlog.InputsMost = func() int64 { return 0 }
	require.Nil(t, s.asks(second)[0].Refusal, "there is no limit")
}

// An input that does not come ends its tasks, and says why to who asked for them.
func TestTasksWithoutTheirInputsEnd(t *testing.T) {
	t.Parallel()
	s := sceneOf(t)
	r, other := s.withInput(7, 8), s.withInput(8)
	s.asks(r, other)

	done, err := s.backlog.InputLost(t.Context(), s.input(7), "its hub does not have input 7")

	require.NoError(t, err)
	require.Equal(t, []string{r.Spawn.Task}, done)
	require.Equal(t, []string{"unavailable", "input_missing", ""}, s.standsIn(r.Spawn.Task))
	require.Equal(t, []string{"queued", "waiting_input", "deps input"}, s.standsIn(other.Spawn.Task))
	var result commands.Result
	require.NoError(t, owner(t, s.URL).QueryRow(t.Context(), `SELECT result FROM task_bodies WHERE task = $1`, r.Spawn.Task).Scan(&result))
	require.Equal(t, commands.InputNotThere, result.Reason)
	require.Equal(t, -1, result.Exit.Code)
	require.Equal(t, "its hub does not have input 7", result.Exit.Error)
	again, err := s.backlog.InputLost(t.Context(), s.input(7), "once more")
	require.NoError(t, err)
	require.Empty(t, again)
	requireSound(t, s)
}

// An input that is not on the disk any more is fetched again: what has not begun waits for it, and an attempt that was given back.
func TestAnInputThatIsGoneIsFetchedAgain(t *testing.T) {
	t.Parallel()
	s := sceneOf(t)
	r, later, other := s.withInput(7), s.withInput(7, 8), s.withInput(8)
	s.asks(r)
	require.NoError(t, s.backlog.InputCame(t.Context(), s.input(7)))
	f := s.claimedFor(r)
	s.asks(later, other)
	require.NoError(t, s.backlog.InputCame(t.Context(), s.input(8)))

	require.NoError(t, s.backlog.InputGone(t.Context(), s.input(7)))
	require.NoError(t, s.backlog.InputGone(t.Context(), s.input(7)), "twice is once")

	held, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: commands.Released}, Conn: s.Conn.ID}})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, held)
	require.Equal(t, []string{"queued", "", "deps input"}, s.standsIn(r.Spawn.Task))
	require.Equal(t, []string{"queued", "waiting_input", "deps input"}, s.standsIn(later.Spawn.Task))
	require.Equal(t, []string{"queued", "", "ready"}, s.standsIn(other.Spawn.Task))
	wanted, err := s.backlog.Wanted(t.Context(), []string{s.Conn.ID}, 10)
	require.NoError(t, err)
	require.Equal(t, []backlog.Wanted{s.input(7)}, wanted)
	requireSound(t, s)
	require.NoError(t, s.backlog.InputCame(t.Context(), s.input(7)))
	require.Equal(t, "ready", s.standsIn(later.Spawn.Task)[2])
	require.NotEqual(t, "deps input", s.standsIn(r.Spawn.Task)[2])
	requireSound(t, s)
}

// An intake and the arrival of the same blob at one moment leave no task waiting for what is here.
func TestAnInputThatComesWithItsOrder(t *testing.T) {
	t.Parallel()
	s := sceneOf(t)
	first := s.withInput(7)
	s.asks(first)
	r := s.withInput(7)
	came := make(chan error, 1)
	require.NoError(t, s.DB.Tx(t.Context(), "asking", func(ctx context.Context, tx *store.Tx) error {
		_, err := s.backlog.Request(ctx, tx, []backlog.Request{r})
		if err == nil {
			go func() { came <- s.backlog.InputCame(t.Context(), s.input(7)) }()
			awaitLocked(t, s)
		}
		return err
	}))
	require.NoError(t, <-came)
	require.Equal(t, []string{"queued", "", "ready"}, s.standsIn(r.Spawn.Task))
	requireSound(t, s)
}

// awaitLocked waits until somebody waits for a lock.
func awaitLocked(t *testing.T, s scene) {
	t.Helper()
	watcher := owner(t, s.URL)
	eventually(t, "somebody waits", func() (yes bool) {
		err := watcher.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&yes)
		require.True(t, err == nil || err == pgx.ErrNoRows)
		return yes
	})
}

// requireSound checks what must hold of a backlog whose tasks no message asked for: nothing has told the audit of them.
func requireSound(t *testing.T, s scene) {
	t.Helper()
	list, err := broken(t.Context(), s.URL)
	require.NoError(t, err)
	require.Empty(t, slices.DeleteFunc(list, func(what string) bool { return strings.HasPrefix(what, "the audit tells of every creation") }))
}
