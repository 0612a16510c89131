package meshtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// refQuestion is what an agent has asked, under one key.
type refQuestion struct {
	id, fallback string
	attempt      int    // that waits for it, at the spoke
	outcome      string // "" = open
	answer       string
	after        []commands.State // of its task, whenever it was closed

	// At the hub.
	told, closed, sent bool
	seq                int64 // of the newest report of it: an older one opens and closes nothing
}

// asking reports whether the last attempt of a task has an open question.
func (t *refTask) asking() bool {
	for _, q := range t.questions {
		if q.outcome == "" && q.attempt == t.attempt {
			return true
		}
	}
	return false
}

// speaks reports whether what the agent of f says counts: not once it is being killed.
func (t *refTask) speaks(f backlog.Fence) bool { return t.holds(f) && !t.killed }

// close ends an open question, and the task goes on that waits for nothing else.
func (t *refTask) close(q *refQuestion, outcome, answer string) {
	q.outcome, q.answer = outcome, answer
	switch {
	case t.asking() || t.state != commands.AwaitingInput:
	case t.leased:
		t.state = commands.Running
	default: // an answer ends no wait for a time
		t.state = commands.Queued
		t.epoch++
	}
	q.after = append(q.after, t.state)
}

// withdrawAll closes what an attempt has asked that is followed by another one, or may be.
func (t *refTask) withdrawAll() {
	for _, q := range t.questions {
		if q.outcome == "" {
			t.close(q, commands.QuestionWithdrawn, "")
		}
	}
}

// answered is what the answer of a hub does: the first one counts.
func (t *refTask) answered(a *commands.Answer) (counts bool) {
	for _, q := range t.questions {
		if q.id == a.Question && q.outcome == "" && !t.state.Terminal() {
			t.close(q, commands.QuestionAnswered, a.Answer)
			return true
		}
	}
	return false
}

// hear is what a hub learns of questions.
func (t *refTask) hear(tb testing.TB, m *store.Incoming) {
	for _, q := range t.questions {
		newer := m.Header.Seq > q.seq
		switch b := m.Body.(type) {
		case *commands.Question:
			if b.Question != q.id {
				continue
			}
			if q.told = true; newer {
				q.closed, q.sent = false, q.sent && !q.closed
			}
		case *commands.Answered:
			if b.Question != q.id {
				continue
			}
			require.Contains(tb, q.after, b.State, "state of task %d after an answer", t.order)
			q.closed = q.closed || newer
		default:
			continue
		}
		q.seq = max(q.seq, m.Header.Seq)
	}
}

