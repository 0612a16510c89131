package spoke_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// Two policies: one lets sleep run, and noop.
const (
	wide   = "version: 1\nruntimes: [exec, noop]\ncommands: [sleep ..., echo ...]\n"
	narrow = "version: 1\nruntimes: [exec]\ncommands: [echo ...]\n"
)

// asks makes an order for attic.
func asks(argv ...string) hub.SpawnRequest {
	return hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv}}
}

// rewrite changes a spoke's policy file and lets it read it again.
func rewrite(t *testing.T, s *meshtest.Spoke, text string) (change policy.Change, err error) {
	t.Helper()
	require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(meshtest.Loose(text)), 0o600))
	err = s.Ask(t, "POST", "/api/v1/policy/reload", nil, &change)
	return change, err
}

// running is the version of the policy in force.
func running(t *testing.T, s *meshtest.Spoke) string {
	t.Helper()
	var v spoke.Description
	s.Do(t, "GET", "/api/v1/instance", nil, &v)
	return v.Policy
}

// What was accepted under one policy does not start under another that refuses
// it: the order ends, and its result says why. What runs goes on.
func TestThePolicyIsAskedAgainAtTheStart(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: meshtest.Loose(wide), Slots: 1}.Start(t, "attic")
	s := m.Spokes["attic"]
	runs := m.Order(t, asks("sleep", "600"))
	meshtest.Await(t, "an agent that runs", func() bool { return m.Agent(t, runs).State == commands.Running })
	waits, nothing, fine := m.Order(t, asks("sleep", "601")), m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}), m.Order(t, asks("echo", "hi"))
	meshtest.Await(t, "the others accepted", func() bool {
		return m.Agent(t, waits).AcceptedAt != nil && m.Agent(t, nothing).AcceptedAt != nil && m.Agent(t, fine).AcceptedAt != nil
	})
	before := m.Agent(t, waits).Policy
	require.Equal(t, before, m.Agent(t, runs).Policy)

	change, err := rewrite(t, s, narrow)

	require.NoError(t, err)
	require.Equal(t, before, change.Was)
	require.Equal(t, commands.Running, m.Agent(t, runs).State)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+runs+"/kill", map[string]any{"reason": "it has shown enough", "grace_ms": 0}, nil)
	for _, id := range []string{waits, nothing} {
		v := m.Wait(t, id)
		require.Equal(t, commands.Unavailable, v.State)
		require.Equal(t, commands.PolicyDenied, v.Reason)
		require.Contains(t, string(v.Result), "not started: the spoke had accepted it, and its policy, now version "+change.Policy+", refuses it")
		require.Contains(t, string(v.Result), "in policy.yaml", "and what would change that")
		require.Equal(t, change.Policy, v.Policy, "the version that refused it")
		require.Nil(t, v.StartedAt)
	}
	v := m.Wait(t, fine)
	require.Equal(t, commands.Completed, v.State)
	require.Equal(t, change.Policy, v.Policy, "the version that decided at the start")
	dirs, err := filepath.Glob(filepath.Join(s.Dir, "agents", waits, "*", "control", "stdout"))
	require.NoError(t, err)
	require.Empty(t, dirs, "nothing of it was run")
	m.Check(t)
}

// A file that cannot be used changes nothing, and the host hears what is wrong.
func TestABadPolicyIsNotPutInForce(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: meshtest.Loose(narrow)}.Start(t, "attic")
	s := m.Spokes["attic"]
	end := s.AuditEnd(t)

	_, err := rewrite(t, s, "version: 1\nruntimes: [exec]\ncommands: [sleep ...]\nnonsense: hunter2\n")

	require.Equal(t, commands.Validation, commands.CodeOf(err))
	require.ErrorContains(t, err, policy.File(s.Dir)+": [4:1]")
	lines := s.Audit(t, end)
	require.Len(t, lines, 1)
	require.Equal(t, "policy.kept", lines[0].Action)
	require.Equal(t, commands.Completed, m.Wait(t, m.Order(t, asks("echo", "hi"))).State)
	refused := m.Wait(t, m.Order(t, asks("sleep", "1")))
	require.Equal(t, commands.PolicyDenied, refused.Reason)
	require.NotEmpty(t, refused.Policy, "a refusal names the version, too")

	change, err := rewrite(t, s, "version: 1\nruntimes: [exec]\ncommands: [sleep ...]\n")

	require.NoError(t, err)
	require.Equal(t, refused.Policy, change.Was)
	require.Equal(t, commands.Completed, m.Wait(t, m.Order(t, asks("sleep", "0"))).State)
	m.Check(t)
}

