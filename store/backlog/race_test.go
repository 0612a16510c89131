package backlog_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// crowded is a backlog with a connection for each of n claimers, so that they
// meet in the database and not in front of it.
func crowded(t *testing.T, n int) (*side, *backlog.Workspace) {
	t.Helper()
	s := openSide(t, storetest.URL(t), n)
	return s, boardOf(t, s, backlog.MainWorkspace)
}

// atOnce starts n goroutines from one signal and waits for them.
func atOnce(n int, do func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	wg.Wait()
}

// N claimers want one task at the same moment, half of them by its name: exactly
// one gets it, every time. make chaos runs 10,000 rounds.
func TestRaceForOneTask(t *testing.T) {
	t.Parallel()
	rounds := scale.Larger(t, "SPAWNMESH_RACE_ROUNDS", 12, 50)
	for n, share := range map[int]int{2: rounds * 6 / 10, 8: rounds * 3 / 10, 64: rounds / 10} {
		t.Run(fmt.Sprint(n, " claimers"), func(t *testing.T) {
			t.Parallel()
			s, b := crowded(t, n)
			if n == 8 { // claims under a limit go another way
				require.NoError(t, b.SetBudget(t.Context(), ample))
			}
			r := &race{b: b, n: n}
			for round := range share {
				require.NoError(t, r.run(t.Context(), round), "round %d of %d", round, share)
			}
			requireInvariants(t, s.URL)
			require.Equal(t, share, s.Count(t, `SELECT count(*) FROM attempts`))
		})
	}
}

type race struct {
	b    *backlog.Workspace
	n    int
	task string
}

// run makes a task, or takes the one of the round before again, and lets
// everybody claim it.
func (r *race) run(ctx context.Context, round int) error {
	if r.task == "" {
		r.task = fmt.Sprint("prize ", round)
		if _, err := r.b.Create(ctx, backlog.TaskSpec{Key: r.task, Title: r.task}); err != nil {
			return err
		}
	}
	var won []backlog.Claimed
	var mu sync.Mutex // guards won and wrong
	var wrong error
	atOnce(r.n, func(i int) {
		terms := backlog.ClaimTerms{Owner: fmt.Sprint("w", i), Limit: 1 + i%3}
		if i%2 == 0 {
			terms.Task = r.task
		}
		list, err := r.b.Claim(ctx, terms)
		mu.Lock()
		defer mu.Unlock()
		won = append(won, list...)
		if err != nil && (terms.Task == "" || commands.CodeOf(err) != commands.Conflict) {
			wrong = err
		}
	})
	if wrong != nil || len(won) != 1 {
		return fmt.Errorf("%d winners: %v, %w", len(won), won, wrong)
	}
	act := r.b.Release
	if round%8 == 7 {
		act, r.task = r.b.Complete, ""
	}
	_, err := act(ctx, backlog.Act{Fence: &won[0].Fence})
	return err
}

// 64 claimers against a budget of k units: exactly k reservations, at no moment
// more, and what is given back wakes exactly as many.
func TestRaceForABudget(t *testing.T) {
	t.Parallel()
	for _, k := range []int{1, 7, scale.Larger(t, "SPAWNMESH_RACE_UNITS", 20, 80)} {
		t.Run(fmt.Sprint(k, " units"), func(t *testing.T) {
			t.Parallel()
			s, b := crowded(t, 64)
			require.NoError(t, b.SetBudget(t.Context(), backlog.Budget{Name: "all", Scope: "workspace", Dimension: "units", Hard: backlog.Amount(k) * backlog.Unit}))
			fill(t, b, k+64, backlog.TaskSpec{Estimate: map[string]backlog.Amount{"units": backlog.Unit}})
			stop := s.poll(t, `SELECT count(*) FROM funds WHERE used + reserved > hard OR (SELECT count(*) FROM leases) * 1000000 > hard`)

			held := claimAll(t, b)
			require.Len(t, held, k)
			require.Equal(t, k, s.Count(t, `SELECT (reserved / 1000000)::int FROM funds`))

			back := (k + 1) / 2
			for _, f := range held[:back] {
				_, err := b.Release(t.Context(), backlog.Act{Fence: &f})
				require.NoError(t, err)
			}
			require.Len(t, claimAll(t, b), back)
			require.Equal(t, k, s.Count(t, `SELECT (reserved / 1000000)::int FROM funds`))
			stop()
			requireInvariants(t, s.URL)
		})
	}
}

func fill(t *testing.T, b *backlog.Workspace, n int, like backlog.TaskSpec) {
	t.Helper()
	specs := make([]backlog.TaskSpec, n)
	for i := range specs {
		specs[i] = like
		specs[i].Title = fmt.Sprint("task ", i)
	}
	create(t, b, specs...)
}