// ask lets the agent of some fence ask a question, for the first time or once more.
func (m *machine) ask(rt *rapid.T) {
	m.askAs(m.fence(rt), rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key"))
}

func (m *machine) askAs(f backlog.Fence, key string) {
	t := m.ref.tasks[f.Task]
	inquiry := backlog.Inquiry{Key: key, What: commands.Question{Text: "may I?"}, For: time.Hour}
	if key == "a" {
		inquiry.What.Default = "no"
	}

	got, err := m.backlog.Ask(m.Context(), f, inquiry)

	require.Equal(m, t.speaks(f) && t.state != commands.Claimed, err == nil, "%+v: %v", f, err)
	if err == nil {
		q := t.questions[key]
		if q == nil {
			q = &refQuestion{id: got.ID, fallback: inquiry.What.Default}
			t.questions[key] = q
		}
		require.Equal(m, q.id, got.ID)
		if q.outcome == commands.QuestionWithdrawn && q.attempt < t.attempt {
			q.outcome = ""
		}
		if q.outcome == "" {
			q.attempt = t.attempt
		}
		if q.outcome == "" && !t.pause.proven { // else it was on its way when its agent was made to stand still
			t.state = commands.AwaitingInput
		}
		require.Equal(m, q.answer, got.Answer)
	}
	m.say()
}

// question draws one that was asked, mostly one that is open.
func (m *machine) question(rt *rapid.T) (*refTask, string, *refQuestion) {
	var asked, open []*refQuestion
	of := map[*refQuestion]string{}
	for _, id := range m.ids {
		for _, key := range []string{"a", "b"} {
			if q := m.ref.tasks[id].questions[key]; q != nil {
				asked, of[q] = append(asked, q), id
				if q.outcome == "" && !m.ref.tasks[id].state.Terminal() {
					open = append(open, q)
				}
			}
		}
	}
	if len(asked) == 0 {
		rt.Skip("nothing is asked yet")
	}
	if len(open) > 0 && rapid.IntRange(0, 3).Draw(rt, "any") > 0 {
		asked = open
	}
	q := asked[rapid.IntRange(0, len(asked)-1).Draw(rt, "question")]
	return m.ref.tasks[of[q]], of[q], q
}

// answerHere answers at the host of the agent.
func (m *machine) answerHere(rt *rapid.T) {
	t, id, q := m.question(rt)
	a := commands.Answer{Task: id, Question: q.id, Answer: "yes, says its host", By: "test"}

	err := m.backlog.AnswerHere(m.Context(), a)

	require.Equal(m, t.answered(&a), err == nil, "%v", err)
	m.say()
}

// answer orders an answer at the hub, which sends one at most.
func (m *machine) answer(rt *rapid.T) {
	t, id, q := m.question(rt)
	may := q.told && !q.closed && !t.hub.Terminal()

	err := m.Hub.DB.OrderAnswer(m.Context(), commands.Answer{Task: id, Question: q.id, Answer: "yes", By: "test"})

	if err == nil {
		require.True(m, may, "what is closed was answered")
	} else {
		require.False(m, may && !q.sent, "%v", err)
	}
	q.sent = q.sent || err == nil
	m.say()
}

// withdraw lets the agent of some fence need no answer any more.
func (m *machine) withdraw(rt *rapid.T) {
	t, _, q := m.question(rt)
	f := m.fence(rt)
	open := q.outcome == "" && !t.state.Terminal()

	_, err := m.backlog.Withdraw(m.Context(), f, q.id)

	require.Equal(m, m.ref.tasks[f.Task] == t && t.speaks(f) && (open || q.outcome == commands.QuestionWithdrawn), err == nil, "%v", err)
	if err == nil && open {
		t.close(q, commands.QuestionWithdrawn, "")
	}
	m.say()
}

// lapse lets the time of every open question run out, that of "a" first.
func (m *machine) lapse(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "lapse") > 0 {
		rt.Skip("not yet")
	}
	m.lapseAll()
}

func (m *machine) lapseAll() {
	require.NoError(m, m.Spoke.Exec(`UPDATE questions SET deadline = statement_timestamp() - CASE key WHEN 'a' THEN interval '1 ms' ELSE '0' END WHERE outcome IS NULL`))
	_, err := m.backlog.Sweep(m.Context(), time.Second)
	require.NoError(m, err)
	for _, t := range m.ref.tasks {
		for _, key := range []string{"a", "b"} { // in the order of their deadlines
			q := t.questions[key]
			switch {
			case q == nil || q.outcome != "" || t.state.Terminal():
			case q.fallback != "":
				t.close(q, commands.QuestionDefaulted, q.fallback)
			default:
				t.close(q, commands.QuestionUnanswered, "")
			}
		}
	}
	m.say()
}

// sameAnswers compares what both sides tell of every question, once each has heard everything.
func (m *machine) sameAnswers() {
	for id, t := range m.ref.tasks {
		here, err := m.backlog.Questions(m.Context(), id)
		require.NoError(m, err)
		there, err := m.Hub.DB.Inquiries(m.Context(), id)
		require.NoError(m, err)
		require.Equal(m, t.outcomes(), outcomes(here), "questions of task %d at the spoke", t.order)
		require.Equal(m, t.outcomes(), outcomes(there), "questions of task %d at the hub", t.order)
	}
}

// outcomes are those of a task that has ended.
func (t *refTask) outcomes() map[string]string {
	of := map[string]string{}
	for _, q := range t.questions {
		if of[q.id] = q.outcome + ": " + q.answer; q.outcome == "" {
			of[q.id] = commands.QuestionWithdrawn + ": "
		}
	}
	return of
}

func outcomes(list []store.Question) map[string]string {
	of := map[string]string{}
	for _, q := range list {
		of[q.ID] = q.State + ": " + q.Answer
	}
	return of
}
