package hub_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/canary"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

var (
	when   = regexp.MustCompile(`time=\S+ `)
	varies = regexp.MustCompile(`(pid|duration_ms)=\d+`)
)

// said are the lines of a log about one thing, at INFO and above, without their time and
// without what differs each time.
func said(i *meshtest.Instance, about string) []string {
	var list []string
	for line := range strings.Lines(i.Log.String()) {
		if strings.Contains(line, about) && !strings.Contains(line, "level=DEBUG") {
			list = append(list, varies.ReplaceAllString(strings.TrimSpace(when.ReplaceAllString(line, "")), "$1=N"))
		}
	}
	return list
}

// awaitSaid waits for the line that a log ends a story with, and compares the whole of it.
func awaitSaid(t *testing.T, i *meshtest.Instance, about string, want ...string) {
	t.Helper()
	meshtest.Await(t, "the line: "+want[len(want)-1], func() bool {
		got := said(i, about)
		return len(got) > 0 && got[len(got)-1] == want[len(want)-1]
	})
	require.Equal(t, want, said(i, about), "the log of %s", i.Name)
}

// An order has one line for each event, on both sides. None has what it starts, what that is
// given or what it writes, nor the words of who kills it.
func TestTheLogTellsTheLifeOfAnOrder(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	attic := m.Spokes["attic"]
	gate := filepath.Join(t.TempDir(), "gate")
	argv, plain, secret, title, why := canary.New(), canary.New(), canary.New(), canary.New(), canary.New()
	r := hub.SpawnRequest{Spoke: "attic", Values: commands.Values{commands.NewSecret(plain.Value), commands.NewSecret(secret.Value)},
		Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Title: title.Value, MaxRetries: 1, Argv: []string{"sh", "-c", `echo "$0 $PLAIN $SECRET"; until [ -e "$1" ]; do sleep 0.05; done; exit 3`, argv.Value, gate},
			Env: []commands.EnvVar{{Name: "PLAIN"}, {Name: "SECRET", As: commands.EnvSecret}}}}
	id := m.Order(t, r)
	meshtest.Await(t, "its start", func() bool { return strings.Contains(strings.Join(said(m.Hub.Instance, id), "\n"), "agent started") })
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	meshtest.Await(t, "the end of its first attempt", func() bool { return len(m.Agent(t, id).Attempts) == 1 })

	m.Hub.Do(t, "POST", "/api/v1/tasks/"+id+"/kill", map[string]string{"reason": why.Value}, nil)

	awaitSaid(t, m.Hub.Instance, "id="+id,
		`level=INFO msg="order given" kind=agent.spawn id=`+id+` connection=attic`,
		`level=INFO msg="agent started" id=`+id+` connection=attic attempt=1 isolation=none`,
		`level=INFO msg="agent ended" id=`+id+` connection=attic attempt=1 outcome=failed state=queued exit_code=3`,
		`level=INFO msg="order given" kind=agent.kill id=`+id+` connection=attic`,
		`level=INFO msg="order ended" id=`+id+` connection=attic attempt=1 state=cancelled reason=kill_requested duration_ms=N`)
	awaitSaid(t, attic.Instance, "id="+id,
		`level=INFO msg="order taken" kind=agent.spawn id=`+id+` connection=lab`,
		`level=INFO msg="agent started" id=`+id+` attempt=1 pid=N isolation=none`,
		`level=INFO msg="agent ended" id=`+id+` attempt=1 outcome=failed exit_code=3`,
		`level=INFO msg="order taken" kind=agent.kill as=kill id=`+id+` connection=lab`)
	for _, i := range []*meshtest.Instance{m.Hub.Instance, attic.Instance} {
		for n, c := range []*canary.Canary{argv, plain, secret, title, why} {
			require.False(t, c.In([]byte(i.Log.String())), "value %d is in the log of %s, which says what there is to debug", n, i.Name)
		}
	}
}

// An agent that ends at once has a line for its order, and how long it took.
func TestTheLogTellsHowLongAnOrderTook(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")

	id := m.Noop(t, "attic")

	awaitSaid(t, m.Hub.Instance, "id="+id,
		`level=INFO msg="order given" kind=agent.spawn id=`+id+` connection=attic`,
		`level=INFO msg="order ended" id=`+id+` connection=attic attempt=1 state=completed exit_code=0 duration_ms=N`)
}

