package backlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Question is what an agent that runs here has asked, and what was answered.
type Question = store.Question

// An Inquiry is a question as its agent asks it.
type Inquiry struct {
	Key  string // the agent's own: what it asks again with the same key is the same question
	What commands.Question
	For  time.Duration // until the deadline
}

// Validate checks i, and says what holds where nobody answers; the error is a [*commands.Refused].
func (i *Inquiry) Validate() error {
	if err := checkText("the key of the question", i.Key, MaxKey, true); err != nil {
		return err
	}
	switch {
	case i.Key == "":
		return commands.Refuse(commands.Validation, "the question has no key").Hinting("give it a name of its own, by which it is known when it is asked again")
	case i.For < time.Second || i.For > commands.MaxQuestionFor:
		return commands.Refuse(commands.Validation, "a question may wait for 1s to 30d, not %s", commands.Lasting(i.For))
	}
	i.What.Default = i.What.Fallback()
	return i.What.CheckText()
}

// questionID follows from task and key, so that what is asked again after a restore is the same question.
func (b *Backlog) questionID(task, key string) string {
	sum := sha256.Sum256([]byte(string(b.db.Self()) + "\x00" + task + "\x00" + key))
	id, _ := uuid.FromBytes(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id.String()
}

// errNotStarted is for an agent that asks before the proof of its start is stored, which is under way.
var errNotStarted = commands.Refuse(commands.NotReady, "the start of this attempt is not recorded yet").Hinting("ask again in a moment")

// Ask keeps a question of the attempt of f, and its task waits for an answer. One with the same key is the same
// question: it is returned as it stands, be it answered. What was withdrawn a later attempt asks anew.
func (b *Backlog) Ask(ctx context.Context, f Fence, i Inquiry) (q Question, err error) {
	if err := i.Validate(); err != nil {
		return q, err
	}
	err = b.db.Tx(ctx, "asking a question", func(ctx context.Context, tx *store.Tx) error {
		m := Moved{Task: f.Task, Attempt: f.Attempt, Epoch: f.Epoch, State: commands.AwaitingInput}
		var workspace string
		var started, asking, still bool
		var digest []byte
		err := tx.QueryRow(ctx, statement("hold_asker"), f.Task, f.Attempt, f.Epoch).Scan(&workspace, &started, &asking, &still, &m.Conn, &m.Asked.Command, &digest)
		if err == pgx.ErrNoRows {
			return overtaken(ctx, tx, f)
		}
		if err == nil && !started {
			err = errNotStarted
		}
		if err != nil {
			return err
		}
		m.Asked.Digest = hex.EncodeToString(digest)
		fresh := false
		if q, fresh, err = b.findOrAsk(ctx, tx, f, workspace, i); err != nil || q.State != commands.QuestionOpen || !fresh && asking && q.Attempt == f.Attempt {
			return err
		}
		reports := 0
		if m.Conn != "" {
			if reports = 1; still {
				reports = 2
			}
			if err := roomToAsk(ctx, tx, f.Task, reports); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, statement("begin_waiting"), f.Task, q.ID, f.Attempt, reports); err != nil {
			return err
		}
		if fresh {
			tx.Audit(store.AuditRow{Actor: "self", Action: "task.question", Object: f.Task, Why: q.ShortID})
		}
		if m.Conn == "" {
			return nil
		}
		q.Attempt = f.Attempt
		m.Question = q.Asked(f.Attempt)
		if err := b.moved(ctx, tx, []Moved{m}); err != nil || !still {
			return err
		}
		_, err = b.tellStanding(ctx, tx, f.Task) // it was on its way when its agent was made to stand still
		return err
	})
	return q, err
}

// maxAsked bounds the reports of one task that its agent asks. A question that later attempts ask again is told again each time,
// and of more answers to one order than it can have a hub takes no notice (store.maxAnswers).
const maxAsked = 4 * commands.MaxQuestions

// roomToAsk refuses what needs more reports than there may be. The task is held.
func roomToAsk(ctx context.Context, tx *store.Tx, task string, reports int) error {
	told := 0
	if err := tx.QueryRow(ctx, `SELECT coalesce(sum(told), 0)::int FROM questions WHERE task = $1`, task).Scan(&told); err != nil {
		return err
	}
	if told+reports > maxAsked {
		return commands.Refuse(commands.TooMany, "agent %s has asked %d times, with what later attempts have asked again, which is the limit", commands.ShortID(task), told)
	}
	return nil
}

// findOrAsk returns the question with the key of i, and whether it is asked now: for the first time, or by a later attempt than that
// whose question was withdrawn.
func (b *Backlog) findOrAsk(ctx context.Context, tx *store.Tx, f Fence, workspace string, i Inquiry) (q Question, fresh bool, err error) {
	list, err := questions(tx.Query(ctx, statement("question_by_key"), f.Task, i.Key))
	if err != nil {
		return q, false, err
	}
	if len(list) > 0 {
		q = list[0]
		if w := i.What; q.Text != w.Text || !slices.Equal(q.Options, w.Options) || q.Default != w.Default || q.Data != w.Data {
			return q, false, commands.Refuse(commands.Idempotency, "another question was asked with the key %q", commands.Clip(i.Key)).Hinting("ask this one with a key of its own")
		}
		if q.State != commands.QuestionWithdrawn || q.Attempt >= f.Attempt {
			return q, false, nil
		}
		q.State, q.Reason, q.AnsweredBy, q.AnsweredAt = commands.QuestionOpen, "", "", nil
		err = tx.QueryRow(ctx, statement("reopen_question"), q.ID, i.For).Scan(&q.AskedAt, &q.Deadline)
		return q, true, err
	}
	n := 0
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM questions WHERE task = $1`, f.Task).Scan(&n); err != nil {
		return q, false, err
	}
	if n >= commands.MaxQuestions {
		return q, false, commands.Refuse(commands.TooMany, "agent %s has asked %d questions, which is the limit", commands.ShortID(f.Task), n)
	}
	q = Question{ID: b.questionID(f.Task, i.Key), Key: i.Key, Task: f.Task, Attempt: f.Attempt, Text: i.What.Text, Options: i.What.Options, Default: i.What.Default, Data: i.What.Data, State: commands.QuestionOpen}
	err = tx.QueryRow(ctx, statement("ask_question"), q.ID, workspace, f.Task, f.Attempt, i.Key, q.Text, orEmpty(q.Options), q.Default, q.Data, i.For).Scan(&q.AskedAt, &q.Deadline)
	q.ShortID = commands.ShortID(q.ID)
	return q, true, err
}

// orEmpty is list, or one that is empty and not NULL.
func orEmpty(list []string) []string { return append([]string{}, list...) }

func questions(rows pgx.Rows, err error) ([]Question, error) {
	if err != nil {
		return nil, fmt.Errorf("reading questions: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (q Question, err error) {
		err = row.Scan(&q.ID, &q.Task, &q.Attempt, &q.Text, &q.Options, &q.Default, &q.Data, &q.AskedAt, &q.Deadline, &q.State, &q.Answer, &q.Reason, &q.AnsweredBy, &q.AnsweredAt, &q.Title, &q.Hub, &q.Key, &q.Turn)
		q.ShortID, q.HeardAt = commands.ShortID(q.ID), q.AskedAt
		return q, err
	})
}

func (b *Backlog) readQuestions(ctx context.Context, sql string, args ...any) (list []Question, err error) {
	err = b.db.Read(ctx, "reading questions", func(ctx context.Context, conn *pgxpool.Conn) error {
		list, err = questions(conn.Query(ctx, sql, args...))
		return err
	})
	return list, err
}

// Question returns a question by its id.
func (b *Backlog) Question(ctx context.Context, id string) (Question, error) {
	list, err := b.readQuestions(ctx, statement("question_by_id"), id)
	if err == nil && len(list) == 0 {
		err = unknownQuestion(id)
	}
	if err != nil {
		return Question{}, err
	}
	return list[0], nil
}

// Questions returns those that the agent of a task has asked, the oldest first.
func (b *Backlog) Questions(ctx context.Context, task string) ([]Question, error) {
	return b.readQuestions(ctx, statement("questions_of"), task)
}

// OpenQuestions returns a page of those that wait for an answer, without their data.
func (b *Backlog) OpenQuestions(ctx context.Context, p store.QuestionPage) ([]Question, error) {
	return b.readQuestions(ctx, store.WithoutData(statement("open_questions")), p.Args()...)
}

// QuestionsNamed returns those that a person means by an id, a short id or a part of one.
func (b *Backlog) QuestionsNamed(ctx context.Context, ref string) ([]Question, error) {
	ids, ok := commands.NamedIDs(ref)
	switch {
	case !ok:
		return nil, nil
	case ids.Tail:
		return b.readQuestions(ctx, statement("questions_named"), ids.Low, ids.High)
	case ids.Low == ids.High:
		return b.readQuestions(ctx, statement("question_by_id"), ids.Low)
	}
	return nil, nil
}

func unknownQuestion(id string) error {
	return commands.Refuse(commands.NotFound, "no question %s here", commands.Clip(id))
}
