package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// traffic is a hub with orders that are answered, confirmed, killed, compared
// and ended at the same moment.
type traffic struct {
	*storetest.Pair
	tasks   []string
	answers [][]byte // of the spoke: receipts and results
}

var passers = map[string]func(*traffic, context.Context, *testing.T, *rand.Rand) error{
	"answers": func(w *traffic, ctx context.Context, t *testing.T, r *rand.Rand) error {
		envelopes := slices.Clone(w.answers)
		r.Shuffle(len(envelopes), func(i, j int) { envelopes[i], envelopes[j] = envelopes[j], envelopes[i] })
		_, err := w.Hub.DB.TakeIn(ctx, w.Hub.Conn.ID, 20, w.Hub.Read(t, envelopes[:12]...), store.MoveMirrors)
		return err
	},
	"confirmations": func(w *traffic, ctx context.Context, _ *testing.T, r *rand.Rand) error {
		last, err := w.Hub.DB.LastNumbers(ctx)
		if err != nil {
			return err
		}
		return w.Hub.DB.Confirm(ctx, w.Hub.Conn.ID, commands.Numbers{Through: max(1, last[w.Hub.Conn.ID]-r.Int64N(12))})
	},
	"comparisons": func(w *traffic, ctx context.Context, _ *testing.T, _ *rand.Rand) error {
		theirs, err := w.Spoke.DB.Numbering(ctx, w.Spoke.Conn.ID, true, nil)
		if err != nil {
			return err
		}
		_, err = w.Hub.DB.Compare(ctx, w.Hub.Conn.ID, theirs, 0)
		return err
	},
	"orders": func(w *traffic, ctx context.Context, _ *testing.T, r *rand.Rand) error {
		list := []store.SpawnOrder{}
		for range 3 {
			list = append(list, store.SpawnOrder{Conn: w.Hub.Conn.ID, Life: time.Hour, Actor: "test", IdempotencyKey: fmt.Sprint("k", r.IntN(1e6)),
				Spawn: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"true"}}})
		}
		_, err := w.Hub.DB.OrderSpawns(ctx, list)
		return err
	},
	"kills": func(w *traffic, ctx context.Context, _ *testing.T, r *rand.Rand) error {
		_, err := w.Hub.DB.OrderKill(ctx, commands.Kill{Task: w.tasks[r.IntN(len(w.tasks))], Reason: "enough"}, time.Hour, "test")
		return err
	},
	"the sweep": func(w *traffic, ctx context.Context, _ *testing.T, r *rand.Rand) error {
		err := w.Hub.Exec(`UPDATE mirrors SET expires_at = '2020-01-01' WHERE task = $1 AND ended_at IS NULL`, w.tasks[r.IntN(len(w.tasks))])
		if err == nil {
			_, err = w.Hub.DB.EndUnanswered(ctx)
		}
		return err
	},
	"the end of what was ordered": func(w *traffic, ctx context.Context, _ *testing.T, r *rand.Rand) error {
		return w.Hub.DB.Tx(ctx, "ending mirrors", func(ctx context.Context, tx *store.Tx) error {
			if r.IntN(4) > 0 {
				return nil
			}
			return store.EndMirrors(ctx, tx, w.Hub.Conn.ID)
		})
	},
	"a suspension": func(w *traffic, ctx context.Context, _ *testing.T, _ *rand.Rand) error {
		for _, to := range []store.ConnState{store.Suspended, store.Active} {
			if _, err := w.Hub.DB.SetConnectionState(ctx, w.Hub.Conn.ID, to, "", "test", nil); err != nil {
				return err
			}
		}
		return nil
	},
	"pruning": func(w *traffic, ctx context.Context, _ *testing.T, _ *rand.Rand) error {
		_, err := w.Hub.DB.Prune(ctx, 0, time.Second)
		return err
	},
}

// Messages of one connection come, go, are confirmed and compared at the same
// moment: each waits for the others in one order, so nobody is given up by the
// server.
func TestNoMessageWaitsInACircle(t *testing.T) {
	t.Parallel()
	w := &traffic{Pair: storetest.NewPair(t)}
	watcher, err := pgx.Connect(t.Context(), w.Hub.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = watcher.Close(context.Background()) })

	for round := range 40 {
		w.prepare(t)
		w.pass(t, uint64(round))
	}

	w.Hub.DB.Close()
	require.Eventually(t, func() bool {
		var n int
		err := watcher.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()`).Scan(&n)
		return err == nil && n == 1
	}, 30*time.Second, 10*time.Millisecond, "the sessions end, and have told what they counted")
	var deadlocks int
	require.NoError(t, watcher.QueryRow(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&deadlocks))
	require.Zero(t, deadlocks)
}

// prepare gives orders, and lets the spoke accept them and end them.
func (w *traffic) prepare(t *testing.T) {
	w.tasks = nil
	for range 12 {
		w.tasks = append(w.tasks, w.Order(t, nil))
	}
	asked := w.Spoke.Read(t, w.Hub.Due(t)...)
	_, err := w.Spoke.DB.TakeIn(t.Context(), w.Spoke.Conn.ID, 20, asked, func(_ context.Context, tx *store.Tx, _ store.Standing, fresh []*store.Incoming) error {
		for _, m := range fresh {
			if _, ok := m.Body.(*commands.Spawn); ok {
				m.Answer(tx, &commands.Accepted{Task: m.Body.TaskID(), State: commands.Queued})
				m.Answer(tx, &commands.Result{Task: m.Body.TaskID(), State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded})
			}
		}
		return nil
	})
	require.NoError(t, err)
	w.answers = w.Spoke.Due(t)
	require.GreaterOrEqual(t, len(w.answers), 12)
}

func (w *traffic) pass(t *testing.T, seed uint64) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards wrong
	var wrong []error
	start := make(chan struct{})
	for i, name := range slices.Sorted(maps.Keys(passers)) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			<-start
			for range 4 {
				if err := passers[name](w, t.Context(), t, r); err != nil && commands.CodeOf(err) == commands.Internal {
					mu.Lock()
					wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
					mu.Unlock()
				}
			}
		})
	}
	close(start)
	all.Wait()
	require.NoError(t, errors.Join(wrong...))
}
