package hub_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// newer is a report as a newer spoke may say it: with a field that this version does not know, in it and in each object of it
// that has a body of its own.
func newer(t *testing.T, a *meshtest.Attacker, body commands.Body, re *signing.Ref, change func([]byte) []byte) []byte {
	t.Helper()
	raw, err := commands.EncodeBody(body)
	require.NoError(t, err)
	return a.Forge(body.Kind().Type(), a.Header(body.Kind(), re), change(raw)).Envelope()
}

func withField(raw []byte) []byte { return append([]byte(`{"mood":{"of":["the agent"]},`), raw[1:]...) }

// A newer spoke says more than this hub knows: what it knows counts, and the signed bytes are kept.
func TestAReportWithFieldsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	asked := a.Order(t, m)
	end := m.Hub.AuditEnd(t)

	a.Send(t, commands.QueueEvents, newer(t, a, &commands.Accepted{Task: asked.Task, State: commands.Queued}, asked.Re, withField),
		newer(t, a, &commands.Started{Task: asked.Task, Attempt: 1}, asked.Re, withField))
	a.Beat(t, newer(t, a, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "9.9", Connection: commands.ConnectionView{State: "active"}}, nil, withField))
	result := &commands.Result{Task: asked.Task, State: commands.Failed, Attempt: 1, Outcome: commands.AttemptFailed, Exit: commands.Exit{Code: 3}, EndedAt: time.Now().UnixMilli()}
	a.Send(t, commands.QueueResults, newer(t, a, result, asked.Re, func(raw []byte) []byte {
		return bytes.Replace(withField(raw), []byte(`"exit":{`), []byte(`"exit":{"core":true,`), 1)
	}))

	meshtest.Await(t, "the end", func() bool { return m.Agent(t, asked.Task).State == commands.Failed })
	require.Equal(t, 3, *m.Agent(t, asked.Task).ExitCode)
	require.Equal(t, "9.9", m.View(t, "attic").Version)
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE code <> '' OR envelope = ''`))
	for _, line := range m.Hub.Audit(t, end) {
		require.NotEqual(t, "report.refused", line.Action)
	}
}

// What keeps an agent, in words of a newer spoke, is told with its text.
func TestACauseThatIsNotKnown(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	asked := a.Order(t, m)
	accept(t, m, a, asked)
	answered := make(chan api.TaskWhy, 1)
	go func() {
		var why api.TaskWhy
		m.Hub.Do(t, "GET", "/api/v1/tasks/"+asked.Task+"/why?ask=10s", nil, &why)
		answered <- why
	}()
	re, _ := a.Ref(t, commands.StatusKind, asked.Task)

	a.Send(t, commands.QueueEvents, a.Seal(t, &commands.TaskState{Task: asked.Task, State: commands.Queued, Reason: "tide",
		Reasons: []commands.TaskReason{{Code: "moon", Text: "it waits for the full moon"}}}, re, nil).Envelope)

	said := map[string]api.WhyCode{}
	for _, r := range (<-answered).Reasons {
		said[r.Text] = r.Code
	}
	require.Equal(t, api.WhyCode(commands.CauseState), said["it waits for the full moon"])
	require.Equal(t, api.WhyCode(commands.CauseState), said[`its reason is "tide", which this version does not know`])
}

// A result that has to be refused is refused, and ends its agent all the same.
func TestAResultThatCannotBeRead(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	result := func(q meshtest.Asked) *commands.Result {
		return &commands.Result{Task: q.Task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded, EndedAt: time.Now().UnixMilli()}
	}
	for name, tt := range map[string]struct {
		code  commands.Code
		state commands.State // known of the end
		say   func(q meshtest.Asked) []byte
	}{
		"a reason that is not known": {commands.Validation, commands.Completed, func(q meshtest.Asked) []byte {
			r := result(q)
			r.Reason = "because"
			return a.Seal(t, r, q.Re, nil).Envelope
		}},
		"a state that is no end": {commands.Validation, commands.Failed, func(q meshtest.Asked) []byte {
			r := result(q)
			r.State = commands.Running
			return a.Seal(t, r, q.Re, nil).Envelope
		}},
		"an attempt that no number holds": {commands.Validation, commands.Completed, func(q meshtest.Asked) []byte {
			r := result(q)
			r.Attempt = 1 << 40
			return a.Seal(t, r, q.Re, nil).Envelope
		}},
		"a field of another type": {signing.BodyJSON, commands.Completed, func(q meshtest.Asked) []byte {
			return newer(t, a, result(q), q.Re, func(raw []byte) []byte {
				return bytes.Replace(raw, []byte(`"exit":{"code":0}`), []byte(`"exit":"0"`), 1)
			})
		}},
		"a NUL in a text": {signing.BodyJSON, commands.Failed, func(q meshtest.Asked) []byte {
			r := result(q)
			r.Summary = "a\x00b"
			return a.Seal(t, r, q.Re, nil).Envelope
		}},
		"another body than was signed": {signing.BodyDigest, commands.Failed, func(q meshtest.Asked) []byte {
			r := result(q)
			f := a.Forge(signing.Result, a.Header(r.Kind(), q.Re), []byte(`{}`))
			f.Body = []byte(`{"x":1}`)
			return f.Envelope()
		}},
		"time is over for it": {signing.TimeExpired, commands.Failed, func(q meshtest.Asked) []byte {
			return a.Seal(t, result(q), q.Re, func(h *signing.Header) { h.Iat, h.Exp = h.Iat-9e6, h.Iat-8e6 }).Envelope
		}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := a.Order(t, m)
			a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Started{Task: asked.Task, Attempt: 1}, asked.Re, nil).Envelope)
			end := m.Hub.AuditEnd(t)

			a.Send(t, commands.QueueResults, tt.say(asked))

			meshtest.Await(t, "the end", func() bool { return m.Agent(t, asked.Task).State.Terminal() })
			v := m.Agent(t, asked.Task)
			require.Equal(t, []any{tt.state, commands.ResultUnknown}, []any{v.State, v.Reason})
			var told commands.Result
			require.NoError(t, json.Unmarshal(v.Result, &told))
			require.Equal(t, asked.Task, told.Task)
			require.Contains(t, v.Sentence(), string(tt.state)+": its result could not be read here ("+string(tt.code)+"): ")
			require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE kind = 'agent.result' AND code = $1 AND re = $2 AND envelope <> ''`, string(tt.code), asked.Re.ID))
			require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'report.refused' AND code = $1 AND seq > $2`, string(tt.code), end))
		})
	}
}

// A hub whose version could not read a result has its agent running for ever: an answer of the spoke to any other question
// ends it.
func TestAnEndThatOnlyAnotherAnswerTells(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	for name, ask := range map[string]func(t *testing.T, task string){
		"a status": func(t *testing.T, task string) {
			m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/ask", nil, nil)
		},
		"a kill": func(t *testing.T, task string) {
			m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "it is stuck"}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}})
			meshtest.Await(t, "the end", func() bool { return m.Agent(t, task).State == commands.Completed })
			m.Hub.Exec(t, `ALTER TABLE mirrors DISABLE TRIGGER mirrors_terminal`)
			m.Hub.Exec(t, `UPDATE mirrors SET state = 'running', ended_at = NULL, ended_said = NULL, result = NULL, final_digest = NULL WHERE task = $1`, task)
			m.Hub.Exec(t, `ALTER TABLE mirrors ENABLE TRIGGER mirrors_terminal`)
			m.Hub.Exec(t, `UPDATE inbox SET code = 'BODY_JSON', envelope = '' WHERE kind = 'agent.result' AND re = (SELECT command FROM mirrors WHERE task = $1)`, task)

			ask(t, task)

			meshtest.Await(t, "the end by another answer", func() bool { return m.Agent(t, task).State == commands.Completed })
			v := m.Agent(t, task)
			require.Equal(t, commands.ResultUnknown, v.Reason)
			require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'mirror.completed' AND code = 'result_unknown' AND object = $1`, task))
		})
	}
}

// An answer that overtakes the result ends nothing: the result is still to come.
func TestAnAnswerBeforeTheResult(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	asked, last := a.Order(t, m), a.Order(t, m)
	accept(t, m, a, asked)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+asked.Task+"/kill", map[string]any{"reason": "enough"}, nil)
	re, _ := a.Ref(t, commands.KillKind, asked.Task)
	result := a.Seal(t, &commands.Result{Task: asked.Task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded, Summary: "all of it", EndedAt: time.Now().UnixMilli()}, asked.Re, nil).Envelope

	a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Killed{Task: asked.Task, State: commands.Completed, At: time.Now().UnixMilli()}, re, nil).Envelope)
	accept(t, m, a, last)
	require.False(t, m.Agent(t, asked.Task).State.Terminal())
	a.Send(t, commands.QueueResults, result)

	meshtest.Await(t, "the end", func() bool { return m.Agent(t, asked.Task).State == commands.Completed })
	require.Contains(t, string(m.Agent(t, asked.Task).Result), "all of it")
}
