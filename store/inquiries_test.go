package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// reports lets the spoke of a pair say bodies in answer to the order of task, and returns them as the hub reads them.
func reports(t *testing.T, p *storetest.Pair, task string, bodies ...commands.Body) []*store.Incoming {
	t.Helper()
	var id, digest string
	require.NoError(t, p.Hub.DB.Read(t.Context(), "reading an order", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT command::text, encode(command_digest, 'hex') FROM mirrors WHERE task = $1`, task).Scan(&id, &digest)
	}))
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "telling", func(_ context.Context, tx *store.Tx) error {
		for _, b := range bodies {
			tx.Send(store.Draft{Conn: p.Spoke.Conn.ID, Body: b, Re: &signing.Ref{ID: id, SHA256: digest}})
		}
		return nil
	}))
	due := p.Spoke.Due(t)
	return p.Hub.Read(t, due[len(due)-len(bodies):]...)
}

func asked(task string) *commands.Question {
	return &commands.Question{Task: task, Attempt: 1, Question: storetest.NewID(), Text: "may I?", At: time.Now().UnixMilli(), Deadline: time.Now().Add(time.Hour).UnixMilli()}
}

func takenIn(t *testing.T, p *storetest.Pair, batch ...*store.Incoming) {
	t.Helper()
	_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, batch, store.MoveMirrors(storetest.Nowhere))
	require.NoError(t, err)
	for _, m := range batch {
		require.Empty(t, m.Code, m.Why)
	}
}

// What became of a question may come before the question, which stays closed then.
func TestAnAnswerComesBeforeItsQuestion(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	q := asked(task)
	batch := reports(t, p, task, q, &commands.Answered{Task: task, State: commands.Running, Question: q.Question, Outcome: commands.QuestionAnswered, Answer: "yes", By: "ann", At: q.At})

	takenIn(t, p, batch[1])
	takenIn(t, p, batch[0])

	list, err := p.Hub.DB.Inquiries(t.Context(), task)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, []string{commands.QuestionAnswered, "yes", "ann", "may I?"}, []string{list[0].State, list[0].Answer, list[0].AnsweredBy, list[0].Text})
}

// The questions of an agent that has ended are closed, and go with the agent.
func TestQuestionsEndWithTheirAgent(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	over, open := p.Order(t, nil), p.Order(t, nil)
	takenIn(t, p, reports(t, p, over, asked(over))...)
	takenIn(t, p, reports(t, p, open, asked(open))...)
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'failed', ended_at = now() - interval '40 days' WHERE task = $1`, over))
	list, err := p.Hub.DB.Inquiries(t.Context(), over)
	require.NoError(t, err)
	require.Equal(t, []string{commands.QuestionWithdrawn, "its agent has ended"}, []string{list[0].State, list[0].Reason})

	n, looked, err := p.Hub.DB.CloseInquiries(t.Context(), time.Time{})

	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.WithinDuration(t, time.Now(), looked, time.Minute)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM inquiries WHERE task = $1 AND outcome = 'withdrawn'`, over))
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM inquiries WHERE task = $1 AND outcome IS NULL`, open))
	_, err = p.Hub.DB.Prune(t.Context(), 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM inquiries`))
}

// Questions are looked at where an agent has ended since the last look, or may have: its end may be stored a while after its time.
func TestQuestionsAreLookedAtWhereAnAgentHasEnded(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	takenIn(t, p, reports(t, p, task, asked(task))...)
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'failed', ended_at = now() - interval '1 hour' WHERE task = $1`, task))
	closed := func(ago time.Duration) (n int) {
		n, _, err := p.Hub.DB.CloseInquiries(t.Context(), time.Now().Add(-ago))
		require.NoError(t, err)
		return n
	}

	require.Zero(t, closed(0))
	require.Equal(t, 1, closed(55*time.Minute))
}

