package spoke_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/canary"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/door"
	"github.com/spawnmesh/spawnmesh/store"
)

// inquire asks in the name of an agent.
func inquire(t *testing.T, c *door.Client, a door.Ask) (q store.Question) {
	t.Helper()
	require.NoError(t, c.Do(t.Context(), "POST", "/v1/questions", a, &q))
	return q
}

// answered waits for the answer in the name of an agent.
func answered(t *testing.T, c *door.Client, id string) (q store.Question) {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), meshtest.Patience)
	defer done()
	for q.State == "" || q.State == commands.QuestionOpen {
		require.NoError(t, c.Do(ctx, "GET", "/v1/questions/"+id+"?wait=20s", nil, &q))
	}
	return q
}

// seen waits until an instance shows a question as what says.
func seen(t *testing.T, i *meshtest.Instance, id string, ok func(api.Question) bool) (q api.Question) {
	t.Helper()
	require.Eventually(t, func() bool {
		q = api.Question{}
		err := i.Ask(t, http.MethodGet, "/api/v1/questions/"+id, nil, &q)
		return err == nil && ok(q)
	}, meshtest.Patience, 20*time.Millisecond, "question %s: %+v", id, &q)
	return q
}

func is(state string) func(api.Question) bool {
	return func(q api.Question) bool { return string(q.State) == state }
}

var allow = door.Ask{Key: "deploy", Text: "deploy?", Options: []string{"allow", "deny"}, DeadlineMS: 3_600_000}

// A question reaches the hub, the answer the agent, and both sides know who gave it. A later answer is told whose was first.
func TestAnAgentIsAnswered(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := waiting(t, m)
	c := doorOf(s, task, 1)

	q := inquire(t, c, allow)

	m.Await(t, task, commands.AwaitingInput)
	shown := seen(t, m.Hub.Instance, q.ID, is(commands.QuestionOpen))
	require.Equal(t, []string{"deploy?", "deny", "attic"}, []string{shown.Text, shown.Default, shown.Spoke})
	require.Error(t, m.Hub.Ask(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: "perhaps"}, nil))
	require.Equal(t, q.ID, inquire(t, c, allow).ID, "it is the same question")
	other := allow
	other.Text = "deploy twice?"
	require.Equal(t, commands.Idempotency, commands.CodeOf(c.Do(t.Context(), "POST", "/v1/questions", other, nil)))

	m.Hub.Do(t, "POST", "/api/v1/questions/"+shown.ShortID+"/answer", api.NewAnswer{Answer: "allow", Reason: "looked at it"}, nil)

	got := answered(t, c, q.ID)
	require.Equal(t, []string{"answered", "allow", "looked at it"}, []string{got.State, got.Answer, got.Reason})
	shown = seen(t, m.Hub.Instance, q.ID, is(commands.QuestionAnswered))
	require.NotEmpty(t, shown.AnsweredBy)
	require.Equal(t, "lab: "+shown.AnsweredBy, got.AnsweredBy, "no hub speaks in the name of somebody of this host")
	require.Equal(t, []string{"allow", ""}, []string{shown.Sent.Answer, shown.Differs})
	m.Await(t, task, commands.Running)
	for _, i := range []*meshtest.Instance{m.Hub.Instance, s.Instance} {
		err := i.Ask(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: "deny"}, nil)
		require.Equal(t, commands.Conflict, commands.CodeOf(err))
		require.ErrorContains(t, err, `has answered "allow"`)
	}
	require.Equal(t, "allow", inquire(t, c, allow).Answer)
}

// Of several who answer at once one wins, on the hub and on the host, and all see the same answer.
func TestTheFirstAnswerWins(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := waiting(t, m)
	c := doorOf(s, task, 1)
	q := inquire(t, c, door.Ask{Key: "name", Text: "which name?"})
	seen(t, m.Hub.Instance, q.ID, is(commands.QuestionOpen))
	var all sync.WaitGroup
	said := make(chan error, 16)
	for _, name := range strings.Fields("a b c d e f g h") {
		for _, i := range []*meshtest.Instance{m.Hub.Instance, s.Instance} {
			all.Go(func() {
				err := i.Ask(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: i.Name + " " + name}, nil)
				said <- err
			})
		}
	}
	all.Wait()
	close(said)
	taken := 0
	for err := range said {
		if err == nil {
			taken++
			continue
		}
		require.Equal(t, commands.Conflict, commands.CodeOf(err), "%v", err)
	}
	require.LessOrEqual(t, taken, 2, "each side takes one answer at most")
	got := answered(t, c, q.ID)
	shown := seen(t, m.Hub.Instance, q.ID, func(q api.Question) bool { return is(commands.QuestionAnswered)(q) })
	require.Equal(t, got.Answer, shown.Answer)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.answered'`))
	actor := "uid:%"
	if strings.HasPrefix(got.Answer, m.Hub.Name) {
		actor = string(m.Hub.Keys.InstanceID()) // what a hub says of its people is its own word
	}
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.answered' AND actor LIKE $1`, actor))
}

