package hub_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

func TestAnyGoesToTheNextSpokeWhenOneRefuses(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	for _, name := range []string{"attic", "cellar"} {
		s := m.Join(t, name)
		require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(meshtest.Loose(policy.Presets["deny"])), 0o644))
		m.Start(t, name)
		m.AwaitLink(t, name)
		meshtest.Await(t, "its heartbeat", func() bool { return m.View(t, name).LastSeen != nil })
	}
	everywhere := func(program string) hub.SpawnRequest {
		return hub.SpawnRequest{Any: true, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{program}}}
	}

	for _, name := range []string{"until nobody is left", "also where it is known that they refuse it"} {
		t.Run(name, func(t *testing.T) {
			v := m.Wait(t, m.Order(t, everywhere("true")))

			require.Equal(t, []any{commands.Unavailable, commands.PolicyDenied}, []any{v.State, v.Reason})
			require.Len(t, v.Refusals, 2)
			require.ElementsMatch(t, []string{"attic", "cellar"}, []string{v.Refusals[0].Spoke, v.Refusals[1].Spoke})
		})
	}
	t.Run("and is done there", func(t *testing.T) {
		m.Add(t, "loft")
		meshtest.Await(t, "its heartbeat", func() bool { return m.View(t, "loft").LastSeen != nil })

		v := m.Wait(t, m.Order(t, everywhere("date")))

		require.Equal(t, []any{commands.Completed, "loft"}, []any{v.State, v.Spoke})
		require.Len(t, v.Refusals, 2)
	})
}

// Who has refused a program by its policy is asked last for it, as long as it has
// that policy.
func TestAnyRemembersWhoRefuses(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	inForce := func(name, preset string) *meshtest.Spoke {
		s := m.Join(t, name)
		require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(meshtest.Loose(policy.Presets[preset])), 0o644))
		m.Start(t, name)
		m.AwaitLink(t, name)
		meshtest.Await(t, "its heartbeat", func() bool { return m.View(t, name).Policy != "" })
		return s
	}
	attic := inForce("attic", "deny")
	inForce("cellar", "open")
	type went struct {
		ran     string
		refused []string
	}
	order := func(program string) went {
		v := m.Wait(t, m.Order(t, hub.SpawnRequest{Any: true, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{program}}}))
		require.Equal(t, commands.Completed, v.State)
		w := went{ran: v.Spoke}
		for _, r := range v.Refusals {
			w.refused = append(w.refused, r.Spoke)
		}
		return w
	}
	refusing := m.View(t, "attic").Policy

	first, second, another := order("true"), order("true"), order("date")
	require.NoError(t, os.WriteFile(policy.File(attic.Dir), []byte(meshtest.Loose(policy.Presets["open"])), 0o644))
	attic.Do(t, "POST", "/api/v1/policy/reload", nil, nil)
	meshtest.Await(t, "a heartbeat of the new policy", func() bool { return m.View(t, "attic").Policy != refusing })
	allowed := order("true")

	require.Equal(t, went{"cellar", []string{"attic"}}, first)
	require.Equal(t, went{"cellar", nil}, second, "at once")
	require.Equal(t, went{"cellar", []string{"attic"}}, another, "of which nothing is known")
	require.Equal(t, went{"attic", nil}, allowed)
}

// A spoke that starts nothing, as its disk is below its reserve, is asked last: an order waits there only where
// nobody else can take it.
func TestAnyAsksWhoStartsNothingLast(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	for name, reserve := range map[string]string{"attic": "4096TiB", "cellar": "1"} {
		s := m.Join(t, name)
		text := strings.Replace(policy.Presets["open"], "limits:", "limits:\n  reserve: "+reserve, 1)
		require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(meshtest.Loose(text)), 0o644))
		m.Start(t, name)
		m.AwaitLink(t, name)
		meshtest.Await(t, "its heartbeat", func() bool { return m.View(t, name).Policy != "" })
	}
	m.Await(t, m.Spawn(t, "cellar", "sleep", "600"), commands.Running)
	meshtest.Await(t, "that it is told to be busy", func() bool { return m.View(t, "cellar").Running == 1 })

	v := m.Wait(t, m.Order(t, hub.SpawnRequest{Any: true, Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}))

	require.Equal(t, "cellar", v.Spoke)
}

// A link alone does not make a spoke that can run something.
func TestAnySkipsWhoCannotTakeIt(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	beat := func(state string) {
		a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, Slots: 1, KillLevel: "group", Version: "x",
			Connection: commands.ConnectionView{State: state, Reason: "holiday", Numbers: &commands.Numbering{}}}, nil, nil).Envelope)
		meshtest.Await(t, "the heartbeat", func() bool { return m.View(t, "attic").Says.State == state })
	}
	order := func(capabilities ...string) error {
		return m.Hub.Ask(t, "POST", "/api/v1/tasks", hub.SpawnRequest{Any: true, Spawn: commands.Spawn{Runtime: commands.RuntimeNoop, Capabilities: capabilities}}.Revealed(), nil)
	}
	hint := func(err error) string {
		r, ok := errors.AsType[*commands.Refused](err)
		require.True(t, ok, "%v", err)
		return r.Hint
	}
	require.True(t, m.View(t, "attic").Linked)

	silent := order()
	beat("suspended")
	away := order()
	beat("active")
	there, lacking := order(), order("gpu")

	require.ErrorContains(t, silent, "attic is linked and silent")
	require.ErrorContains(t, away, "attic says that it is suspended")
	require.Equal(t, commands.NoSpoke, commands.CodeOf(away))
	require.Equal(t, "to queue it for one that is away, name it: --spoke attic", hint(away))
	require.NoError(t, there)
	require.ErrorContains(t, lacking, "no spoke can run this: attic lacks gpu")
	require.Contains(t, hint(lacking), "policy.yaml", "to queue it there would be refused")
}

