package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// keepInquiries keeps what a spoke says of questions, after the mirrors were moved: what is not about an agent of its own is
// refused by then. Reports may come in any order: the newest one counts.
func keepInquiries(ctx context.Context, tx *Tx, batch []*Incoming) error {
	for _, m := range batch {
		var err error
		switch b := m.Body.(type) {
		case *commands.Question:
			err = keepQuestion(ctx, tx, m, b)
		case *commands.Answered:
			err = closeInquiry(ctx, tx, m, b)
		case *commands.RefusedBody:
			err = answerRefused(ctx, tx, m, b)
		}
		if err != nil {
			return fmt.Errorf("keeping questions of agents: %w", err)
		}
	}
	return nil
}

// keepQuestion keeps a question. One that was closed and is asked again is open: its spoke knows no answer any more.
func keepQuestion(ctx context.Context, tx *Tx, m *Incoming, q *commands.Question) error {
	if m.Code != "" {
		return nil
	}
	tag, err := tx.Exec(ctx, `
		INSERT INTO inquiries AS i (conn, id, task, attempt, seq, question, options, fallback, data, asked_at, deadline)
		SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, from_ms($10), from_ms($11)
		WHERE (SELECT count(*) FROM (SELECT FROM inquiries WHERE task = $3 AND conn = $1 AND id <> $2 LIMIT $12) AS other) < $12
		ON CONFLICT (conn, id) DO UPDATE SET question = excluded.question, options = excluded.options, fallback = excluded.fallback, data = excluded.data, asked_at = excluded.asked_at, deadline = excluded.deadline,
			attempt = greatest(i.attempt, excluded.attempt), outcome = CASE WHEN i.seq > excluded.seq THEN i.outcome END, answered_at = CASE WHEN i.seq > excluded.seq THEN i.answered_at END,
			sent = CASE WHEN i.outcome IS NULL THEN i.sent END, command = CASE WHEN i.outcome IS NULL THEN i.command END, seq = greatest(i.seq, excluded.seq)
		WHERE i.task = excluded.task`,
		m.Conn, q.Question, q.Task, q.Attempt, m.Header.Seq, q.Text, append([]string{}, q.Options...), q.Fallback(), q.Data, q.At, q.Deadline, commands.MaxQuestions)
	if err == nil && tag.RowsAffected() == 0 {
		m.reject(commands.TooMany, fmt.Sprintf("more than %d questions of one agent, or a question of another one", commands.MaxQuestions))
	}
	return err
}