// What the host sets reaches the agent and nobody else: no table, no log and no
// message has it, unless the agent prints it.
func TestValuesOfTheHostStayThere(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{Policy: meshtest.Loose(narrow)}.Rogue(t)
	s := r.Spoke
	const value = "hunter2-canary-of-the-host"
	home := t.TempDir()
	program := filepath.Join(home, "keep")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nprintf %s \"$TOKEN\" >\"$HOME/token\"\n"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "agents.env"), []byte("TOKEN="+value+"\n"), 0o600))
	_, err := rewrite(t, s, "version: 1\nruntimes: [exec]\nenvironment: [TOKEN]\nhome: "+home+"\nenv: {OTHER: "+value+"}\ncommands:\n  - run: "+program+
		"\n    env_from_file: agents.env\n")
	require.NoError(t, err)
	order := r.Valued(t, &commands.Spawn{Task: meshtest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{program},
		Env: []commands.EnvVar{{Name: "TOKEN"}}}, "asked")

	r.Send(t, commands.QueueRun, order.Envelope)

	result := r.Answer(t, order.ID, commands.ResultKind).(*commands.Result)
	require.Equal(t, commands.Completed, result.State, result.Summary)
	got, err := os.ReadFile(filepath.Join(home, "token"))
	require.NoError(t, err)
	require.Equal(t, value, string(got), "the host wins over the order")
	var said []commands.Body
	for _, c := range r.Heard() {
		said = append(said, c.Body)
	}
	heard, err := json.Marshal(said)
	require.NoError(t, err)
	require.Contains(t, string(heard), running(t, s))
	require.NotContains(t, string(heard), value)
	require.NotContains(t, s.Log.String(), value)
	require.Zero(t, s.Count(t, "SELECT count(*) FROM audit x WHERE x::text LIKE '%' || $1 || '%'", value))
	for table := range s.Sums(t) {
		require.Zero(t, s.Count(t, "SELECT count(*) FROM "+table+" x WHERE x::text LIKE '%' || $1 || '%'", value), table)
	}
}

// A start that an earlier process did not come to record is told with the
// version that allowed it, not with the one that is in force by then.
func TestAStartToldLateNamesItsOwnPolicy(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: meshtest.Loose(wide)}.Start(t, "attic")
	s := m.Spokes["attic"]
	first := running(t, s)
	id := m.Order(t, asks("sleep", "600"))
	m.Await(t, id, commands.Running)
	m.Stop(t, "attic")
	s.Exec(t, `UPDATE leases SET started_at = NULL WHERE task = $1`, id)
	require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(wide+"capabilities: [go]\n"), 0o600))

	m.Start(t, "attic")

	require.NotEqual(t, first, running(t, s))
	const told = `SELECT count(*) FROM inbox WHERE kind = 'agent.started' AND task = $1
		AND convert_from(decode(convert_from(envelope, 'UTF8')::jsonb->>'body', 'base64'), 'UTF8')::jsonb->>'policy' = $2`
	meshtest.Await(t, "the start, told twice", func() bool {
		return m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE kind = 'agent.started' AND task = $1`, id) == 2
	})
	require.Equal(t, 2, m.Hub.Count(t, told, id, first))
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+id+"/kill", map[string]any{"reason": "it has shown enough", "grace_ms": 0}, nil)
	m.Wait(t, id)
	m.Check(t)
}