// What agents have asked that have ended takes no place of a list, whether it was closed yet or not.
func TestQuestionsOfEndedAgentsTakeNoPlace(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	open, over := p.Order(t, nil), p.Order(t, nil)
	first := asked(open)
	takenIn(t, p, reports(t, p, open, first)...)
	for range 3 {
		takenIn(t, p, reports(t, p, over, asked(over))...)
	}
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'failed', ended_at = now() WHERE task = $1`, over))

	list, err := p.Hub.DB.OpenInquiries(t.Context(), store.QuestionPage{Limit: 2})

	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, first.Question, list[0].ID)
	counts := func() int64 {
		n, _, err := p.Hub.DB.QuestionFigures(t.Context())
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, 1, counts())
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET conn = $2 WHERE task = $1`, open, p.Another(t).Hub.Conn.ID)) // it is another's agent by now
	require.Zero(t, counts())
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET conn = $2 WHERE task = $1`, open, p.Hub.Conn.ID))
	require.NoError(t, p.Hub.Exec(`UPDATE inquiries SET outcome = 'withdrawn', answered_at = now() WHERE task = $1`, open))
	require.Zero(t, counts())
}

// A list of questions is in the order in which the hub heard of them, whatever the clock of a spoke says.
func TestQuestionsAreListedAsTheyCame(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	for i := range 3 {
		q := asked(task)
		q.At -= int64(i) * 1_000_000 // each later one says that it is older
		q.Text = string(rune('a' + i))
		takenIn(t, p, reports(t, p, task, q)...)
	}
	list, err := p.Hub.DB.OpenInquiries(t.Context(), store.QuestionPage{Limit: 4})
	require.NoError(t, err)
	open, oldest, err := p.Hub.DB.QuestionFigures(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, open)
	require.Positive(t, oldest)
	require.Less(t, oldest, time.Minute, "the clock of a spoke makes none older")
	require.Len(t, list, 3)
	require.Equal(t, []string{"c", "b", "a"}, []string{list[0].Text, list[1].Text, list[2].Text})
}

// Pages have each open question once, also of a spoke that asks hundreds, which keep none of another from its place; nor do
// those that it has called answered and asks again.
func TestNoSpokeTakesThePlaceOfOthers(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	said := func(p *storetest.Pair, task string, bodies ...commands.Body) {
		t.Helper()
		_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, reports(t, p, task, bodies...), store.MoveMirrors(storetest.Nowhere))
		require.NoError(t, err)
	}
	hundred := func() (task string, questions, answers []commands.Body) {
		task = p.Order(t, nil)
		for range commands.MaxQuestions {
			q := asked(task)
			q.Data = "more of it"
			questions = append(questions, q)
			answers = append(answers, &commands.Answered{Task: task, State: commands.Running, Question: q.Question, Outcome: commands.QuestionAnswered, Answer: "yes", By: "ann", At: q.At})
		}
		return task, questions, answers
	}
	other := p.Another(t)
	task := other.Order(t, nil)
	said(other, task, asked(task))
	task, questions, answers := hundred()
	said(p, task, questions...)
	said(p, task, answers...)
	for range 2 {
		task, questions, _ := hundred()
		said(p, task, questions...)
	}
	said(p, task, questions...)

	var list []store.Question
	for page := (store.QuestionPage{Limit: 64}); len(list)%page.Limit == 0; page.After = list[len(list)-1].Place() {
		part, err := p.Hub.DB.OpenInquiries(t.Context(), page)
		require.NoError(t, err)
		list = append(list, part...)
	}

	require.Len(t, list, 301)
	require.Equal(t, "cellar", list[200].Spoke)
	once := map[string]bool{}
	for i, q := range list {
		once[q.ID] = true
		require.Empty(t, q.Data)
		require.Equal(t, i > 200, q.Task == task, i)
	}
	require.Len(t, once, 301)
}

// What is open is counted once for all reports that come together, and not without end; a question that is asked again keeps its turn.
func TestReportsOfQuestionsCountWhatIsOpenOnce(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task, other := p.Order(t, nil), p.Order(t, nil)
	first := asked(task)
	takenIn(t, p, reports(t, p, task, first)...)
	require.NoError(t, p.Hub.Exec(`INSERT INTO inquiries (conn, id, task, attempt, seq, question, options, fallback, data, asked_at, deadline)
		SELECT $1, gen_random_uuid(), $2, 1, 1, 'may I?', '{}', '', '', now(), now() FROM generate_series(1, 3000)`, p.Hub.Conn.ID, other))
	batch := make([]commands.Body, 20)
	for i := range batch {
		batch[i] = first
	}
	batch[len(batch)-1] = asked(task)
	var read int

	_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, reports(t, p, task, batch...), func(ctx context.Context, tx *store.Tx, from store.Standing, fresh []*store.Incoming) error {
		if err := store.MoveMirrors(storetest.Nowhere)(ctx, tx, from, fresh); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_index WHERE indrelid = 'inquiries'::regclass`).Scan(&read)
	})

	require.NoError(t, err)
	require.Less(t, read, 2500, "entries of indexes")
	require.Equal(t, 3001, p.Hub.Count(t, `SELECT count(*) FROM inquiries WHERE turn = 0`))
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM inquiries WHERE turn = -10`))
}

// What this hub has answered is kept beside what its spoke says of it, whatever that says, and in the audit.
func TestASpokeDoesNotRewriteAnAnswer(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]func(p *storetest.Pair, task string, q *commands.Question) []commands.Body{
		"another answer": func(_ *storetest.Pair, task string, q *commands.Question) []commands.Body {
			return []commands.Body{&commands.Answered{Task: task, State: commands.Running, Question: q.Question, Outcome: commands.QuestionAnswered, Answer: "approve", By: "token:ann", At: q.At}}
		},
		"that nobody has": func(_ *storetest.Pair, task string, q *commands.Question) []commands.Body {
			return []commands.Body{&commands.Answered{Task: task, State: commands.Running, Question: q.Question, Outcome: commands.QuestionUnanswered, At: q.At}}
		},
		"asked again, and another answer": func(_ *storetest.Pair, task string, q *commands.Question) []commands.Body {
			other := &commands.Answered{Task: task, State: commands.Running, Question: q.Question, Outcome: commands.QuestionAnswered, Answer: "approve", By: "token:ann", At: q.At}
			return []commands.Body{other, q, other}
		},
		"other words for the question": func(_ *storetest.Pair, task string, q *commands.Question) []commands.Body {
			other := *q
			other.Text, other.Options = "keep the logs?", nil
			return []commands.Body{&other, &commands.Answered{Task: task, State: commands.Running, Question: q.Question, Outcome: commands.QuestionAnswered, Answer: "approve", By: "token:ann", At: q.At}}
		},
	} {
		p := storetest.NewPair(t)
		task := p.Order(t, nil)
		q := asked(task)
		takenIn(t, p, reports(t, p, task, q)...)
		require.NoError(t, p.Hub.DB.OrderAnswer(t.Context(), commands.Answer{Task: task, Question: q.Question, Answer: "deny", By: "token:ann", Reason: "too dear"}))
		for _, m := range reports(t, p, task, says(p, task, q)...) {
			_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, []*store.Incoming{m}, store.MoveMirrors(storetest.Nowhere))
			require.NoError(t, err)
			other, asks := m.Body.(*commands.Question)
			require.Equal(t, asks && other.Text != q.Text, m.Code == commands.Validation, "%s: %s", name, m.Why)
		}

		list, err := p.Hub.DB.Inquiries(t.Context(), task)
		require.NoError(t, err)
		require.NotNil(t, list[0].Sent, name)
		require.Equal(t, "deny", list[0].Sent.Answer)
		require.Contains(t, list[0].Differs(), `this hub sent "deny" by token:ann; its spoke says `)
		require.Equal(t, q.Text, list[0].Text, name)
		require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.answer_ordered' AND why = $1`, commands.ShortID(q.Question)+`; "deny"; too dear`))
	}
}

