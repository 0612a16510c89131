package spoke

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A hub may recall more than one page of attempts to run, of which nothing is here. What waits for it holds no order; when it has said all, few
// ends are recorded at once.
func TestWhatWaitsForItsHubHoldsNoOrder(t *testing.T) {
	t.Parallel()
	const large = 10_000
	p := storetest.NewPair(t)
	s := restoredSpoke(t, p)
	tasks := orders(t, p, s.backlog, backlog.OpenPage+50, strings.Repeat("x", large))
	require.NoError(t, p.Spoke.Exec(`UPDATE sequences SET recall_from = 1`))
	recallRunning(t, p, s.backlog, tasks[:10])
	require.NoError(t, s.reconcile(t.Context(), t.Context()))
	require.Len(t, s.live.list(), 10)
	recallRunning(t, p, s.backlog, tasks[10:])
	require.True(t, s.backlog.Opened())

	require.NoError(t, s.reconcile(t.Context(), t.Context()))

	require.False(t, s.backlog.Opened())
	require.Eventually(t, func() bool { return len(s.live.awaiting()) == len(tasks) }, 5*time.Minute, 10*time.Millisecond)
	require.Zero(t, s.live.count())
	held := 0
	for _, r := range s.live.list() {
		text, err := json.Marshal(&r.spec)
		require.NoError(t, err)
		held += len(text)
	}
	require.Less(t, held, len(tasks)*large/20)
	r := s.live.get(tasks[0])
	require.Equal(t, []any{commands.RuntimeExec, time.Minute, time.Second, true}, []any{r.spec.Runtime, r.spec.Timeout(), r.estimate, r.spec.Trace != ""})
	order, err := s.orderOf(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, order.Argv[1], large)

	require.LessOrEqual(t, cap(s.live.ends), 64)
	for range cap(s.live.ends) {
		s.live.ends <- struct{}{}
	}
	require.NoError(t, p.Spoke.Exec(`UPDATE sequences SET recall_from = 0`))
	s.mayStart()
	require.Eventually(t, func() bool { return len(s.live.awaiting()) == 0 }, 5*time.Minute, 10*time.Millisecond)
	require.Equal(t, len(tasks), p.Spoke.Count(t, `SELECT count(*) FROM leases`), "no place is free in which an end is recorded")
	for range cap(s.live.ends) {
		<-s.live.ends
	}
	s.attempts.Wait()
	require.Equal(t, len(tasks), p.Spoke.Count(t, `SELECT count(*) FROM tasks WHERE state = 'failed' AND reason = 'executor_died'`))
}

// restoredSpoke is a spoke that takes over attempts, on p's database.
func restoredSpoke(t *testing.T, p *storetest.Pair) *Spoke {
	t.Helper()
	s, r := liveRun()
	s.live.remove(r)
	s.DB, s.Keys, s.Dir = p.Spoke.DB, signing.Keys{Identity: p.Spoke.Identity, Signing: p.Spoke.Signing, Decrypter: p.Spoke.Sealing}, t.TempDir()
	var err error
	s.Policy, err = policy.Open(s.Dir)
	require.NoError(t, err)
	s.kernel, err = supervisor.Look()
	require.NoError(t, err)
	s.Open(&federation.Board{})
	s.isolate(t.Context())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.progress.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return s
}

// orders has the hub of p ask for n agents with one argument, and returns their tasks.
func orders(t *testing.T, p *storetest.Pair, b *backlog.Backlog, n int, argument string) (tasks []string) {
	t.Helper()
	var list []backlog.Request
	for range n {
		task := storetest.NewID()
		tasks = append(tasks, task)
		list = append(list, backlog.Request{Conn: p.Spoke.Conn.ID, Expires: time.Now().Add(time.Hour), Asked: backlog.Asked{Command: storetest.NewID(), Digest: strings.Repeat("ab", 32)},
			Spawn: &commands.Spawn{Task: task, Runtime: commands.RuntimeExec, Argv: []string{"true", argument}, TimeoutMS: 60_000, EstimateMS: 1000, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}})
	}
	inTx(t, p, func(ctx context.Context, tx *store.Tx) error { _, err := b.Request(ctx, tx, list); return err })
	return tasks
}

// recallRunning has the hub of p recall that the first attempts of tasks run.
func recallRunning(t *testing.T, p *storetest.Pair, b *backlog.Backlog, tasks []string) {
	t.Helper()
	var list []commands.TaskStanding
	for _, task := range tasks {
		list = append(list, commands.TaskStanding{Task: task, Attempt: 1, State: commands.Running, Code: -1})
	}
	inTx(t, p, func(ctx context.Context, tx *store.Tx) error { return b.Recall(ctx, tx, p.Spoke.Conn.ID, list) })
}

func inTx(t *testing.T, p *storetest.Pair, do func(context.Context, *store.Tx) error) {
	t.Helper()
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "testing", do))
}