// Whoever waits for an order that nobody answers is told of its end.
func TestAnOrderThatNobodyAnswersEnds(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	m.Join(t, "attic")
	task := m.Noop(t, "attic")
	m.Hub.Exec(t, `UPDATE mirrors SET expires_at = now() - interval '1 hour'`)

	v := m.Wait(t, task)

	require.Equal(t, []any{commands.Expired, commands.CommandExpired}, []any{v.State, v.Reason})
}

func TestAnAgentOfARevokedSpoke(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	m.Join(t, "attic")
	task := m.Noop(t, "attic")
	m.Turn(t, "attic", "revoke")

	v := m.Wait(t, task)
	asked := m.Hub.Ask(t, "POST", "/api/v1/tasks/"+task+"/ask", nil, nil)

	require.Equal(t, []any{commands.Unavailable, commands.LinkRevoked}, []any{v.State, v.Reason})
	require.EqualValues(t, "revoked", v.ConnState)
	require.Equal(t, signing.ConnState, commands.CodeOf(asked), "%v", asked)
}

// Whoever waits for an agent, or for the answer of its spoke, is told of the end of the
// connection when it comes.
func TestARevocationWakesWhoWaits(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	m.Join(t, "attic")
	task := m.Noop(t, "attic")
	asked, waited := make(chan error, 1), make(chan hub.AgentView, 1)
	go func() { asked <- m.Hub.Ask(t, "POST", "/api/v1/tasks/"+task+"/ask", nil, nil) }()
	go func() {
		var v hub.AgentView
		_ = m.Hub.Ask(t, "GET", "/api/v1/tasks/"+task+"?wait=50s", nil, &v)
		waited <- v
	}()
	meshtest.Await(t, "the question", func() bool {
		return m.Hub.Count(t, `SELECT count(*) FROM open_outbox WHERE kind = 'agent.status'`) == 1
	})

	m.Turn(t, "attic", "revoke")

	v := <-waited
	require.Equal(t, []any{commands.Unavailable, commands.LinkRevoked}, []any{v.State, v.Reason})
	err := <-asked
	require.Equal(t, signing.ConnState, commands.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "the connection with attic is revoked")
}

// Whoever waits among others gets the task that he waits for.
func TestEachWaiterGetsItsOwnTask(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	var waiters errgroup.Group
	for range 20 {
		waiters.Go(func() error {
			var o hub.SpawnAnswer
			var v hub.AgentView
			err := m.Hub.Ask(t, "POST", "/api/v1/tasks", hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}.Revealed(), &o)
			if err == nil {
				err = m.Hub.Ask(t, "GET", "/api/v1/tasks/"+o.ID+"?wait=50s", nil, &v)
			}
			if err == nil && (v.Task != o.ID || v.State != commands.Completed) {
				err = fmt.Errorf("who waited for %s got %s, %s", o.ID, v.Task, v.State)
			}
			return err
		})
	}
	require.NoError(t, waiters.Wait())
}

// What a spoke says of isolation is shown, and nothing is guessed from what it could do besides.
func TestTheIsolationThatASpokeSays(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	says := func(level string, capabilities ...string) {
		a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, Slots: 1, KillLevel: "group", Version: "x", Isolation: level, Capabilities: capabilities,
			Connection: commands.ConnectionView{State: "active", Numbers: &commands.Numbering{}}}, nil, nil).Envelope)
		meshtest.Await(t, "the heartbeat", func() bool { return len(m.View(t, "attic").Capabilities) == len(capabilities) })
		require.Equal(t, level, m.View(t, "attic").Isolation)
	}
	order := func(runtime string, argv []string, capabilities ...string) *commands.Refused {
		err := m.Hub.Ask(t, "POST", "/api/v1/tasks", hub.SpawnRequest{Any: true, Spawn: commands.Spawn{Runtime: runtime, Argv: argv, Capabilities: capabilities}}.Revealed(), nil)
		r, _ := errors.AsType[*commands.Refused](err)
		return r
	}
	exec := func(capabilities ...string) *commands.Refused {
		return order(commands.RuntimeExec, []string{"true"}, capabilities...)
	}

	says(commands.IsolationUserBubble, "isolation:user", "isolation:bubble", "isolation:landlock")
	says("", "isolation:user", "isolation:bubble")
	lacking, both := exec("isolation:landlock", "isolation:user"), exec("gpu", "isolation:landlock")
	says(commands.IsolationUnmet, "go")
	unmet, nothing := exec(), order(commands.RuntimeNoop, nil)

	require.Equal(t, "no spoke can run this: attic does not confine agents by landlock", lacking.Why)
	require.Equal(t, "on the host of a spoke, spawnmesh doctor says what it confines agents by, and what it lacks for more", lacking.Hint)
	require.Equal(t, "no spoke can run this: attic lacks gpu and does not confine agents by landlock", both.Why)
	require.Equal(t, "ask for less, or let the host of a spoke that has it offer it under capabilities in its policy.yaml; "+lacking.Hint, both.Hint)
	require.Equal(t, "no spoke can run this: attic cannot confine agents as its policy demands", unmet.Why)
	require.Equal(t, lacking.Hint, unmet.Hint)
	require.Nil(t, nothing, "nothing is started, so nothing is confined")
}
