package meshtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An order wakes its spoke, and so does a slot that becomes free: a spoke that looks by
// itself only once an hour works all the same.
func TestASpokeIsWokenByItsOrders(t *testing.T) {
	t.Parallel()
	m := Plan{Slots: 1, Idle: time.Hour, Quiet: time.Hour}.Start(t, "attic")
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State, "it has looked for the first time")

	first, second, third := m.Spawn(t, "attic", "sleep", "3"), m.Spawn(t, "attic", "true"), m.Spawn(t, "attic", "true")

	require.Equal(t, commands.Completed, m.Wait(t, first).State, "a sweep has counted the others meanwhile, and says no more of them")
	require.Equal(t, commands.Completed, m.Wait(t, second).State)
	require.Equal(t, commands.Completed, m.Wait(t, third).State)
}

// So does the end of an agent that a limit counts, where slots were free all the time.
func TestASpokeIsWokenByAnEndThatALimitCounts(t *testing.T) {
	t.Parallel()
	m := Plan{Slots: 4, Idle: time.Hour}.Start(t, "attic")
	db := m.Spokes["attic"].Open(t)
	defer db.Close()
	main, err := backlog.Open(db, nil).Workspace(backlog.MainWorkspace, "ann")
	require.NoError(t, err)
	require.NoError(t, main.SetQuota(t.Context(), backlog.Quota{Name: "one", Scope: "workspace", Concurrent: new(1)}))

	first, second := m.Spawn(t, "attic", "sleep", "1000"), m.Spawn(t, "attic", "true")
	m.Await(t, first, commands.Running)
	Await(t, "the second one stands ready", func() bool { return m.Spokes["attic"].Count(t, `SELECT count(*) FROM ready`) == 1 })
	asleep() // no sweep finds it anew
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+first+"/kill", map[string]string{"reason": "the test says so"}, nil)

	require.Equal(t, commands.Completed, m.Wait(t, second).State)
}

// So does a limit that a command of another process lifts: what it held back was counted
// before, and no sweep finds it anew.
func TestASpokeIsWokenByALimitThatIsLifted(t *testing.T) {
	t.Parallel()
	m := quiet(t, 4)
	s := m.Spokes["attic"]
	b := s.visitor(t)
	require.NoError(t, b.SetQuota(t.Context(), backlog.Quota{Name: "none", Scope: "workspace", Concurrent: new(0)}))
	task := m.Noop(t, "attic")
	Await(t, "it stands ready", func() bool { return s.Count(t, `SELECT count(*) FROM ready`) == 1 })
	asleep()

	require.NoError(t, b.SetQuota(t.Context(), backlog.Quota{Name: "none", Scope: "workspace", Concurrent: new(1)}))

	require.Equal(t, commands.Completed, m.Wait(t, task).State)
}

// A task that became ready without a word, because the process that did it has ended before
// it could say so, is found by the next sweep.
func TestASpokeFindsWhatNobodySpokeOf(t *testing.T) {
	t.Parallel()
	m := Plan{Slots: 1, Idle: time.Hour, Quiet: 1200 * time.Millisecond}.Start(t, "attic")
	in := m.Spokes["attic"].Visit(t)
	t.Cleanup(func() { _ = in.Close(context.WithoutCancel(t.Context())) })
	main, err := backlog.Open(in.DB, spoke.Answer).Workspace(backlog.MainWorkspace, "ann")
	require.NoError(t, err)
	first, second := m.Spawn(t, "attic", "sleep", "1000"), m.Spawn(t, "attic", "true")
	m.Await(t, first, commands.Running)
	Await(t, "the second one stands ready", func() bool { return m.Spokes["attic"].Count(t, `SELECT count(*) FROM ready`) == 1 })
	_, err = main.Block(t.Context(), backlog.Act{Task: second, Reason: "not yet"})
	require.NoError(t, err)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+first+"/kill", map[string]string{"reason": "the test says so"}, nil)
	m.Wait(t, first)
	asleep()
	go func() { _ = in.DB.Watch(t.Context(), store.Watcher{Changed: func(store.Wrote) {}, Every: time.Hour}) }() // who watches sends no notification

	Await(t, "it is unblocked", func() bool {
		_, err = main.Unblock(t.Context(), backlog.Act{Task: second, Reason: "now"})
		return err == nil
	})

	require.Equal(t, commands.Completed, m.Wait(t, second).State)
}

// An agent that ends before its start was stored is told of once: the result says that it
// started, when, and in which attempt.
func TestAStartThatIsOvertakenIsNotTold(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")

	id := m.Noop(t, "attic")

	v := m.Wait(t, id)
	m.Check(t)
	require.Equal(t, commands.Completed, v.State)
	require.Equal(t, 1, v.Attempt)
	require.NotNil(t, v.StartedAt)
	var kinds []string
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+id+"?receipts=true", nil, &v)
	for _, r := range v.Receipts {
		kinds = append(kinds, r.Kind)
	}
	require.Equal(t, []string{"agent.accepted", "agent.result"}, kinds)
	require.Equal(t, 1, m.Spokes["attic"].Count(t, `SELECT count(*) FROM audit WHERE action = 'task.running' AND object = $1`, id), "each act is audited")
}