// Fifty agents wait, and two people answer them at once while the link is down, each from another end: of every question one answer counts, the other is
// told whose was first, and every agent hears the one that counts. Those that nobody answers get the safe answer.
func TestTwoPeopleAnswerFiftyAgents(t *testing.T) {
	t.Parallel()
	const agents, unanswered = 50, 5
	m := meshtest.Plan{Slots: agents}.Start(t, "attic")
	s := m.Spokes["attic"]
	doors, ids := make([]*door.Client, agents), make([]string, agents)
	for i := range agents {
		ask := door.Ask{Key: "1", Text: "may I?", Options: []string{"allow", "deny", "later"}, DeadlineMS: 3_600_000}
		if i >= agents-unanswered {
			ask.DeadlineMS = 1000
		}
		doors[i] = doorOf(s, waiting(t, m), 1)
		ids[i] = inquire(t, doors[i], ask).ID
	}
	for _, id := range ids {
		seen(t, m.Hub.Instance, id, func(api.Question) bool { return true })
	}
	s.Proxy.Cut()

	first := make([]map[string]error, agents-unanswered)
	var people sync.WaitGroup
	var mu sync.Mutex
	answers := func(i int, answer string) {
		err := m.Hub.Ask(t, "POST", "/api/v1/questions/"+ids[i]+"/answer", api.NewAnswer{Answer: answer}, nil)
		mu.Lock()
		defer mu.Unlock()
		if first[i] == nil {
			first[i] = map[string]error{}
		}
		first[i][answer] = err
	}
	people.Go(func() {
		for i := range first {
			answers(i, "allow")
		}
	})
	people.Go(func() {
		for i := range first {
			answers(len(first)-1-i, "later")
		}
	})
	people.Wait()
	s.Proxy.Heal()

	for i, said := range first {
		won, lost := "allow", "later"
		if said[won] != nil {
			won, lost = lost, won
		}
		require.NoError(t, said[won])
		require.Equal(t, commands.Conflict, commands.CodeOf(said[lost]))
		require.ErrorContains(t, said[lost], won)
		require.Equal(t, []string{commands.QuestionAnswered, won}, standing(answered(t, doors[i], ids[i])))
	}
	for i := len(first); i < agents; i++ {
		require.Equal(t, []string{commands.QuestionDefaulted, "deny"}, standing(answered(t, doors[i], ids[i])))
	}
}

func standing(q store.Question) []string { return []string{q.State, q.Answer} }

// A question that nobody answers in time is answered by its default, and else not at all: both sides learn it.
func TestNobodyAnswersInTime(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := waiting(t, m)
	c := doorOf(s, task, 1)
	for key, x := range map[string]struct {
		ask     door.Ask
		outcome string
		answer  string
	}{
		"a default":     {door.Ask{Options: []string{"a", "b"}, Default: "b"}, commands.QuestionDefaulted, "b"},
		"deny":          {door.Ask{Options: []string{"allow", "deny"}}, commands.QuestionDefaulted, "deny"},
		"no way to say": {door.Ask{}, commands.QuestionUnanswered, ""},
	} {
		x.ask.Key, x.ask.Text, x.ask.DeadlineMS = key, "what now?", 1000
		q := inquire(t, c, x.ask)
		got := answered(t, c, q.ID)
		require.Equal(t, []string{x.outcome, x.answer}, []string{got.State, got.Answer}, key)
		require.Equal(t, x.answer, seen(t, m.Hub.Instance, q.ID, is(x.outcome)).Answer)
	}
	m.Await(t, task, commands.Running)
}

