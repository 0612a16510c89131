package spoke

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// The slot of an attempt that begins to wait for its hub is free, and whoever fills slots is told so: nothing else may come that wakes him.
func TestASlotThatAWaitLeavesIsFilled(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	s, _ := liveRun()
	s.backlog, s.work = Backlog(p.Spoke.DB, t.TempDir()), wait.NewSignal()
	r := &run{fence: backlog.Fence{Task: askedFor(t, p, s.backlog), Attempt: 1}}
	require.NoError(t, p.Spoke.Exec(`UPDATE sequences SET recall_from = 1`))
	s.live.add(r)
	require.Equal(t, 2, s.live.count())
	goesOn := make(chan bool, 1)

	go func() { goesOn <- s.recalled(t.Context(), r) }()

	select {
	case <-s.work:
	case <-time.After(time.Minute):
		require.FailNow(t, "nobody is told")
	}
	require.Equal(t, 1, s.live.count())
	s.live.abandon()
	require.False(t, <-goesOn)
	s.attempts.Wait()
}

// askedFor has the hub of p ask for an agent, and returns its task.
func askedFor(t *testing.T, p *storetest.Pair, b *backlog.Backlog) string {
	t.Helper()
	task := storetest.NewID()
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "asking", func(ctx context.Context, tx *store.Tx) error {
		_, err := b.Request(ctx, tx, []backlog.Request{{Conn: p.Spoke.Conn.ID, Expires: time.Now().Add(time.Hour),
			Asked: backlog.Asked{Command: storetest.NewID(), Digest: strings.Repeat("ab", 32)}, Spawn: &commands.Spawn{Task: task, Runtime: commands.RuntimeNoop}}})
		return err
	}))
	return task
}

// A stop does not spend its time on attempts that only wait for their hubs: the next start finds them as they are.
func TestAStopWaitsForNoHub(t *testing.T) {
	t.Parallel()
	s, r := liveRun()
	s.Drain = time.Hour
	s.live.await(r, make(chan backlog.Past, 1))
	ended := make(chan bool, 1)

	go func() { ended <- s.awaitAgents(nil) }()

	select {
	case all := <-ended:
		require.False(t, all, "they are left")
	case <-time.After(time.Minute):
		require.Fail(t, "it waits")
	}
}
