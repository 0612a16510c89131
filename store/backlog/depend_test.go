package backlog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func TestDependenciesGateUntilAllAreDone(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a"}, backlog.TaskSpec{Key: "b", Title: "b"}, backlog.TaskSpec{Key: "c", Title: "c", DependsOn: []string{"a", "b", "a"}, Priority: 9})

	require.Equal(t, backlog.WaitingDeps, eligibility(t, b, "c"))
	require.Equal(t, []string{"a", "b"}, keys(claimCards(t, b, nil)))
	_, err := b.Complete(t.Context(), backlog.Act{Task: "a"})
	require.NoError(t, err)
	require.Empty(t, claimCards(t, b, nil))
	_, err = b.Complete(t.Context(), backlog.Act{Task: "b"})
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, keys(claimCards(t, b, nil)))
	c, err := b.Show(t.Context(), "c")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, c.DependsOn)
}

// A task names those that wait for it, and nobody else: who got on without it, who ended, and who ended it.
func TestWhatATaskBlocks(t *testing.T) {
	t.Parallel()
	b := board(t)
	specs := []backlog.TaskSpec{{Key: "gate", Title: "t"}, {Key: "late", Title: "t", DependsOn: []string{"gate"}}, {Title: "no key", DependsOn: []string{"gate"}},
		{Key: "ended", Title: "t", DependsOn: []string{"gate"}}, {Key: "ignores", Title: "t", DependsOn: []string{"gate"}, OnFailedDep: "ignore"}}
	for i := range backlog.MaxBlocks {
		specs = append(specs, backlog.TaskSpec{Key: fmt.Sprint("more-", i), Title: "t", DependsOn: []string{"gate"}})
	}
	made := create(t, b, specs...)
	_, err := b.Cancel(t.Context(), backlog.Act{Task: "ended", Reason: "test"})
	require.NoError(t, err)
	shown := func(ref string) backlog.Task {
		task, err := b.Show(t.Context(), ref)
		require.NoError(t, err)
		return task
	}

	gate := shown("gate")
	require.Equal(t, []string{"late", made[2].ID, "ignores", "more-0"}, gate.Blocks[:4])
	require.Len(t, gate.Blocks, backlog.MaxBlocks)
	require.Equal(t, backlog.MaxBlocks+3, gate.Dependents)
	require.Empty(t, shown("late").Blocks)
	_, err = b.Cancel(t.Context(), backlog.Act{Task: "gate", Reason: "test"})
	require.NoError(t, err)
	gate = shown("gate")
	require.NotContains(t, gate.Blocks, "ignores")
	require.Equal(t, backlog.MaxBlocks+2, gate.Dependents, "they wait until somebody decides")
	require.NoError(t, b.Unlink(t.Context(), "late", "gate"))
	require.NotContains(t, shown("gate").Blocks, "late")
}

func TestLinksInEitherOrder(t *testing.T) {
	t.Parallel()
	b := board(t)
	_, err := b.Create(t.Context(), backlog.TaskSpec{Key: "early", Title: "early", DependsOn: []string{"late"}})
	require.Equal(t, commands.NotFound, commands.CodeOf(err), "%v", err)
	_, err = b.Show(t.Context(), "early")
	require.Equal(t, commands.NotFound, commands.CodeOf(err), "and nothing of it is kept")
	create(t, b, backlog.TaskSpec{Key: "early", Title: "early"})
	create(t, b, backlog.TaskSpec{Key: "late", Title: "late"})

	require.NoError(t, b.Link(t.Context(), "early", "late"))
	require.NoError(t, b.Link(t.Context(), "early", "late"), "a second time is no error")
	require.Equal(t, []string{"late"}, keys(claimCards(t, b, nil)))
	require.NoError(t, b.Unlink(t.Context(), "early", "late"))
	require.Equal(t, commands.NotFound, commands.CodeOf(b.Unlink(t.Context(), "early", "late")))
	require.Equal(t, []string{"early"}, keys(claimCards(t, b, nil)))
	require.Equal(t, commands.Conflict, commands.CodeOf(b.Link(t.Context(), "early", "late")), "what runs has its dependencies behind it")
	_, err = b.Complete(t.Context(), backlog.Act{Task: "late"})
	require.NoError(t, err)
	create(t, b, backlog.TaskSpec{Key: "after", Title: "after", DependsOn: []string{"late"}})
	require.Equal(t, []string{"after"}, keys(claimCards(t, b, nil)), "a dependency that is done already gates nothing")
}