// An answer that was given while the link was down, while either side was stopped, or in between gets to the agent.
func TestAnAnswerSurvives(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := waiting(t, m)
	c := doorOf(s, task, 1)
	q := inquire(t, c, door.Ask{Key: "1", Text: "first?"})
	seen(t, m.Hub.Instance, q.ID, is(commands.QuestionOpen))

	s.Proxy.Cut()
	m.Hub.Do(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: "over the cut"}, nil)
	require.NotNil(t, seen(t, m.Hub.Instance, q.ID, is(commands.QuestionOpen)).Sent)
	err := m.Hub.Ask(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: "again"}, nil)
	require.ErrorContains(t, err, "has not confirmed yet")
	m.Stop(t, "hub")
	m.Start(t, "hub")
	s.Proxy.Heal()
	require.Equal(t, "over the cut", answered(t, c, q.ID).Answer)

	q = inquire(t, c, door.Ask{Key: "2", Text: "second?"})
	seen(t, m.Hub.Instance, q.ID, is(commands.QuestionOpen))
	m.Stop(t, "attic")
	m.Hub.Do(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: "to one that was away"}, nil)
	m.Start(t, "attic")
	require.Equal(t, "to one that was away", answered(t, c, q.ID).Answer)
	require.Equal(t, "to one that was away", seen(t, m.Hub.Instance, q.ID, is(commands.QuestionAnswered)).Answer)
}

