package backlog_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What an attempt has asked that failed is withdrawn, and its hub is told. The next one waits for what it asks itself, also where that
// was asked before.
func TestAnAttemptWaitsForItsOwnQuestions(t *testing.T) {
	t.Parallel()
	here, facts := told(t)
	s := here.side
	ask := func(f backlog.Fence, key string) backlog.Question {
		i := inquiry
		i.Key = key
		q, err := s.backlog.Ask(t.Context(), f, i)
		require.NoError(t, err)
		return q
	}
	tries := func(q backlog.Question) (state commands.State, err error) {
		_, err = within(t.Context(), s, func(ctx context.Context, tx *store.Tx) (_ any, err error) {
			state, err = s.backlog.Answer(ctx, tx, backlog.Answerer{Actor: "test"}, commands.Answer{Task: q.Task, Question: q.ID, Answer: "allow", By: "test"})
			return nil, err
		})
		return state, err
	}
	answer := func(q backlog.Question) commands.State {
		state, err := tries(q)
		require.NoError(t, err)
		return state
	}
	first := here.started()
	old, again := ask(first, "old"), ask(first, "again")
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: first, Outcome: commands.AttemptFailed}}})
	require.NoError(t, err)
	withdrawn := map[string]*commands.Answered{}
	for _, m := range *facts {
		if m.Answered != nil {
			withdrawn[m.Answered.Question] = m.Answered
		}
	}
	require.Len(t, withdrawn, 2)
	for _, q := range []backlog.Question{old, again} {
		a := withdrawn[q.ID]
		require.NoError(t, a.Validate())
		require.Equal(t, []any{commands.QuestionWithdrawn, commands.Queued}, []any{a.Outcome, a.State})
	}
	require.NotNil(t, (*facts)[len(*facts)-1].End, "its hub hears last how the attempt has ended")
	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.withdrawn'`))
	require.NoError(t, s.Exec(`UPDATE due SET at = now()`))
	_, err = s.backlog.Sweep(t.Context(), 0)
	require.NoError(t, err)
	list, err := s.backlog.Claim(t.Context(), backlog.ClaimTerms{Owner: string(s.Self())})
	require.NoError(t, err)
	require.Len(t, list, 1)
	second := list[0].Fence
	require.Equal(t, 2, second.Attempt)

	_, err = tries(old)
	require.ErrorContains(t, err, "the attempt that asked it has ended")
	require.NoError(t, s.Exec(`UPDATE questions SET outcome = NULL, answered_at = NULL WHERE id = $1`, old.ID)) // as a restored database may have it
	_, err = s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: second, Pid: 1, BootID: "b"}}})
	require.NoError(t, err)
	require.Equal(t, commands.Running, answer(ask(second, "own")), "nobody waits for what only the first attempt has asked")
	mine := ask(second, "mine")
	asked := ask(second, "again")
	require.Equal(t, []any{2, commands.QuestionOpen, again.ID}, []any{asked.Attempt, asked.State, asked.ID})
	require.True(t, asked.AskedAt.After(again.AskedAt))
	require.True(t, asked.Deadline.After(again.Deadline))
	require.Equal(t, commands.AwaitingInput, answer(mine), "it asks the other one, too")
	require.Equal(t, commands.Running, answer(again))
}

// An agent withdraws its question as often as it says so: the answer to the first time may be lost.
func TestAQuestionIsWithdrawnTwice(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	f := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}.started()
	q, err := s.backlog.Ask(t.Context(), f, inquiry)
	require.NoError(t, err)

	for range 2 {
		closed, err := s.backlog.Withdraw(t.Context(), f, q.ID)

		require.NoError(t, err)
		require.Equal(t, []string{q.ID, commands.QuestionWithdrawn}, []string{closed.ID, closed.State})
	}
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.withdrawn'`))
}

