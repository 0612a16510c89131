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

// Answer answers a question. The first answer wins: a later one is a CONFLICT that says which did. The task goes on, which is
// told who asked for it. It returns the state of the task. Who may not answer holds up nobody.
func (b *Backlog) Answer(ctx context.Context, tx *store.Tx, by Answerer, a commands.Answer) (commands.State, error) {
	task, err := taskOfQuestion(ctx, tx, a.Question)
	if err == nil && task != a.Task {
		err = unknownQuestion(a.Question)
	}
	if err == nil && by.Conn != "" {
		known := false
		if known, err = KnownIn(ctx, tx, by.Conn, task); err == nil && !known {
			err = unknownTask(a.Task)
		}
	}
	if err != nil {
		return "", err
	}
	q, err := holdQuestion(ctx, tx, a.Question, task)
	if err == nil && q.State != commands.QuestionOpen {
		err = store.AnsweredBefore(q)
	}
	if err == nil {
		asked := commands.Question{Options: q.Options}
		err = asked.Fits(a.Answer)
	}
	if err != nil {
		return "", err
	}
	return b.settle(ctx, tx, q, commands.QuestionAnswered, by, a)
}

// taskOfQuestion returns the task that a question is about.
func taskOfQuestion(ctx context.Context, tx *store.Tx, id string) (task string, err error) {
	err = tx.QueryRow(ctx, `SELECT task::text FROM questions WHERE id = $1`, id).Scan(&task)
	if err == pgx.ErrNoRows {
		err = unknownQuestion(id)
	}
	return task, err
}

// holdQuestion reads a question of a task as it is until the transaction ends: with the lease of the task, or the task.
func holdQuestion(ctx context.Context, tx *store.Tx, id, task string) (q Question, err error) {
	if err := holdStanding(ctx, tx, []string{task}); err != nil {
		return q, err
	}
	q, err = questionByID(ctx, tx, id)
	if err == nil && q.Task != task {
		return Question{}, unknownQuestion(id)
	}
	return q, err
}

func questionByID(ctx context.Context, tx *store.Tx, id string) (q Question, err error) {
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
	name, another := a.By, ""
	if by.Conn != "" { // no hub speaks in the name of somebody of this host
		name = q.Hub + ": " + a.By
		another = name
	}
	err := tx.QueryRow(ctx, statement("answer_question"), q.ID, outcome, a.Answer, name, a.Reason).Scan(&at)
	if err != nil {
		return "", fmt.Errorf("closing question %s: %w", q.ID, err)
	}
	m, err := afterAnswer(ctx, tx, q.Task)
	if err != nil {
		return "", err
	}
	a.Question = q.ID
	tx.Audit(store.AuditRow{Actor: by.Actor, Action: "task." + outcome, Object: q.Task, Why: store.OfAnswer(a, another), Conn: by.Conn})
	if m.Conn == "" {
		return m.State, nil
	}
	m.Answered = &commands.Answered{Task: q.Task, State: m.State, Question: q.ID, Outcome: outcome, Answer: a.Answer, By: a.By, Reason: a.Reason, At: at.UnixMilli()}
	return m.State, b.moved(ctx, tx, []Moved{m})
}

// afterAnswer lets a task go on, a question of which was closed, and returns how it stands.
func afterAnswer(ctx context.Context, tx *store.Tx, task string) (Moved, error) {
	m := Moved{Task: task}
	var workspace string
	var digest []byte
	if err := tx.QueryRow(ctx, statement("after_answer"), task).Scan(&workspace, &m.Attempt, &m.Epoch, &m.Conn, &m.Asked.Command, &digest, &m.State); err != nil {
		return m, fmt.Errorf("letting the agent of task %s go on: %w", task, err)
	}
	m.Asked.Digest = hex.EncodeToString(digest)
	if m.State != commands.Queued {
		return m, nil
	}
	if _, err := pull(ctx, tx, []string{task}); err != nil {
		return m, err
	}
	return m, place(ctx, tx, []string{task})
}

// isLeased reports whether an attempt holds a task; what is held cannot change.
func isLeased(ctx context.Context, tx *store.Tx, task string) (leased bool, err error) {
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM leases WHERE task = $1)`, task).Scan(&leased)
	return leased, err
}