// claimAll lets 64 claimers claim in small batches until each was left with
// nothing twice: one that was overtaken once may find something after all.
func claimAll(t *testing.T, b *backlog.Workspace) (held []backlog.Fence) {
	t.Helper()
	var mu sync.Mutex // guards held and wrong
	var wrong error
	atOnce(64, func(i int) {
		for empty := 0; empty < 2; {
			list, err := b.Claim(t.Context(), backlog.ClaimTerms{Owner: fmt.Sprint("w", i), Limit: 1 + i%3})
			mu.Lock()
			for _, c := range list {
				held = append(held, c.Fence)
			}
			if err != nil {
				wrong = err
			}
			mu.Unlock()
			if len(list) == 0 {
				empty++
			}
		}
	})
	require.NoError(t, wrong)
	return held
}

// poll asks again and again for what must never be; the returned function ends
// it and says whether it was.
func (s *side) poll(t *testing.T, wrong string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var asked, seen int
	wg.Go(func() {
		for ctx.Err() == nil {
			n, err := s.TryCount(context.Background(), wrong)
			if asked++; err != nil || n > 0 {
				seen++
			}
		}
	})
	t.Cleanup(cancel)
	return func() {
		t.Helper()
		cancel()
		wg.Wait()
		require.NotZero(t, asked)
		require.Zero(t, seen, "of %d looks", asked)
	}
}

// 64 workers on a quota of k at once: never more than k hold a task, and all the
// work gets done.
func TestRaceForAQuota(t *testing.T) {
	t.Parallel()
	for _, k := range []int{1, 7} {
		t.Run(fmt.Sprint(k, " at once"), func(t *testing.T) {
			t.Parallel()
			s, b := crowded(t, 64)
			require.NoError(t, b.SetQuota(t.Context(), backlog.Quota{Name: "few", Scope: "workspace", Concurrent: &k}))
			tasks := scale.Larger(t, "SPAWNMESH_RACE_UNITS", 20, 80) / 2
			fill(t, b, tasks, backlog.TaskSpec{})
			stop := s.poll(t, fmt.Sprintf(`SELECT greatest(0, count(*) - %d) FROM leases`, k))
			var now, most, done, wrong atomic.Int64
			atOnce(64, func(i int) {
				for done.Load() < int64(tasks) && wrong.Load() == 0 {
					list, err := b.Claim(t.Context(), backlog.ClaimTerms{Owner: fmt.Sprint("w", i), Limit: 1 + i%2})
					if err != nil {
						wrong.Add(1)
					}
					for most.Store(max(most.Load(), now.Add(int64(len(list))))); len(list) > 0; list = list[1:] {
						now.Add(-1) // before the place is free, so that the count is never too high
						if _, err := b.Complete(t.Context(), backlog.Act{Fence: &list[0].Fence}); err != nil {
							wrong.Add(1)
						}
						done.Add(1)
					}
				}
			})
			stop()
			require.Zero(t, wrong.Load())
			require.Equal(t, int64(tasks), done.Load())
			require.LessOrEqual(t, most.Load(), int64(k))
			requireInvariants(t, s.URL)
		})
	}
}

// Of two who let a task go on, one may meet what came behind the other: the task keeps its place.
func TestATaskThatIsBlockedMeanwhileKeepsItsPlace(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a"})
	paused, err := b.Pause(t.Context(), backlog.Act{Task: "a"})
	require.NoError(t, err)
	other := begin(t, s.URL)
	_, err = other.Exec(t.Context(), `SELECT FROM tasks WHERE id = $1 FOR NO KEY UPDATE`, paused.ID)
	require.NoError(t, err)
	resumed := make(chan error, 1)
	go func() {
		_, err := b.Resume(context.Background(), backlog.Act{Task: "a"})
		resumed <- err
	}()
	watcher := owner(t, s.URL)
	eventually(t, "it waits for the task", func() (waits bool) {
		require.NoError(t, watcher.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits))
		return waits
	})
	for _, state := range []string{"queued", "blocked"} { // what resuming and blocking it leave
		_, err = other.Exec(t.Context(), `UPDATE tasks SET state = $2::text::task_state WHERE id = $1`, paused.ID, state)
		require.NoError(t, err)
	}
	_, err = other.Exec(t.Context(), `UPDATE parked SET why = 'blocked' WHERE task = $1`, paused.ID)
	require.NoError(t, err)
	require.NoError(t, other.Commit(t.Context()))

	err = <-resumed

	require.Equal(t, commands.Conflict, commands.CodeOf(err), "%v", err)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM parked WHERE task = $1`, paused.ID))
}