// An agent asks 100 questions, and may ask each of them again.
func TestHowManyQuestionsAnAgentAsks(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	f := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}.started()
	ask := func(n int) error {
		i := inquiry
		i.Key = fmt.Sprint(n)
		_, err := s.backlog.Ask(t.Context(), f, i)
		return err
	}
	for n := range 100 {
		require.NoError(t, ask(n))
	}

	require.Equal(t, commands.TooMany, commands.CodeOf(ask(100)))
	require.NoError(t, ask(0))
	require.Equal(t, 100, s.Count(t, `SELECT count(*) FROM questions`))
}

// What agents say of their progress is read for each of them alone.
func TestTheLastStepsOfAgents(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	s.Meet(t, store.Obeys)
	here.asks(here.request(), here.request())
	at, said := int64(3), map[string]commands.Progress{}
	for i, c := range here.claim() {
		held, err := s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: c.Fence, Pid: 1, BootID: "b"}}})
		require.NoError(t, err)
		require.Equal(t, []bool{true}, held)
		p := []commands.Progress{{Step: "linking", Unit: "files"}, {Current: &at}}[i]
		said[c.Fence.Task] = p
		_, err = s.backlog.SayProgress(t.Context(), c.Fence, p)
		require.NoError(t, err)
	}

	last, err := s.backlog.LastSteps(t.Context(), string(s.Self()))

	require.NoError(t, err)
	require.Len(t, last, 2)
	for task, p := range said {
		require.Equal(t, p, last[task].Progress)
	}
}

// Who may not answer a question holds nothing: it waits for nobody who holds the task.
func TestWhoMayNotAnswerWaitsForNobody(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	a := here.asksFor()
	held := owner(t, s.URL)
	_, err := held.Exec(t.Context(), `BEGIN; SELECT FROM leases FOR UPDATE`)
	require.NoError(t, err)

	_, err = within(t.Context(), s, func(ctx context.Context, tx *store.Tx) (any, error) {
		return s.backlog.Answer(ctx, tx, backlog.Answerer{Actor: "x", Conn: "00000000-0000-4000-8000-000000000000"}, a)
	})
	require.Equal(t, commands.UnknownTask, commands.CodeOf(err))
	_, err = held.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
}

// However often attempts ask again what earlier ones have asked, so many reports tell it and no more: a hub suspends the connection
// of a spoke that says too much of one order.
func TestWhatAnAgentAsksAgainIsToldSoOften(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	told := 0
	s.backlog = backlog.Open(s.DB, func(_ context.Context, _ *store.Tx, facts []backlog.Moved) error {
		for _, m := range facts {
			if m.Question != nil || m.Stands {
				told++
			}
		}
		return nil
	})
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	f := here.started()
	ask := func(key string) error {
		i := inquiry
		i.Key = key
		_, err := s.backlog.Ask(t.Context(), f, i)
		return err
	}
	next := func() {
		require.NoError(t, s.Exec(`UPDATE leases SET attempt = attempt + 1, epoch = epoch + 1, asking = false`))
		f.Attempt, f.Epoch = f.Attempt+1, f.Epoch+1
	}
	const keys = 60
	for range 6 {
		for n := range keys {
			require.NoError(t, ask(fmt.Sprint("k", n)))
		}
		next()
	}
	require.Equal(t, 6*keys, told)
	for n := range 39 {
		require.NoError(t, ask(fmt.Sprint("k", n)))
	}
	require.NoError(t, s.Exec(`UPDATE leases SET paused = true, paused_at = now()`))

	require.Equal(t, commands.TooMany, commands.CodeOf(ask("k39")), "that it stands still would be told, too")

	require.Equal(t, 399, told)
	require.NoError(t, s.Exec(`UPDATE leases SET paused = false, paused_at = NULL`))
	require.NoError(t, ask("k39"))
	require.Equal(t, commands.TooMany, commands.CodeOf(ask("k40")))
	require.Equal(t, commands.TooMany, commands.CodeOf(ask("new")))
	require.Equal(t, 400, told)
}
