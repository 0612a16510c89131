package meshtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// quiet is a mesh in which nobody looks at anything by himself: what is told, and what
// is known to be due, must do.
func quiet(t *testing.T, slots int) *Mesh {
	return Plan{Slots: slots, Idle: time.Hour, Quiet: time.Hour, Lease: time.Hour}.Start(t, "attic")
}

// visitor is the backlog of an instance that runs, as a command of another process has it.
func (i *Instance) visitor(t *testing.T) *backlog.Workspace {
	t.Helper()
	in := i.Visit(t)
	t.Cleanup(func() { _ = in.Close(t.Context()) })
	ws, err := backlog.Open(in.DB, spoke.Answer).Workspace(backlog.MainWorkspace, "worker-1")
	require.NoError(t, err)
	return ws
}

// asleep lets the looks pass that follow on what instances write by themselves, such as
// while they start: they would find what is to be heard of.
func asleep() { time.Sleep(2500 * time.Millisecond) }

// What the spoke itself makes due, its sweep knows of: the next try of what failed, and
// the last moment of what waits.
func TestASleepingSpokeDoesInTimeWhatItHasMadeDue(t *testing.T) {
	t.Parallel()
	m := quiet(t, 1)

	again := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"false"}, MaxRetries: 1}})
	require.Equal(t, commands.Failed, m.Wait(t, again).State)
	require.Equal(t, 2, m.Spokes["attic"].Count(t, `SELECT count(*) FROM attempts WHERE task = $1`, again))

	long := m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, long, commands.Running)
	late := m.Order(t, hub.SpawnRequest{Spoke: "attic", ExpiresInMS: 5000, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}}})
	require.Equal(t, commands.Expired, m.Wait(t, late).State)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+long+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, long)
}

// A task that a command of another process makes for later becomes claimable in time,
// and a lease that another process has taken and left is taken back.
func TestASleepingSpokeHearsOfCommands(t *testing.T) {
	t.Parallel()
	m := quiet(t, 1)
	s := m.Spokes["attic"]
	b := s.visitor(t)
	asleep()

	_, err := b.Create(t.Context(), backlog.TaskSpec{Key: "later", Title: "t", NotBefore: time.Now().Add(1200 * time.Millisecond)})
	require.NoError(t, err)
	Await(t, "it is claimable", func() bool { return s.Count(t, `SELECT count(*) FROM ready`) == 1 })

	asleep()
	got, err := b.Claim(t.Context(), backlog.ClaimTerms{Owner: "worker-1", Lease: 1500 * time.Millisecond})
	require.NoError(t, err)
	require.Len(t, got, 1)
	Await(t, "its lease is over", func() bool { return s.Count(t, `SELECT count(*) FROM leases`) == 0 })
}

// Whoever waits hears also of an end that nobody speaks of, because the process that wrote
// it has ended before it could: a question that waits is one, and does not ask again.
func TestWhoWaitsHearsOfWhatNobodySpokeOf(t *testing.T) {
	t.Parallel()
	m := Plan{Quiet: 1200 * time.Millisecond}.Start(t, "attic")
	m.Stop(t, "attic")
	in := m.Hub.Visit(t)
	t.Cleanup(func() { _ = in.Close(context.WithoutCancel(t.Context())) })
	go func() { _ = in.DB.Watch(t.Context(), store.Watcher{Changed: func(store.Wrote) {}, Every: time.Hour}) }() // who watches sends no notification
	task := m.Noop(t, "attic")
	var v hub.AgentView
	answered := make(chan error)
	go func() { answered <- m.Hub.Ask(t, "GET", "/api/v1/tasks/"+task+"?wait=50s", nil, &v) }()
	asleep() // it waits

	require.NoError(t, in.DB.Tx(t.Context(), "ending what was ordered", func(ctx context.Context, tx *store.Tx) error {
		return store.EndMirrors(ctx, tx, m.Spokes["attic"].Conn)
	}))

	require.NoError(t, <-answered)
	require.Equal(t, commands.Unavailable, v.State)
}

// What a command of another process orders goes out, and whoever waits hears of its end.
func TestASleepingHubHearsOfOrders(t *testing.T) {
	t.Parallel()
	m := quiet(t, 1)
	in := m.Hub.Visit(t)
	conns, err := in.DB.Connections(t.Context())
	require.NoError(t, err)

	task := NewID()
	_, err = in.DB.OrderSpawns(t.Context(), []store.SpawnOrder{{Conn: conns[0].ID, Life: time.Hour, Actor: "test", Spawn: &commands.Spawn{Task: task, Runtime: commands.RuntimeNoop}}})
	require.NoError(t, err)
	require.NoError(t, in.Close(t.Context()))

	require.Equal(t, commands.Completed, m.Wait(t, task).State)
}