func TestCyclesAreSpelledOut(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a"})
	for i, key := range []string{"b", "c", "d"} {
		create(t, b, backlog.TaskSpec{Key: key, Title: key, DependsOn: []string{string(rune('a' + i))}})
	}

	err := b.Link(t.Context(), "a", "d")
	require.Equal(t, commands.Cycle, commands.CodeOf(err))
	require.ErrorContains(t, err, "a -> d -> c -> b -> a")
	err = b.Link(t.Context(), "a", "a")
	require.Equal(t, commands.Cycle, commands.CodeOf(err), "%v", err)
	require.Equal(t, []string{"a"}, keys(claimCards(t, b, nil)), "a refused link changes nothing")
}

// Two links that would close a circle together: one of them is refused.
func TestTwoLinksAtOnceCloseNoCircle(t *testing.T) {
	t.Parallel()
	b := board(t)
	for i := range 20 {
		x, y := fmt.Sprint("x", i), fmt.Sprint("y", i)
		create(t, b, backlog.TaskSpec{Key: x, Title: x}, backlog.TaskSpec{Key: y, Title: y})
		errs := make(chan error, 2)
		go func() { errs <- b.Link(t.Context(), x, y) }()
		go func() { errs <- b.Link(t.Context(), y, x) }()
		codes := map[commands.Code]int{}
		for range 2 {
			codes[commands.CodeOf(<-errs)]++
		}
		require.Equal(t, map[commands.Code]int{"": 1, commands.Cycle: 1}, codes)
	}
}

// A link and the end of what it points to, at once: whichever comes first, the
// task can be claimed in the end.
func TestALinkAndAnEndAtOnce(t *testing.T) {
	t.Parallel()
	b := board(t)
	for i := range 40 {
		dep, task := fmt.Sprint("dep", i), fmt.Sprint("task", i)
		create(t, b, backlog.TaskSpec{Key: dep, Title: dep, Lane: "deps"}, backlog.TaskSpec{Key: task, Title: task})
		errs := make(chan error, 2)
		go func() { errs <- b.Link(t.Context(), task, dep) }()
		go func() { errs <- second(b.Complete(t.Context(), backlog.Act{Task: dep})) }()
		require.NoError(t, <-errs)
		require.NoError(t, <-errs)
		require.Equal(t, backlog.EligibleReady, eligibility(t, b, task))
	}
	require.Len(t, claimCards(t, b, nil), 40)
}

