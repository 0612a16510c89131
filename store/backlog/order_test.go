package backlog_test

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

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// encounter is tasks that everybody lays hands on at the same moment: some that
// a connection asked for, some cards with dependencies between them.
type encounter struct {
	*side
	b      *backlog.Workspace
	conn   string
	cards  []string // ids
	agents []string // ids
	fences []backlog.Fence
	mu     sync.Mutex // guards wrong
	wrong  []error
}

// everybody is what happens to tasks. Each goes through them in an order of its
// own: who locks them so waits for somebody who does it the other way round.
var everybody = map[string]func(*encounter, context.Context, *rand.Rand) error{
	"the sweep": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		err := e.Exec(`UPDATE leases SET (until, sweep_at) = (clock_timestamp() - interval '1 second', '-infinity') WHERE task IN
			(SELECT l.task FROM tasks t JOIN leases l ON l.task = t.id WHERE t.id = ANY ($1) FOR UPDATE SKIP LOCKED)`, some(r, slices.Concat(e.cards, e.agents), 6))
		if err != nil {
			return err
		}
		_, err = e.backlog.Sweep(ctx, time.Second)
		return err
	},
	"a claim of many": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		_, err := e.b.Claim(ctx, backlog.ClaimTerms{Owner: "w", Limit: 5, Lease: time.Minute})
		return err
	},
	"a claim of one": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		_, err := e.b.Claim(ctx, backlog.ClaimTerms{Owner: "w", Limit: 1, Lease: time.Minute})
		return err
	},
	"completions": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		_, err := e.b.CompleteMany(ctx, some(r, e.fences, 6))
		return err
	},
	"reports of the spoke": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		var list []backlog.Progress
		for _, f := range some(r, e.fences, 6) {
			if r.IntN(2) == 0 && slices.Contains(e.agents, f.Task) {
				list = append(list, backlog.Progress{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b"}})
			} else {
				list = append(list, backlog.Progress{End: &backlog.End{Fence: f, Outcome: commands.Outcome([]string{"failed", "killed", "timed_out", "interrupted"}[r.IntN(4)])}})
			}
		}
		_, err := e.backlog.Record(ctx, list)
		return err
	},
	"renewals": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		_, err := e.backlog.Renew(ctx, some(r, e.fences, 10), time.Minute)
		return err
	},
	"usage": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		return e.b.Report(ctx, some(r, e.fences, 1)[0], fmt.Sprint(r.IntN(9)), tokens(3))
	},
	"an end with usage": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		_, err := e.b.Fail(ctx, backlog.Act{Task: some(r, e.cards, 1)[0], Usage: tokens(4)})
		return err
	},
	"kills that come in": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		return e.DB.Tx(ctx, "taking in kills", func(ctx context.Context, tx *store.Tx) error {
			var list []backlog.Kill
			for _, id := range some(r, e.agents, 4) {
				list = append(list, backlog.Kill{Conn: e.conn, Asked: message(), Task: id, Reason: "enough", Grace: time.Second, Expires: time.Now().Add(time.Hour), Actor: "hub"})
			}
			var tasks []string
			for _, k := range list {
				tasks = append(tasks, k.Task)
			}
			if err := e.backlog.HoldKills(ctx, tx, e.conn, tasks); err != nil {
				return err
			}
			for _, k := range list {
				state, err := e.backlog.NoteKill(ctx, tx, k)
				if err == nil && state != "" {
					_, err = e.backlog.Kill(ctx, tx, k, state)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	},
	"a kill by the host": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		_, err := e.backlog.KillHere(ctx, backlog.HostKill{Kill: commands.Kill{Task: some(r, e.agents, 1)[0], Reason: "enough", GraceMS: 1000}, ID: storetest.NewID(), Actor: "root"})
		return err
	},
	"requests that come in": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		return e.DB.Tx(ctx, "taking in requests", func(ctx context.Context, tx *store.Tx) error {
			_, err := e.backlog.Request(ctx, tx, e.requests(some(r, e.agents, 4)))
			return err
		})
	},
	"a revocation": func(e *encounter, ctx context.Context, r *rand.Rand) error {
		if r.IntN(4) > 0 {
			return nil
		}
		return e.DB.Tx(ctx, "ending the work of a connection", func(ctx context.Context, tx *store.Tx) error {
			return e.backlog.RevokeWork(ctx, tx, e.conn, true)
		})
	},
	"an operator": func(e *encounter, ctx context.Context, r *rand.Rand) (err error) {
		a := backlog.Act{Task: some(r, e.cards, 1)[0]}
		switch r.IntN(5) {
		case 0:
			_, err = e.b.Cancel(ctx, a)
		case 1:
			_, err = e.b.Block(ctx, a)
		case 2:
			_, err = e.b.Unblock(ctx, a)
		case 3:
			err = e.b.Link(ctx, a.Task, some(r, e.cards, 1)[0])
		case 4:
			_, err = e.b.Retry(ctx, a)
		}
		return err
	},
	"pruning": func(e *encounter, ctx context.Context, _ *rand.Rand) error {
		_, err := e.DB.Prune(ctx, 0, time.Second)
		return err
	},
}

