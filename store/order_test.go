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
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// traffic is a hub with two spokes and orders that are answered, refused, confirmed,
// killed, compared and ended at the same moment.
type traffic struct {
	roads []*road
	tasks []string
}

// A road is the traffic of one connection.
type road struct {
	*storetest.Pair
	answers [][]byte // of the spoke: receipts, results and refusals
}

// both are the spokes that may get what the other one refuses.
func (w *traffic) both(*commands.Spawn, store.Refusal) (list []store.Candidate) {
	for _, o := range w.roads {
		list = append(list, store.Candidate{Conn: o.Hub.Conn.ID, Slots: 4, Age: time.Second})
	}
	return list
}

var passers = map[string]func(*traffic, *road, context.Context, *testing.T, *rand.Rand) error{
	"answers": func(w *traffic, o *road, ctx context.Context, t *testing.T, r *rand.Rand) error {
		envelopes := slices.Clone(o.answers)
		r.Shuffle(len(envelopes), func(i, j int) { envelopes[i], envelopes[j] = envelopes[j], envelopes[i] })
		_, err := o.Hub.DB.TakeIn(ctx, o.Hub.Conn.ID, 20, o.Hub.Read(t, envelopes[:12]...), store.MoveMirrors(w.both))
		return err
	},
	"confirmations": func(_ *traffic, o *road, ctx context.Context, _ *testing.T, r *rand.Rand) error {
		last, err := o.Hub.DB.LastNumbers(ctx)
		if err != nil {
			return err
		}
		return o.Hub.DB.Confirm(ctx, o.Hub.Peer, commands.Numbers{Through: max(1, last[o.Hub.Conn.ID]-r.Int64N(12))})
	},
	"comparisons": func(_ *traffic, o *road, ctx context.Context, _ *testing.T, _ *rand.Rand) error {
		theirs, err := o.Spoke.DB.Numbering(ctx, o.Spoke.Conn.ID, true, nil)
		if err != nil {
			return err
		}
		_, err = o.Hub.DB.Compare(ctx, o.Hub.Peer, theirs, 0, 20)
		return err
	},
	"orders": func(_ *traffic, o *road, ctx context.Context, _ *testing.T, r *rand.Rand) error {
		list := []store.SpawnOrder{}
		for range 3 {
			list = append(list, store.SpawnOrder{Conn: o.Hub.Conn.ID, Life: time.Hour, Actor: "test", IdempotencyKey: fmt.Sprint("k", r.IntN(1e6)),
				Spawn: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"true"}}})
		}
		_, err := o.Hub.DB.OrderSpawns(ctx, list)
		return err
	},
	"kills": func(w *traffic, o *road, ctx context.Context, _ *testing.T, r *rand.Rand) error {
		_, err := o.Hub.DB.OrderKill(ctx, commands.Kill{Task: w.tasks[r.IntN(len(w.tasks))], Reason: "enough"}, time.Hour, "test")
		return err
	},
	"the sweep": func(w *traffic, o *road, ctx context.Context, _ *testing.T, r *rand.Rand) error {
		err := o.Hub.Exec(`UPDATE mirrors SET expires_at = '2020-01-01' WHERE task = $1 AND ended_at IS NULL`, w.tasks[r.IntN(len(w.tasks))])
		if err == nil {
			_, err = o.Hub.DB.EndUnanswered(ctx)
		}
		return err
	},
	"the end of what was ordered": func(_ *traffic, o *road, ctx context.Context, _ *testing.T, r *rand.Rand) error {
		return o.Hub.DB.Tx(ctx, "ending mirrors", func(ctx context.Context, tx *store.Tx) error {
			if r.IntN(4) > 0 {
				return nil
			}
			return store.EndMirrors(ctx, tx, o.Hub.Conn.ID)
		})
	},
	"heartbeats": func(w *traffic, o *road, ctx context.Context, _ *testing.T, r *rand.Rand) error {
		beat := commands.Heartbeat{IntervalMS: 1000}
		for _, i := range r.Perm(len(w.tasks)) {
			beat.Agents = append(beat.Agents, commands.AgentBeat{Task: w.tasks[i], State: commands.Running, Progress: &commands.AgentProgress{Progress: commands.Progress{Step: "tests"}, At: r.Int64N(1e6)}})
		}
		_, err := o.Hub.DB.SaveBeats(ctx, []store.Beat{{Conn: o.Hub.Conn.ID, Body: beat}})
		return err
	},
	"a suspension": func(_ *traffic, o *road, ctx context.Context, _ *testing.T, _ *rand.Rand) error {
		for _, to := range []store.ConnState{store.Suspended, store.Active} {
			if _, err := o.Hub.DB.SetConnectionState(ctx, o.Hub.Conn.ID, to, "", "test", nil); err != nil {
				return err
			}
		}
		return nil
	},
	"pruning": func(_ *traffic, o *road, ctx context.Context, _ *testing.T, _ *rand.Rand) error {
		_, err := o.Hub.DB.Prune(ctx, 0, time.Second)
		return err
	},
}

