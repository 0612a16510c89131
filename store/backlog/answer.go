package backlog

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// AnswerHere answers a question by the word of this host.
func (b *Backlog) AnswerHere(ctx context.Context, a commands.Answer) error {
	return b.db.Tx(ctx, "answering a question", func(ctx context.Context, tx *store.Tx) error {
		_, err := b.Answer(ctx, tx, Answerer{Actor: a.By}, a)
		return err
	})
}

// An Answerer is who answers a question. What a hub says of its people is its word: the audit names the hub.
type Answerer struct {
	Actor string
	Conn  string // whose task it has to be; "" = this host answers
}

// Answer answers a question. The first answer
// wins: a later one is a CONFLICT that says which did. The task goes on, which is told who asked for it. It returns
// the state of the task.
func (b *Backlog) Answer(ctx context.Context, tx *store.Tx, by Answerer, a commands.Answer) (commands.State, error) {
	q, err := b.holdQuestion(ctx, tx, a.Question)
	if err != nil {
		return "", err
	}
	if q.Task != a.Task {
		return "", unknownQuestion(a.Question)
	}
	if by.Conn != "" {
		known, err := KnownIn(ctx, tx, by.Conn, q.Task)
		if err != nil {
			return "", err
		}
		if !known {
			return "", unknownTask(a.Task)
		}
	}
	if q.State != commands.QuestionOpen {
		return "", store.AnsweredBefore(q)
	}
	asked := commands.Question{Options: q.Options}
	if err := asked.Fits(a.Answer); err != nil {
		return "", err
	}
	return b.settle(ctx, tx, q, commands.QuestionAnswered, by, a)
}

// holdQuestion reads a question as it is until the transaction ends: with the lease of its task, or the task.
func (b *Backlog) holdQuestion(ctx context.Context, tx *store.Tx, id string) (q Question, err error) {
	var task string
	err = tx.QueryRow(ctx, `SELECT task::text FROM questions WHERE id = $1`, id).Scan(&task)
	if err == pgx.ErrNoRows {
		return q, unknownQuestion(id)
	}
	if err == nil {
		err = holdStanding(ctx, tx, []string{task})
	}
	if err != nil {
		return q, err
	}
	list, err := questions(tx.Query(ctx, statement("question_by_id"), id))
	if err == nil && len(list) == 0 {
		err = unknownQuestion(id)
	}
	if err != nil {
		return q, err
	}
	return list[0], nil
}

// settle closes a question that is held and open, and lets its task go on.
func (b *Backlog) settle(ctx context.Context, tx *store.Tx, q Question, outcome string, by Answerer, a commands.Answer) (commands.State, error) {
	var at time.Time
	err := tx.QueryRow(ctx, statement("answer_question"), q.ID, outcome, a.Answer, a.By, a.Reason).Scan(&at)
	if err != nil {
		return "", fmt.Errorf("closing question %s: %w", q.ID, err)
	}
	m := Moved{Task: q.Task}
	var workspace string
	var digest []byte
	if err := tx.QueryRow(ctx, statement("after_answer"), q.Task).Scan(&workspace, &m.Attempt, &m.Epoch, &m.Conn, &m.Asked.Command, &digest, &m.State); err != nil {
		return "", fmt.Errorf("letting the agent of question %s go on: %w", q.ID, err)
	}
	m.Asked.Digest = hex.EncodeToString(digest)
	if m.State == commands.Queued {
		if _, err := pull(ctx, tx, []string{q.Task}); err != nil {
			return "", err
		}
		if err := place(ctx, tx, []string{q.Task}); err != nil {
			return "", err
		}
	}
	tx.Audit(store.AuditRow{Actor: by.Actor, Action: "task." + outcome, Object: q.Task, Why: a.Reason, Conn: by.Conn})
	if m.Conn == "" {
		return m.State, nil
	}
	m.Answered = &commands.Answered{Task: q.Task, State: m.State, Question: q.ID, Outcome: outcome, Answer: a.Answer, By: a.By, Reason: a.Reason, At: at.UnixMilli()}
	return m.State, b.moved(ctx, tx, []Moved{m})
}

// lapseQuestions closes those that nobody has answered in time: with their default, where they have one. It returns how many.
func (b *Backlog) lapseQuestions(ctx context.Context) (n int, err error) {
	type lapsed struct {
		ID, Task, Default string
		Over              bool
	}
	var list []lapsed
	err = b.db.Tx(ctx, "looking for questions that nobody has answered", func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Query(ctx, statement("lapsed_questions"), sweepBatch)
		if err != nil {
			return err
		}
		if list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[lapsed]); err != nil {
			return err
		}
		var over []string
		for _, q := range list {
			if q.Over {
				over = append(over, q.ID)
			}
		}
		if len(over) == 0 {
			return nil
		}
		_, err = tx.Exec(ctx, statement("withdraw_questions"), over)
		return err
	})
	for _, l := range list {
		if err != nil {
			return n, err
		}
		if !l.Over {
			err = b.lapse(ctx, l.ID, l.Default)
		}
		n++
	}
	return n, err
}

// lapse closes one question, each in a transaction of its own: each holds its task.
func (b *Backlog) lapse(ctx context.Context, id, answer string) error {
	return b.db.Tx(ctx, "closing a question that nobody has answered", func(ctx context.Context, tx *store.Tx) error {
		q, err := b.holdQuestion(ctx, tx, id)
		if err != nil || q.State != commands.QuestionOpen {
			return err
		}
		outcome := commands.QuestionUnanswered
		if answer != "" {
			outcome = commands.QuestionDefaulted
		}
		_, err = b.settle(ctx, tx, q, outcome, Answerer{Actor: "self"}, commands.Answer{Answer: answer})
		return err
	})
}

// isLeased reports whether an attempt holds a task; what is held cannot change.
func isLeased(ctx context.Context, tx *store.Tx, task string) (leased bool, err error) {
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM leases WHERE task = $1)`, task).Scan(&leased)
	return leased, err
}