// A question that is asked again has no answer, whatever its spoke had said of it before.
func TestAQuestionThatIsAskedAgainHasNoAnswer(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	q := asked(task)
	answered := &commands.Answered{Task: task, State: commands.Running, Question: q.Question, Outcome: commands.QuestionAnswered, Answer: "yes", By: "ann", Reason: "go on", At: q.At}

	takenIn(t, p, reports(t, p, task, q, answered, q)...)

	list, err := p.Hub.DB.Inquiries(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, []string{commands.QuestionOpen, "", "", ""}, []string{list[0].State, list[0].Answer, list[0].AnsweredBy, list[0].Reason})
}

// A question that its spoke does not know is closed by the refusal of its answer; one that it may not answer now stays open.
func TestARefusedAnswer(t *testing.T) {
	t.Parallel()
	for code, state := range map[commands.Code]string{
		commands.NotFound: commands.QuestionWithdrawn, commands.UnknownTask: commands.QuestionWithdrawn, commands.Grant: commands.QuestionOpen, commands.Conflict: commands.QuestionOpen,
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			task := p.Order(t, nil)
			q := asked(task)
			takenIn(t, p, reports(t, p, task, q)...)
			p.Hub.Due(t)
			require.NoError(t, p.Hub.DB.OrderAnswer(t.Context(), commands.Answer{Task: task, Question: q.Question, Answer: "deny", By: "ann"}))
			order := p.Spoke.Read(t, p.Hub.Due(t)...)[0]
			require.NoError(t, p.Spoke.DB.Tx(t.Context(), "refusing", func(_ context.Context, tx *store.Tx) error {
				order.Refuse(tx, commands.Refuse(code, "not here"))
				return nil
			}))

			takenIn(t, p, p.Hub.Read(t, p.Spoke.Due(t)...)...)

			list, err := p.Hub.DB.Inquiries(t.Context(), task)
			require.NoError(t, err)
			require.Equal(t, []string{state, "not here"}, []string{list[0].State, list[0].Reason})
			require.Equal(t, state == commands.QuestionOpen, p.Hub.DB.OrderAnswer(t.Context(), commands.Answer{Task: task, Question: q.Question, Answer: "allow", By: "ann"}) == nil, "it may be answered again")
		})
	}
}

