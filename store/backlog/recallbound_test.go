package backlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What a peer recalls of tasks that are not known here takes rows, and what it has lost a signed message each. So nobody fills a disk with
// tasks that there never were: a page that goes over the bound is not taken in, and the question stays.
func TestTasksThatNobodyKnowsAreBounded(t *testing.T) {
	t.Parallel()
	s, told := told(t)
	known := s.asked().Spawn.Task
	s.restored()
	from := int64(s.Count(t, `SELECT recall_from FROM sequences`))
	page := func(state commands.State, tasks ...string) error {
		r := commands.Recalled{From: from, Through: from + 127}
		for _, task := range tasks {
			r.Tasks = append(r.Tasks, commands.TaskStanding{Task: task, Attempt: 1, State: state, Code: -1})
		}
		err := s.page(r)
		if err == nil {
			from += 128
		}
		return err
	}
	two := func() []string { return []string{known, storetest.NewID(), storetest.NewID()} }
	counted := func() [2]int {
		return [2]int{s.Count(t, `SELECT recalled_unknown FROM sequences`), s.Count(t, `SELECT recalled_lost FROM sequences`)}
	}

	require.NoError(t, page(commands.Queued, known))
	require.Equal(t, [2]int{0, 0}, counted(), "what is known costs nothing")
	require.NoError(t, page(commands.Running, two()...))
	require.NoError(t, page(commands.Completed, two()[1:]...))
	require.Equal(t, [2]int{4, 2}, counted())
	again := two()
	require.NoError(t, page(commands.Running, again...))
	before := lostOf(*told)
	require.Subset(t, before, again[1:])
	require.NoError(t, page(commands.Running, again...))
	require.Equal(t, [2]int{6, 4}, counted(), "a task counts once, in however many pages it is named")
	require.Equal(t, before, lostOf(*told), "and is told once as lost")
	for state, want := range map[commands.State][2]int{commands.Queued: {1, 1}, commands.Expired: {1, 0}} {
		before := counted()
		never := commands.TaskStanding{Task: storetest.NewID(), State: state, Code: -1}
		for range 2 {
			require.NoError(t, s.page(commands.Recalled{From: from, Through: from + 127, Tasks: []commands.TaskStanding{never}}))
			from += 128
		}
		require.Equal(t, [2]int{before[0] + want[0], before[1] + want[1]}, counted(), "so does one that has begun no attempt: %s", state)
	}

	for _, c := range []struct {
		of      string
		state   commands.State
		unknown int
		lost    int
	}{
		{"tasks", commands.Completed, 999_999, 0},
		{"tasks in vain", commands.Running, 9_999, 9_999},
	} {
		s.exec(`UPDATE sequences SET recalled_unknown = $1, recalled_lost = $2`, c.unknown, c.lost)
		rows := s.Count(t, `SELECT count(*) FROM recalled`)
		sent := len(*told)
		var many *store.TooManyRecalled

		require.ErrorAs(t, page(c.state, two()[1:]...), &many, c.of)

		require.Equal(t, rows, s.Count(t, `SELECT count(*) FROM recalled`), c.of)
		*told = (*told)[:sent] // with the transaction
		require.Equal(t, [2]int{c.unknown, c.lost}, counted(), c.of)
		require.EqualValues(t, from, s.Count(t, `SELECT recall_from FROM sequences`), c.of)
		require.NoError(t, page(c.state, two()[:2]...), "up to the bound: %s", c.of)
	}

	change := func(to store.ConnState, by string) {
		_, err := s.DB.SetConnectionState(t.Context(), s.Conn.ID, to, "so it is", by, nil)
		require.NoError(t, err)
	}
	change(store.Suspended, "lease")
	_, err := s.DB.ResumeConnection(t.Context(), s.Conn.ID, "lease", "heard again", "lease")
	require.NoError(t, err)
	require.Equal(t, [2]int{10_000, 10_000}, counted(), "what the peer can bring about itself lets it name no more")
	change(store.Suspended, "self")
	change(store.Active, "uid:0")
	require.Equal(t, [2]int{0, 0}, counted())
	require.NoError(t, page(commands.Running, two()...))
	s.recall()
	s.restoredAgain()
	require.Equal(t, [2]int{0, 0}, counted(), "it is counted from each restore on")
	s.exec(`UPDATE sequences SET recall_from = $1`, from)
	*told = nil
	require.NoError(t, page(commands.Running, again...))
	require.Equal(t, [2]int{2, 2}, counted(), "and what was lost before is told as lost after it, too")
	require.ElementsMatch(t, again[1:], lostOf(*told))
	s.exec(`UPDATE recalled SET conn = gen_random_uuid() WHERE task = $1`, again[1])
	require.NoError(t, page(commands.Running, again...))
	require.Equal(t, [2]int{3, 3}, counted(), "whatever another peer has named")
}

// lostOf are the tasks that are told as lost.
func lostOf(told []backlog.Moved) (tasks []string) {
	for _, m := range told {
		if m.Reason == commands.ExecutorDied {
			tasks = append(tasks, m.Task)
		}
	}
	return tasks
}

// The time of a restore is its own: neither who lets go on what waits, nor a restore before it, changes what a task is told of it.
func TestWhatIsLostIsToldOnceForARestore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		between func(s scene)
		times   int
	}{
		"whose freeze was lifted": {func(s scene) {
			require.NoError(s, s.b.Unfreeze(s.Context(), "connection", s.Conn.ID, "enough"))
		}, 1},
		"after which there was another": {func(s scene) { s.restoredAgain() }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, told := told(t)
			s.asked()
			s.restored()
			first := restoreOf(s)
			lost := []string{storetest.NewID(), storetest.NewID(), storetest.NewID()}
			named := func() {
				from := int64(s.Count(t, `SELECT recall_from FROM sequences`))
				r := commands.Recalled{From: from, Through: from + 2}
				for _, task := range lost {
					r.Tasks = append(r.Tasks, commands.TaskStanding{Task: task, Attempt: 1, State: commands.Running, Code: -1})
				}
				require.NoError(t, s.page(r))
			}
			named()

			c.between(s)

			for range 3 {
				named()
			}
			require.Len(t, lostOf(*told), c.times*len(lost))
			require.Subset(t, lostOf(*told), lost)
			require.Equal(t, len(lost), s.Count(t, `SELECT recalled_lost FROM sequences`))
			require.Equal(t, c.times > 1, restoreOf(s).After(first))
		})
	}
}

// restoreOf is when the database of s was restored, as pages of its peer are held against.
func restoreOf(s scene) (at time.Time) {
	require.NoError(s, s.DB.Tx(s.Context(), "looking", func(ctx context.Context, tx *store.Tx) (err error) {
		at, err = tx.RestoredAt(ctx, s.Conn.ID)
		return err
	}))
	require.False(s, at.IsZero())
	return at
}

// A peer recalls what it was told. What it was not told, it makes up.
func TestNothingIsRecalledThatWasNeverSaid(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	s := scene{t, side, boardOf(t, side, "main")}
	s.asked()
	s.restored()
	from, last := int64(s.Count(t, `SELECT recall_from FROM sequences`)), int64(s.Count(t, `SELECT last FROM sequences`))
	require.Less(t, from, last)

	err := s.page(commands.Recalled{From: from, Through: last + 1})

	require.Equal(t, commands.Validation, commands.CodeOf(err))
	require.EqualValues(t, from, s.Count(t, `SELECT recall_from FROM sequences`))
	require.NoError(t, s.page(commands.Recalled{From: from, Through: last}))
	require.EqualValues(t, last+1, s.Count(t, `SELECT recall_from FROM sequences`))
}