// A refusal is in the logs of both sides with its code alone, and at the hub also who has the
// order then.
func TestTheLogTellsWhoRefused(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	for _, name := range []string{"attic", "cellar"} {
		s := m.Join(t, name)
		require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(meshtest.Loose(policy.Presets["deny"])), 0o644))
		m.Start(t, name)
		m.AwaitLink(t, name)
		meshtest.Await(t, "its heartbeat", func() bool { return m.View(t, name).LastSeen != nil })
	}
	c := canary.New()

	id := m.Order(t, hub.SpawnRequest{Any: true, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"/bin/" + c.Value}}})

	v := m.Wait(t, id)
	first, second := v.Refusals[0].Spoke, v.Refusals[1].Spoke
	awaitSaid(t, m.Hub.Instance, "id="+id,
		`level=INFO msg="order given" kind=agent.spawn id=`+id+` connection=`+first,
		`level=INFO msg="order refused" kind=agent.spawn id=`+id+` connection=`+first+` code=POLICY`,
		`level=INFO msg="order given" kind=agent.spawn id=`+id+` connection=`+second,
		`level=INFO msg="order refused" kind=agent.spawn id=`+id+` connection=`+second+` code=POLICY`)
	for _, name := range []string{first, second} {
		awaitSaid(t, m.Spokes[name].Instance, "id="+id, `level=INFO msg="order refused" kind=agent.spawn id=`+id+` connection=lab code=POLICY`)
		require.False(t, c.In([]byte(m.Spokes[name].Log.String())), name)
	}
	require.False(t, c.In([]byte(m.Hub.Log.String())))
}

// What nobody answers ends with a line; what is told of it after that has none.
func TestTheLogTellsOneEndOfAnOrder(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	gate := filepath.Join(t.TempDir(), "gate")
	late := m.Spawn(t, "attic", "sh", "-c", `until [ -e "$0" ]; do sleep 0.05; done`, gate)
	m.Await(t, late, commands.Running)
	m.Stop(t, "attic")
	id := m.Noop(t, "attic")
	m.Stop(t, "hub")
	m.Hub.Exec(t, `UPDATE mirrors SET expires_at = now() - interval '1 hour', created_at = now() - interval '2 hours' WHERE task = $1`, id)
	m.Hub.Exec(t, `UPDATE mirrors SET state = 'unavailable', ended_at = now() WHERE task = $1`, late)
	m.Start(t, "hub")

	m.Start(t, "attic")
	require.NoError(t, os.WriteFile(gate, nil, 0o600))

	awaitSaid(t, m.Hub.Instance, "id="+id,
		`level=INFO msg="order given" kind=agent.spawn id=`+id+` connection=attic`,
		`level=INFO msg="order ended" id=`+id+` connection=attic state=expired reason=command_expired`)
	meshtest.Await(t, "the late end", func() bool {
		return m.Hub.Count(t, `SELECT count(*) FROM audit WHERE object = $1 AND action = 'mirror.late'`, late) == 1
	})
	next := m.Noop(t, "attic")
	m.Wait(t, next)
	meshtest.Await(t, "what comes after it", func() bool { return len(said(m.Hub.Instance, "id="+next)) == 2 })
	require.Equal(t, []string{
		`level=INFO msg="order given" kind=agent.spawn id=` + late + ` connection=attic`,
		`level=INFO msg="agent started" id=` + late + ` connection=attic attempt=1 isolation=none`,
	}, said(m.Hub.Instance, "id="+late))
}

// Who joins is named with the fingerprint that its operator has read.
func TestTheLogTellsWhoJoined(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)

	s := m.Join(t, "attic")

	require.Equal(t, []string{`level=INFO msg="a spoke has joined" connection=attic fingerprint=` + signing.Fingerprint(s.Keys.Identity.Public())}, said(m.Hub.Instance, "fingerprint="))
}

// What a spoke answers to a kill tells nothing else, whatever it says.
func TestTheLogBelievesNoAnswerToAnotherQuestion(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "thief")
	for code, says := range map[string]func(id string) []commands.Body{
		"": func(id string) []commands.Body {
			return []commands.Body{&commands.Started{Task: id, Attempt: 1}, &commands.Result{Task: id, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded}}
		},
		"INTERNAL": func(id string) []commands.Body {
			return []commands.Body{&commands.Ended{Task: id, Attempt: 1, Outcome: commands.AttemptFailed, State: commands.Queued}, &commands.RefusedBody{Task: id, Code: commands.Internal, Why: "x"}}
		},
	} {
		asked := a.Order(t, m)
		id := asked.Task
		want := []string{`level=INFO msg="order given" kind=agent.spawn id=` + id + ` connection=thief`, `level=INFO msg="order given" kind=agent.kill id=` + id + ` connection=thief`}
		if code != "" {
			want = append(want, `level=INFO msg="order refused" kind=agent.kill id=`+id+` connection=thief code=`+code)
		}
		m.Hub.Do(t, "POST", "/api/v1/tasks/"+id+"/kill", map[string]string{"reason": "enough"}, nil)
		kill, _ := a.Ref(t, commands.KillKind, id)

		for _, body := range says(id) {
			a.Send(t, commands.QueueEvents, a.Seal(t, body, kill, nil).Envelope)
		}
		a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Started{Task: id, Attempt: 1}, asked.Re, nil).Envelope)

		awaitSaid(t, m.Hub.Instance, "id="+id, append(want, `level=INFO msg="agent started" id=`+id+` connection=thief attempt=1 isolation=""`)...)
	}
}