// An answer that comes too late is in the audit as refused, once, with the answer that stands, whichever word comes first.
func TestARefusedAnswerIsInTheAudit(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	q := asked(task)
	takenIn(t, p, reports(t, p, task, q)...)
	p.Hub.Due(t)
	require.NoError(t, p.Hub.DB.OrderAnswer(t.Context(), commands.Answer{Task: task, Question: q.Question, Answer: "allow", By: "ann", Reason: "host away"}))
	order := p.Spoke.Read(t, p.Hub.Due(t)...)[0]
	takenIn(t, p, reports(t, p, task, &commands.Answered{Task: task, State: commands.Running, Question: q.Question, Outcome: commands.QuestionAnswered, Answer: "deny", By: "bob", At: q.At})...)
	for range 2 {
		require.NoError(t, p.Spoke.DB.Tx(t.Context(), "refusing", func(_ context.Context, tx *store.Tx) error {
			order.Refuse(tx, commands.Refuse(commands.Conflict, "bob has answered deny"))
			return nil
		}))
	}

	takenIn(t, p, p.Hub.Read(t, p.Spoke.Due(t)...)...)

	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.answer_refused'`))
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.answer_refused' AND object = $1 AND code = 'CONFLICT' AND why = 'bob has answered deny' AND actor = $2 AND conn = $3`,
		task, string(p.Spoke.Self()), p.Hub.Conn.ID))
}