// The answer waits for the next attempt where the one that asked is lost, which is claimed when the answer is there.
func TestAnAnswerWaitsForTheNextAttempt(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	order := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sleep", "600"}, OnLoss: commands.LossReruns, MaxRetries: 3}}
	task := m.Order(t, order)
	m.Await(t, task, commands.Running)
	q := inquire(t, doorOf(s, task, 1), allow)
	m.Await(t, task, commands.AwaitingInput)

	shim := s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task)
	m.Stop(t, "attic")
	require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
	m.Start(t, "attic")

	require.Eventually(t, func() bool {
		return s.Count(t, `SELECT count(*) FROM parked WHERE task = $1 AND why = 'awaiting_input'`, task) == 1
	}, meshtest.Patience, 20*time.Millisecond)
	require.Equal(t, commands.AwaitingInput, m.Agent(t, task).State)
	m.Hub.Do(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: "allow"}, nil)
	require.Eventually(t, func() bool {
		return s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND attempt = 2 AND type = 'resume' AND started_at IS NOT NULL`, task) == 1
	}, meshtest.Patience, 20*time.Millisecond)
	require.Equal(t, "allow", inquire(t, doorOf(s, task, 2), allow).Answer, "at once")
	m.Await(t, task, commands.Running)
}

// A kill ends what an agent asks, on both sides, whether it runs or waits for the answer without an attempt.
func TestAKillEndsTheQuestion(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := waiting(t, m)
	q := inquire(t, doorOf(s, task, 1), allow)
	seen(t, m.Hub.Instance, q.ID, is(commands.QuestionOpen))

	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", api.KillRequest{Reason: "no more"}, nil)

	require.Equal(t, commands.Cancelled, m.Wait(t, task).State)
	for _, i := range []*meshtest.Instance{m.Hub.Instance, s.Instance} {
		seen(t, i, q.ID, is(commands.QuestionWithdrawn))
		err := i.Ask(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: "allow"}, nil)
		require.Equal(t, commands.Conflict, commands.CodeOf(err))
		var list api.QuestionList
		i.Do(t, "GET", "/api/v1/questions", nil, &list)
		require.Empty(t, list.Items)
	}
}

// An agent may ask before the proof of its start is stored.
func TestAnAgentIsQuickerThanItsStart(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := waiting(t, m)
	s.Exec(t, `UPDATE leases SET started_at = NULL WHERE task = $1`, task)
	c := doorOf(s, task, 1)
	asked := make(chan error, 1)
	go func() { asked <- c.Do(t.Context(), "POST", "/v1/questions", allow, nil) }()
	require.Never(t, func() bool { return len(asked) > 0 }, 200*time.Millisecond, 20*time.Millisecond)
	s.Exec(t, `UPDATE leases SET started_at = now() WHERE task = $1`, task)
	require.NoError(t, <-asked)
}

// A question that its agent withdraws is closed on both sides, and nobody answers it any more.
func TestAnAgentWithdrawsItsQuestion(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := waiting(t, m)
	c := doorOf(s, task, 1)
	q := inquire(t, c, allow)
	seen(t, m.Hub.Instance, q.ID, is(commands.QuestionOpen))
	got := make(chan store.Question, 1)
	go func() {
		var q2 store.Question
		_ = c.Do(t.Context(), "GET", "/v1/questions/"+q.ID+"?wait=20s", nil, &q2)
		got <- q2
	}()

	for range 2 { // the answer to the first one may be lost
		var closed store.Question
		require.NoError(t, c.Do(t.Context(), "DELETE", "/v1/questions/"+q.ID, nil, &closed))
		require.Equal(t, commands.QuestionWithdrawn, closed.State)
	}

	require.Equal(t, commands.QuestionWithdrawn, (<-got).State, "who waits learns it")
	for _, i := range []*meshtest.Instance{m.Hub.Instance, s.Instance} {
		seen(t, i, q.ID, is(commands.QuestionWithdrawn))
		require.Equal(t, commands.Conflict, commands.CodeOf(i.Ask(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: "allow"}, nil)))
	}
	m.Await(t, task, commands.Running)
	q = inquire(t, c, door.Ask{Key: "2", Text: "second?"})
	s.Do(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: "x"}, nil)
	require.Equal(t, commands.Conflict, commands.CodeOf(c.Do(t.Context(), "DELETE", "/v1/questions/"+q.ID, nil, nil)))
	require.Equal(t, commands.StaleAttempt, commands.CodeOf(func() error {
		q := inquire(t, c, door.Ask{Key: "3", Text: "third?"})
		s.Exec(t, `UPDATE leases SET epoch = epoch + 1 WHERE task = $1`, task)
		return c.Do(t.Context(), "DELETE", "/v1/questions/"+q.ID, nil, nil)
	}()))
}

// Values that the order or the host gives an agent as secrets are in nothing that it says, here and at the hub, also after the spoke was
// started again.
func TestSecretsAreTakenOutOfWhatAnAgentSays(t *testing.T) {
	t.Parallel()
	const rules = "version: 1\nruntimes: [exec]\ncommands: [\"*\"]\nenvironment: [\"*\"]\n"
	m := meshtest.Plan{Policy: meshtest.Loose(rules)}.Start(t, "attic")
	s := m.Spokes["attic"]
	secret, host := canary.New(), canary.New()
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "agents.env"), []byte("HOST="+host.Value+"\nPIN=4815162342\n"), 0o600))
	_, err := rewrite(t, s, rules+"env_from_file: agents.env\n")
	require.NoError(t, err)
	task := m.Order(t, secretly("plain", secret.Value, "file", "sleep", "600"))
	m.Await(t, task, commands.Running)
	c := doorOf(s, task, 1)
	said := secret.Value + base64.StdEncoding.EncodeToString([]byte("x"+host.Value))
	for _, key := range []string{"1", "2"} {
		q := inquire(t, c, door.Ask{Key: key, Text: "may I send " + said + "?", Options: []string{"a" + secret.Value, "b"}, Default: "a" + secret.Value, Data: said})
		require.Contains(t, q.Text, "may I send [redacted]")
		require.Equal(t, "a[redacted]", seen(t, m.Hub.Instance, q.ID, is(commands.QuestionOpen)).Default)
		require.NoError(t, c.Do(t.Context(), "POST", "/v1/progress", commands.Progress{Step: said, Unit: host.Value}, nil))
		require.NoError(t, c.Do(t.Context(), "PUT", "/v1/session", door.Session{ID: "s" + secret.Value}, nil))
		require.NoError(t, c.Do(t.Context(), "POST", "/v1/done", door.Done{Data: `{"pin": 4815162342, "of": "` + secret.Value + `", "files": 3}`}, nil))
		require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases WHERE word ->> 'data' = '{"pin": "[redacted]", "of": "[redacted]", "files": 3}'`))
		m.Stop(t, "attic")
		m.Start(t, "attic")
	}
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM task_checkpoints WHERE session = 's[redacted]'`))
	for _, x := range []struct {
		i    *meshtest.Instance
		from string
	}{{s.Instance, "questions"}, {s.Instance, "progress"}, {s.Instance, "leases"}, {s.Instance, "audit"}, {m.Hub.Instance, "inquiries"}, {m.Hub.Instance, "heartbeats"}} {
		for _, v := range []string{secret.Value, host.Value, strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(host.Value)), "=")[:12]} {
			require.Zero(t, x.i.Count(t, `SELECT count(*) FROM `+x.from+` AS x WHERE x::text LIKE '%' || $1 || '%'`, v), x.from)
		}
	}
	require.Zero(t, s.Count(t, `SELECT count(*) FROM audit AS x WHERE x::text LIKE '%may I send%'`), "the audit has no words of an agent")
}