// some returns up to n of list in no order.
func some[T any](r *rand.Rand, list []T, n int) []T {
	list = slices.Clone(list)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(n, len(list))]
}

func (e *encounter) requests(ids []string) (list []backlog.Request) {
	for _, id := range ids {
		list = append(list, backlog.Request{Conn: e.conn, Asked: backlog.Asked{Command: id, Digest: message().Digest}, Expires: time.Now().Add(time.Hour),
			Spawn: &commands.Spawn{Task: id, Runtime: commands.RuntimeNoop, MaxRetries: 1}})
	}
	return list
}

// tell queues a message for each fact, as a spoke does: the numbers of the
// connection are locked.
func tell(_ context.Context, tx *store.Tx, list []backlog.Moved) error {
	for _, m := range list {
		if m.State.Terminal() {
			tx.Send(store.Draft{Conn: m.Conn, Body: m.Result(), Re: &signing.Ref{ID: m.Asked.Command, SHA256: m.Asked.Digest}})
		}
	}
	return nil
}

// All that may happen to tasks happens to the same ones at the same moment: each
// waits for the others in one order, so nobody is given up by the server.
func TestNobodyWaitsInACircle(t *testing.T) {
	t.Parallel()
	meetings := scale.Larger(t, "SPAWNMESH_MEETINGS", 8, 40)
	s := storetest.OpenSide(t, storetest.URL(t), 1, 2, 20)
	s.Meet(t, store.Obeys)
	e := &encounter{side: &side{s, backlog.Open(s.DB, tell)}, conn: s.Conn.ID}
	e.b = boardOf(t, e.side, backlog.MainWorkspace)
	budget(t, e.b, backlog.Budget{Name: "all", Scope: "workspace", Dimension: "tokens", Hard: 100_000_000 * backlog.Unit}) // more than the longest run spends
	watcher := owner(t, s.URL)
	seed := scale.Seed(t, "SPAWNMESH_MODEL_SEED")

	for round := range meetings {
		e.prepare(t)
		e.meet(t, seed+uint64(round))
	}

	require.NoError(t, errors.Join(e.wrong...))
	s.DB.Close()
	require.Zero(t, storetest.Deadlocks(t, watcher), "statements that the server gave up because they waited in a circle")
	requireInvariants(t, s.URL)
}

// prepare makes tasks, and claims about half of them.
func (e *encounter) prepare(t *testing.T) {
	e.cards, e.agents, e.fences = nil, nil, nil
	var specs []backlog.TaskSpec
	for range 16 {
		specs = append(specs, backlog.TaskSpec{Title: "t", MaxRetries: 1, OnFailedDep: []string{"hold", "cancel", "ignore"}[len(specs)%3], Estimate: tokens(5)})
	}
	for _, c := range create(t, e.b, specs...) {
		e.cards = append(e.cards, c.ID)
	}
	for i := 8; i < 16; i++ {
		for j := range 2 {
			require.NoError(t, e.b.Link(t.Context(), e.cards[i], e.cards[(i+j)%8]))
		}
	}
	for range 12 {
		e.agents = append(e.agents, storetest.NewID())
	}
	require.NoError(t, e.DB.Tx(t.Context(), "asking", func(ctx context.Context, tx *store.Tx) error {
		for _, id := range e.agents {
			tx.Audit(store.AuditRow{Actor: "hub", Action: "task.queued", Object: id, Conn: e.conn})
		}
		_, err := e.backlog.Request(ctx, tx, e.requests(e.agents))
		return err
	}))
	agents, err := e.b.Claim(t.Context(), backlog.ClaimTerms{Owner: string(e.DB.Self()), Limit: 8, Lease: time.Minute, Kind: backlog.AgentKind})
	require.NoError(t, err)
	cards, err := e.b.Claim(t.Context(), backlog.ClaimTerms{Owner: "w", Limit: 5, Lease: time.Minute})
	require.NoError(t, err)
	for _, c := range slices.Concat(agents, cards) {
		e.fences = append(e.fences, c.Fence)
	}
	require.NotEmpty(t, e.fences)
}

func (e *encounter) meet(t *testing.T, seed uint64) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i, name := range slices.Sorted(maps.Keys(everybody)) {
		act, r := everybody[name], rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			<-start
			for range 4 {
				err := act(e, t.Context(), r)
				if code := commands.CodeOf(err); err != nil && !slices.Contains(refusals, code) {
					e.mu.Lock()
					e.wrong = append(e.wrong, fmt.Errorf("%s: %w", name, err))
					e.mu.Unlock()
				}
			}
		})
	}
	close(start)
	all.Wait()
}