// A spoke that was restored may not know what was asked and answered since: asked again, the question gets the answer that this hub has
// given, and no one that somebody else had.
func TestAnAnswerThatARestoreLostIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answered *commands.Answered // and else the spoke says that it knows no such question
		again    bool
	}{
		"it was taken":             {&commands.Answered{Outcome: commands.QuestionAnswered, Answer: "allow", By: "ann"}, true},
		"it came before":           {nil, true},
		"its host had answered it": {&commands.Answered{Outcome: commands.QuestionAnswered, Answer: "allow", By: "bob"}, false},
		"it was withdrawn":         {&commands.Answered{Outcome: commands.QuestionWithdrawn}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			task := p.Order(t, nil)
			q := asked(task)
			takenIn(t, p, reports(t, p, task, q)...)
			p.Hub.Due(t)
			require.NoError(t, p.Hub.DB.OrderAnswer(t.Context(), commands.Answer{Task: task, Question: q.Question, Answer: "allow", By: "ann", Reason: "so"}))
			order := p.Spoke.Read(t, p.Hub.Due(t)...)[0]
			if a := tt.answered; a != nil {
				a.Task, a.State, a.Question, a.At = task, commands.Running, q.Question, q.At
				takenIn(t, p, reports(t, p, task, a)...)
			} else {
				require.NoError(t, p.Spoke.DB.Tx(t.Context(), "refusing", func(_ context.Context, tx *store.Tx) error {
					order.Refuse(tx, commands.Refuse(commands.NotFound, "no such question"))
					return nil
				}))
				takenIn(t, p, p.Hub.Read(t, p.Spoke.Due(t)...)...)
			}

			takenIn(t, p, reports(t, p, task, q)...)

			list, err := p.Hub.DB.Inquiries(t.Context(), task)
			require.NoError(t, err)
			require.Equal(t, commands.QuestionOpen, list[0].State)
			require.Equal(t, tt.again, list[0].Sent != nil)
			n := 1
			if tt.again {
				n = 2
			}
			require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.answer_ordered' AND actor = 'ann'`))
			require.Equal(t, n-1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.answer_resent' AND actor = 'self'`))
			require.Equal(t, n, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE kind = 'agent.answer'`))
		})
	}
}

// A spoke that calls a question answered and asks it again, without end, gets the answer a few times more. Nothing of that is said to be
// an act of the person who gave it, and then the question is open to be answered anew.
func TestAnAnswerIsSentAgainAFewTimes(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	q := asked(task)
	takenIn(t, p, reports(t, p, task, q)...)
	answer := commands.Answer{Task: task, Question: q.Question, Answer: "allow", By: "token:ann", Reason: "so"}
	require.NoError(t, p.Hub.DB.OrderAnswer(t.Context(), answer))
	first := openInquiry(t, p, task)
	again := func() store.Question {
		t.Helper()
		takenIn(t, p, reports(t, p, task, &commands.Answered{Task: task, State: commands.Running, Question: q.Question, Outcome: commands.QuestionAnswered, Answer: answer.Answer, By: answer.By, At: q.At}, q)...)
		return openInquiry(t, p, task)
	}
	for range 3 {
		require.Equal(t, first.Sent, again().Sent, "it is what she said, when she said it")
	}

	left := again()

	require.Nil(t, left.Sent, "none is on its way")
	require.Equal(t, "its spoke has lost the answer of token:ann 4 times; it is not sent again until somebody answers", left.Reason)
	require.Equal(t, left, again())
	rows := func(actor, action, why string) int {
		return p.Hub.Count(t, `SELECT count(*) FROM audit WHERE actor = $1 AND action = $2 AND why = $3`, actor, action, commands.ShortID(q.Question)+why)
	}
	require.Equal(t, 1, rows("token:ann", "task.answer_ordered", `; "allow"; so`))
	require.Equal(t, 3, rows("self", "task.answer_resent", `; "allow"; as token:ann answered at `+first.Sent.At.Format(time.RFC3339)+`; so`))
	answer.By, answer.Answer = "token:bob", "deny"
	require.NoError(t, p.Hub.DB.OrderAnswer(t.Context(), answer))
	require.Empty(t, openInquiry(t, p, task).Reason, "what is on its way now was not lost")
	require.Equal(t, 2, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.answer_ordered'`))
	require.Equal(t, []string{"deny", "token:bob"}, []string{again().Sent.Answer, again().Sent.By}, "the new one is sent again, too")
	require.Equal(t, 7, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE kind = 'agent.answer'`))
}

// openInquiry is the one question of a task, which is open.
func openInquiry(t *testing.T, p *storetest.Pair, task string) store.Question {
	t.Helper()
	list, err := p.Hub.DB.Inquiries(t.Context(), task)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, commands.QuestionOpen, list[0].State)
	return list[0]
}

// An answer that was taken, and that its spoke refuses when it comes once more after a restore, is none that was refused.
func TestAnAnswerThatWasTakenIsNotRefused(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	q := asked(task)
	takenIn(t, p, reports(t, p, task, q)...)
	p.Hub.Due(t)
	require.NoError(t, p.Hub.DB.OrderAnswer(t.Context(), commands.Answer{Task: task, Question: q.Question, Answer: "allow", By: "ann"}))
	order := p.Spoke.Read(t, p.Hub.Due(t)...)[0]
	takenIn(t, p, reports(t, p, task, &commands.Answered{Task: task, State: commands.Running, Question: q.Question, Outcome: commands.QuestionAnswered, Answer: "allow", By: "ann", At: q.At})...)
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "refusing", func(_ context.Context, tx *store.Tx) error {
		order.Refuse(tx, commands.Refuse(commands.Conflict, "its agent went on after the backup"))
		return nil
	}))

	takenIn(t, p, p.Hub.Read(t, p.Spoke.Due(t)...)...)

	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.answer_refused'`))
	list, err := p.Hub.DB.Inquiries(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, []string{commands.QuestionAnswered, "allow", "ann"}, []string{list[0].State, list[0].Answer, list[0].AnsweredBy})
}