func closeInquiry(ctx context.Context, tx *Tx, m *Incoming, a *commands.Answered) error {
	if m.Code != "" {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE inquiries SET seq = $4, outcome = $5, answer = $6, answered_by = $7, reason = $8, answered_at = from_ms($9), sent = NULL, command = NULL
		WHERE conn = $1 AND id = $2 AND task = $3 AND seq < $4`,
		m.Conn, a.Question, a.Task, m.Header.Seq, a.Outcome, a.Answer, a.By, a.Reason, a.At)
	return err
}

// answerRefused notes that an answer had no effect. A question that its spoke does not know is closed; what else
// became of it the spoke tells itself.
func answerRefused(ctx context.Context, tx *Tx, m *Incoming, b *commands.RefusedBody) error {
	if m.Effect != commands.AnswerKind {
		return nil
	}
	gone := b.Code == commands.NotFound || b.Code == commands.UnknownTask
	_, err := tx.Exec(ctx, `UPDATE inquiries SET sent = NULL, command = NULL, reason = $3, outcome = CASE WHEN $4 THEN 'withdrawn' END, answered_at = CASE WHEN $4 THEN clock_timestamp() END
		WHERE conn = $1 AND command = $2 AND outcome IS NULL`, m.Conn, m.Header.Re.ID, commands.CleanReason(b.Why), gone)
	return err
}

const inquiryColumns = `
	SELECT i.id::text, i.task::text, i.attempt, i.question, i.options, i.fallback, i.data, i.asked_at, i.deadline, coalesce(i.outcome, CASE WHEN m.task IS NULL OR is_terminal(m.state) THEN 'withdrawn' ELSE 'open' END),
		i.answer, i.reason, i.answered_by, i.answered_at, i.sent, coalesce(m.title, ''), c.peer_name
	FROM inquiries i LEFT JOIN mirrors m ON m.task = i.task AND m.conn = i.conn JOIN connections c ON c.id = i.conn `

func inquiries(rows pgx.Rows, err error) ([]Question, error) {
	if err != nil {
		return nil, fmt.Errorf("reading questions: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (q Question, err error) {
		err = row.Scan(&q.ID, &q.Task, &q.Attempt, &q.Text, &q.Options, &q.Default, &q.Data, &q.AskedAt, &q.Deadline, &q.State, &q.Answer, &q.Reason, &q.AnsweredBy, &q.AnsweredAt, &q.Sent, &q.Title, &q.Spoke)
		q.ShortID = commands.ShortID(q.ID)
		return q, err
	})
}

// OpenInquiries returns the questions of agents on spokes that wait for an answer, the newest first.
func (db *DB) OpenInquiries(ctx context.Context, limit int) (list []Question, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		list, err = inquiries(db.pool.Query(ctx, inquiryColumns+`WHERE i.outcome IS NULL AND NOT is_terminal(m.state) ORDER BY i.asked_at DESC, i.id LIMIT $1`, limit))
		return err
	})
	return list, err
}

// Inquiries returns those that the agent of a task has asked, the oldest first.
func (db *DB) Inquiries(ctx context.Context, task string) (list []Question, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		list, err = inquiries(db.pool.Query(ctx, inquiryColumns+`WHERE i.task = $1 ORDER BY i.asked_at, i.id LIMIT 100`, task))
		return err
	})
	return list, err
}

// InquiriesNamed returns those that a person means by a short id, a part of one, or a whole id.
func (db *DB) InquiriesNamed(ctx context.Context, ref string) (list []Question, err error) {
	ids, ok := commands.NamedIDs(ref)
	if !ok || !ids.Tail && ids.Low != ids.High {
		return nil, nil
	}
	err = db.retry(ctx, func(ctx context.Context) error {
		if ids.Tail {
			list, err = inquiries(db.pool.Query(ctx, inquiryColumns+`WHERE substring(uuid_send(i.id) FROM 12) BETWEEN decode($1, 'hex') AND decode($2, 'hex') ORDER BY i.id LIMIT 20`, ids.Low, ids.High))
			return err
		}
		list, err = inquiries(db.pool.Query(ctx, inquiryColumns+`WHERE i.id = $1`, ids.Low))
		return err
	})
	return list, err
}

// OrderAnswer sends the answer to a question of an agent on a spoke. The first answer of this hub is the one that is
// sent; whether it counts the spoke decides.
func (db *DB) OrderAnswer(ctx context.Context, a commands.Answer) error {
	return db.Tx(ctx, "answering question "+a.Question, func(ctx context.Context, tx *Tx) error {
		var conn string
		err := tx.QueryRow(ctx, `SELECT c.id::text FROM inquiries i JOIN connections c ON c.id = i.conn WHERE i.id = $1 AND i.task = $2 FOR SHARE OF c`, a.Question, a.Task).Scan(&conn)
		if err == pgx.ErrNoRows {
			return commands.Refuse(commands.NotFound, "no question %s here", commands.ShortID(a.Question))
		}
		if err == nil { // mirrors come before what belongs to them
			_, err = tx.Exec(ctx, `SELECT FROM mirrors WHERE task = $1 FOR UPDATE`, a.Task)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `SELECT FROM inquiries WHERE conn = $1 AND id = $2 FOR UPDATE`, conn, a.Question)
		}
		if err != nil {
			return err
		}
		list, err := inquiries(tx.Query(ctx, inquiryColumns+`WHERE i.conn = $1 AND i.id = $2`, conn, a.Question))
		if err != nil {
			return err
		}
		q := list[0]
		if q.State != commands.QuestionOpen {
			return AnsweredBefore(q)
		}
		if q.Sent != nil {
			return commands.Refuse(commands.Conflict, "%s has answered question %s with %q, which %s has not confirmed yet", q.Sent.By, q.ShortID, commands.Clip(q.Sent.Answer), q.Spoke).Hinting("see").Running("inbox", "show", q.ShortID)
		}
		if err := (&commands.Question{Options: q.Options}).Fits(a.Answer); err != nil {
			return err
		}
		command := tx.Send(Draft{Conn: conn, Body: &a, Life: min(max(time.Until(q.Deadline), 0)+10*time.Minute, commands.MaxQuestionFor-time.Hour)})
		tx.Audit(AuditRow{Actor: a.By, Action: "task.answer_ordered", Object: a.Task, Why: a.Reason, Conn: conn})
		_, err = tx.Exec(ctx, `UPDATE inquiries SET sent = $3, command = $4 WHERE conn = $1 AND id = $2`, conn, a.Question, Sent{Answer: a.Answer, By: a.By, Reason: a.Reason, At: time.Now().UTC()}, command)
		return err
	})
}

// AnsweredBefore refuses an answer that comes too late, with what came first.
func AnsweredBefore(q Question) error {
	what := "its agent has ended"
	switch q.State {
	case commands.QuestionAnswered:
		what = fmt.Sprintf("%s has answered %q", q.AnsweredBy, commands.Clip(q.Answer))
	case commands.QuestionDefaulted:
		what = fmt.Sprintf("nobody had answered in time, so the answer is %q", commands.Clip(q.Answer))
	case commands.QuestionUnanswered:
		what = "nobody had answered in time"
	}
	return commands.Refuse(commands.Conflict, "question %s is closed: %s", q.ShortID, what).Hinting("see").Running("inbox", "show", q.ShortID)
}