func TestFailedDependencies(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "dep", Title: "dep"},
		backlog.TaskSpec{Key: "holds", Title: "h", DependsOn: []string{"dep"}},
		backlog.TaskSpec{Key: "ignores", Title: "i", DependsOn: []string{"dep"}, OnFailedDep: "ignore"},
		backlog.TaskSpec{Key: "cancels", Title: "c", DependsOn: []string{"dep"}, OnFailedDep: "cancel"},
		backlog.TaskSpec{Key: "after", Title: "a", DependsOn: []string{"cancels"}, OnFailedDep: "cancel"})

	failed, err := b.Fail(t.Context(), backlog.Act{Task: "dep", Reason: "broken"})
	require.NoError(t, err)
	require.Equal(t, commands.Failed, failed.State)
	require.Equal(t, []string{"ignores"}, keys(claimCards(t, b, nil)))
	for key, want := range map[string][2]string{"holds": {"queued", "dependency_failed"}, "cancels": {"cancelled", "dependency_failed"}, "after": {"cancelled", "dependency_failed"}} {
		task, err := b.Show(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, want, [2]string{string(task.State), string(task.Reason)}, key)
	}
	_, err = b.Create(t.Context(), backlog.TaskSpec{Title: "x", DependsOn: []string{"dep"}, OnFailedDep: "cancel"})
	require.Equal(t, commands.Conflict, commands.CodeOf(err), "%v", err)

	_, err = b.Retry(t.Context(), backlog.Act{Task: "dep", Reason: "mended"})
	require.NoError(t, err)
	again := claimCards(t, b, nil)
	require.Equal(t, []string{"dep"}, keys(again))
	require.Equal(t, "replay", again[0].Type)
	_, err = b.Complete(t.Context(), backlog.Act{Fence: &again[0].Fence})
	require.NoError(t, err)
	require.Equal(t, []string{"holds"}, keys(claimCards(t, b, nil)))
}

func TestFanInOfTenThousand(t *testing.T) {
	t.Parallel()
	b := board(t)
	const n = 10_000
	specs, deps := make([]backlog.TaskSpec, n), make([]string, n)
	for i := range specs {
		deps[i] = fmt.Sprint("part", i)
		specs[i] = backlog.TaskSpec{Key: deps[i], Title: "part"}
	}
	create(t, b, specs...)
	create(t, b, backlog.TaskSpec{Key: "all", Title: "all", DependsOn: deps, Priority: 100})

	for done := 0; done < n; {
		list := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit = 1000 })
		require.NotEmpty(t, list)
		fences := make([]backlog.Fence, len(list))
		for i, c := range list {
			require.NotEqual(t, "all", c.Key, "after %d of %d", done, n)
			fences[i] = c.Fence
		}
		held, err := b.CompleteMany(t.Context(), fences)
		require.NoError(t, err)
		require.NotContains(t, held, false)
		done += len(list)
	}
	require.Equal(t, []string{"all"}, keys(claimCards(t, b, nil)))
}

func TestNotBefore(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, "main")
	create(t, b, backlog.TaskSpec{Key: "later", Title: "later", NotBefore: time.Now().Add(time.Hour)}, backlog.TaskSpec{Key: "past", Title: "past", NotBefore: time.Now().Add(-time.Hour)})

	require.Equal(t, []string{"past"}, keys(claimCards(t, b, nil)))
	require.Equal(t, backlog.NotBefore, eligibility(t, b, "later"))
	require.NoError(t, s.Exec(`UPDATE due SET at = now()`))
	require.NoError(t, s.Exec(`UPDATE tasks SET not_before = now() WHERE key = 'later'`))
	swept, err := b.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), swept.Promoted)
	require.Equal(t, []string{"later"}, keys(claimCards(t, b, nil)))
}

// Of many tasks that one depends on twenty are named, and how many more there are.
func TestHowManyMoreATaskDependsOn(t *testing.T) {
	t.Parallel()
	b := board(t)
	var on []string
	for n := range 22 {
		key := fmt.Sprint("on-", n)
		create(t, b, backlog.TaskSpec{Key: key, Title: key})
		on = append(on, key)
	}
	for n, more := range map[int]string{20: "", 21: "and on 1 more", 22: "and on 2 more"} {
		key := fmt.Sprint("waits-", n)
		create(t, b, backlog.TaskSpec{Key: key, Title: key, DependsOn: on[:n]})

		w, err := b.Why(t.Context(), key)

		require.NoError(t, err)
		var said []string
		for _, r := range w.Reasons {
			if r.Code == commands.CauseDependency {
				said = append(said, r.Text)
			}
		}
		require.Greater(t, len(said), 19)
		require.Equal(t, more, strings.Join(said[20:], "; "))
	}
}