// Messages of two connections come, go, are confirmed and compared at the same
// moment, and what one spoke refuses is ordered of the other: each waits for the
// others in one order, so nobody is given up by the server.
func TestNoMessageWaitsInACircle(t *testing.T) {
	t.Parallel()
	attic := storetest.NewPair(t)
	w := &traffic{roads: []*road{{Pair: attic}, {Pair: attic.Another(t)}}}
	watcher, err := pgx.Connect(t.Context(), pgtest.Admin(attic.Hub.URL))
	require.NoError(t, err)
	t.Cleanup(func() { _ = watcher.Close(context.Background()) })

	for round := range scale.Larger(t, "SPAWNMESH_MEETINGS", 8, 40) / 2 {
		w.prepare(t)
		w.pass(t, uint64(round))
	}

	require.Positive(t, attic.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.refused'`), "orders that went to the other spoke")
	attic.Hub.DB.Close()
	require.Zero(t, storetest.Deadlocks(t, watcher))
}

// prepare gives orders, and lets the spokes accept and end what was meant for them,
// and refuse what the hub placed.
func (w *traffic) prepare(t *testing.T) {
	w.tasks = nil
	var placed []string
	for range 6 {
		for _, o := range w.roads {
			w.tasks = append(w.tasks, o.Order(t, nil))
			placed = append(placed, o.Order(t, func(s *store.SpawnOrder) { s.Conn, s.Anywhere, s.Among = "", true, w.both(nil, store.Refusal{}) }))
		}
	}
	w.tasks = append(w.tasks, placed...)
	for _, o := range w.roads {
		o.answer(t, w.tasks[:12])
	}
}

// answer lets the spoke take in what it was ordered: it runs what is in mine.
func (o *road) answer(t *testing.T, mine []string) {
	asked := o.Spoke.Read(t, o.Hub.Due(t)...)
	_, err := o.Spoke.DB.TakeIn(t.Context(), o.Spoke.Conn.ID, 20, asked, func(_ context.Context, tx *store.Tx, _ store.Standing, fresh []*store.Incoming) error {
		for _, m := range fresh {
			if _, ok := m.Body.(*commands.Spawn); !ok {
				continue
			}
			if !slices.Contains(mine, m.Body.TaskID()) {
				m.Answer(tx, &commands.RefusedBody{Task: m.Body.TaskID(), Code: commands.Policy, Why: "not here", Policy: "v1"})
				continue
			}
			m.Answer(tx, &commands.Accepted{Task: m.Body.TaskID(), State: commands.Queued})
			m.Answer(tx, &commands.Result{Task: m.Body.TaskID(), State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded})
		}
		return nil
	})
	require.NoError(t, err)
	o.answers = o.Spoke.Due(t)
	require.GreaterOrEqual(t, len(o.answers), 12)
}

func (w *traffic) pass(t *testing.T, seed uint64) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards wrong
	var wrong []error
	start := make(chan struct{})
	for i, name := range slices.Sorted(maps.Keys(passers)) {
		for n, o := range w.roads {
			r := rand.New(rand.NewPCG(seed, uint64(2*i+n)))
			all.Go(func() {
				<-start
				for range 4 {
					if err := passers[name](w, o, t.Context(), t, r); err != nil && commands.CodeOf(err) == commands.Internal {
						mu.Lock()
						wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
						mu.Unlock()
					}
				}
			})
		}
	}
	close(start)
	all.Wait()
	require.NoError(t, errors.Join(wrong...))
}

// An order that comes twice at the same moment is one order, and keeps nobody else's out.
func TestTheSameOrderTwiceAtOnce(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	here := scene{t, p.Hub}
	twice, other, same := here.spawn(), here.spawn(), here.spawn()
	same.Spawn.Task, same.Spawn.Title = twice.Spawn.Task, "another one"

	got, err := p.Hub.DB.OrderSpawns(t.Context(), []store.SpawnOrder{twice, other, twice, same})

	require.NoError(t, err)
	for _, o := range got[:3] {
		require.Nil(t, o.Err)
	}
	require.Equal(t, []bool{false, false, true}, []bool{got[0].Existing, got[1].Existing, got[2].Existing})
	require.Equal(t, twice.Spawn.Task, got[2].Task)
	require.Equal(t, commands.Idempotency, commands.CodeOf(got[3].Err))
	require.Equal(t, 2, p.Hub.Count(t, `SELECT count(*) FROM mirrors`))
}