// A deadline that no order lives to see, which an earlier version took, can be answered.
func TestAQuestionWithADistantDeadlineIsAnswered(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	q := asked(task)
	takenIn(t, p, reports(t, p, task, q)...)
	require.NoError(t, p.Hub.Exec(`UPDATE inquiries SET deadline = '9999-12-30' WHERE task = $1`, task))

	require.NoError(t, p.Hub.DB.OrderAnswer(t.Context(), commands.Answer{Task: task, Question: q.Question, Answer: "yes", By: "ann"}))

	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE kind = 'agent.answer' AND exp > now() + interval '20 days'`))
}

// A spoke that was restored may have forgotten what its agents have asked: that there are too many questions of one is refused, and
// nobody's fault. That a question is of another agent is.
func TestTooManyQuestionsAreNobodysFault(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task, other := p.Order(t, nil), p.Order(t, nil)
	var bodies []commands.Body
	for range commands.MaxQuestions {
		bodies = append(bodies, asked(task))
	}
	takenIn(t, p, reports(t, p, task, bodies...)...)
	stolen := asked(other)
	stolen.Question = bodies[0].(*commands.Question).Question
	batch := append(reports(t, p, task, asked(task)), reports(t, p, other, stolen)...)

	_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, batch, store.MoveMirrors(storetest.Nowhere))

	require.NoError(t, err)
	require.Equal(t, []signing.Code{commands.TooMany, commands.Validation}, []signing.Code{batch[0].Code, batch[1].Code})
	require.Equal(t, []store.Fault{store.None, store.Wrong}, []store.Fault{batch[0].Fault(), batch[1].Fault()})
}

// However much was said of an order, its end is taken, once.
func TestTheEndOfAnOrderIsNeverTooMuch(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(task string) (commands.Body, commands.State){
		"a result": func(task string) (commands.Body, commands.State) {
			return &commands.Result{Task: task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded}, commands.Completed
		},
		"a refusal": func(task string) (commands.Body, commands.State) {
			return &commands.RefusedBody{Task: task, Code: commands.Policy, Why: "no"}, commands.Unavailable
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			task := p.Order(t, nil)
			require.NoError(t, p.Hub.Exec(`INSERT INTO inbox (conn, id, seq, digest, kind, re, task, exp, envelope)
				SELECT conn, gen_random_uuid(), -n, '', 'agent.started', command, task, now() + interval '1 day', 'x' FROM mirrors, generate_series(1, 2001) AS n WHERE task = $1`, task))
			body, state := end(task)
			take := func(b commands.Body) *store.Incoming {
				batch := reports(t, p, task, b)
				_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, batch, store.MoveMirrors(storetest.Nowhere))
				require.NoError(t, err)
				return batch[0]
			}
			require.Equal(t, commands.TooMany, take(&commands.Started{Task: task, Attempt: 1, At: 1}).Code)

			require.Empty(t, take(body).Code)

			require.Equal(t, state, p.Mirror(t, task).State)
			again := take(body)
			require.Equal(t, commands.TooMany, again.Code)
			require.Equal(t, store.Wrong, again.Fault())
		})
	}
}
