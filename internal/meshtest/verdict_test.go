package meshtest

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// task is an agent as an instance shows it.
func task(t *testing.T, i *Instance, id string) (v api.Task) {
	t.Helper()
	i.Do(t, "GET", "/api/v1/tasks/"+id, nil, &v)
	return v
}

// awaitVerdict waits until an instance has a verdict on an agent.
func awaitVerdict(t *testing.T, i *Instance, id string, word commands.VerdictWord) (v api.Task) {
	t.Helper()
	Await(t, "the verdict "+string(word), func() bool {
		v = task(t, i, id)
		return v.Verdict != nil && v.Verdict.Word == api.TaskVerdictWord(word)
	})
	require.NotEmpty(t, v.Verdict.Evidence)
	return v
}

// Hub and host say the same of real agents: one that writes or computes works, one that only sleeps is hung, one whose link is cut is
// cut off at the hub and nothing else at its host, and what has ended has no verdict.
func TestVerdictsOfRealAgents(t *testing.T) {
	t.Parallel()
	m := Plan{Hung: 3 * time.Second, Slots: 8}.Start(t, "attic")
	s := m.Spokes["attic"]
	writes := m.Spawn(t, "attic", "sh", "-c", "while sleep 0.2; do echo tick; done")
	computes := m.Spawn(t, "attic", "sh", "-c", "while :; do :; done")
	sleeps := m.Spawn(t, "attic", "sleep", "600")
	for _, i := range []*Instance{m.Hub.Instance, s.Instance} {
		v := awaitVerdict(t, i, sleeps, commands.Hung)
		require.Contains(t, v.Verdict.Evidence, "since it was started")
		require.Contains(t, awaitVerdict(t, i, writes, commands.Working).Verdict.Evidence, "it wrote output 1s ago")
		v = awaitVerdict(t, i, computes, commands.Working)
		require.Contains(t, v.Verdict.Evidence, "it used a processor")
		require.Positive(t, v.MemoryBytes)
		require.Positive(t, v.CPUMS)
	}
	stalled := m.why(t, sleeps, "")
	require.Contains(t, stalled.Reasons[1].Text, "it seems hung: no output, progress, heartbeat or processor time since it was started")
	require.Contains(t, stalled.Reasons[1].Fix, "spawnmesh cancel "+commands.ShortID(sleeps))
	require.Len(t, m.why(t, writes, "").Reasons, 1, "nothing is wrong with it")

	pid := s.Count(t, `SELECT pid FROM sessions WHERE task = $1`, computes)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	awaitVerdict(t, m.Hub.Instance, computes, commands.Hung)
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	awaitVerdict(t, m.Hub.Instance, computes, commands.Working)

	s.Proxy.Cut()
	v := awaitVerdict(t, m.Hub.Instance, writes, commands.CutOff)
	require.Contains(t, v.Verdict.Evidence, "attic was heard last")
	awaitVerdict(t, s.Instance, writes, commands.Working)
	s.Proxy.Heal()
	m.AwaitLink(t, "attic")
	awaitVerdict(t, m.Hub.Instance, writes, commands.Working)

	for _, id := range []string{writes, computes, sleeps} {
		m.Hub.Do(t, "POST", "/api/v1/tasks/"+id+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
		m.Wait(t, id)
		require.Nil(t, task(t, m.Hub.Instance, id).Verdict)
		require.Zero(t, task(t, m.Hub.Instance, id).MemoryBytes)
	}
}

// An agent is no more hung after a pause than before it: while it stood still it could show no sign.
func TestAPauseLeavesNobodyHung(t *testing.T) {
	t.Parallel()
	m := Plan{Hung: time.Minute}.Start(t, "attic")
	s := m.Spokes["attic"]
	id := m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, id, commands.Running)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+id+"/pause", map[string]any{"reason": "later"}, nil)
	for _, i := range []*Instance{m.Hub.Instance, s.Instance} {
		require.Equal(t, "it is paused", awaitVerdict(t, i, id, commands.Asleep).Verdict.Evidence)
	}

	m.Hub.Do(t, "POST", "/api/v1/tasks/"+id+"/resume", map[string]any{}, nil)

	m.Await(t, id, commands.Running)
	for _, i := range []*Instance{m.Hub.Instance, s.Instance} {
		Await(t, "the sign", func() bool {
			return strings.HasPrefix(awaitVerdict(t, i, id, commands.Working).Verdict.Evidence, "it was resumed")
		})
	}
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+id+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, id)
	m.Check(t)
}

// A list has the verdict on each agent, and one that met a limit of its provider is limited while it waits.
func TestVerdictsInAList(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	runs, limited := m.Spawn(t, "attic", "sleep", "600"), m.Spawn(t, "attic", "sh", "-c", "exit 75")
	awaitVerdict(t, m.Hub.Instance, limited, commands.Limited)
	awaitVerdict(t, m.Spokes["attic"].Instance, limited, commands.Limited)
	for _, i := range []*Instance{m.Hub.Instance, m.Spokes["attic"].Instance} {
		var list api.TaskList
		i.Do(t, "GET", "/api/v1/tasks", nil, &list)
		words := map[string]api.TaskVerdictWord{}
		for _, v := range list.Items {
			words[v.ID] = v.Verdict.Word
		}
		require.Equal(t, map[string]api.TaskVerdictWord{runs: "working", limited: "limited"}, words)
	}
	for _, id := range []string{runs, limited} {
		m.Hub.Do(t, "POST", "/api/v1/tasks/"+id+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
		m.Wait(t, id)
	}
}
