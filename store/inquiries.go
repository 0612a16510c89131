package store

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// agentEnded is why a question is withdrawn whose agent is over.
const agentEnded = "its agent has ended"

// inquiryColumns reads inquiries i as they stand: one whose agent has ended is withdrawn, whatever its row says.
const inquiryColumns = `
	SELECT i.id::text, i.task::text, i.attempt, i.question, i.options, i.fallback, i.data, i.asked_at, i.deadline, CASE WHEN over THEN 'withdrawn' ELSE coalesce(i.outcome, 'open') END,
		i.answer, CASE WHEN over THEN '` + agentEnded + `' ELSE i.reason END, i.answered_by, i.answered_at, CASE WHEN over OR i.outcome IS NOT NULL OR i.command IS NOT NULL THEN i.sent END, coalesce(m.title, ''), c.peer_name, i.received_at, i.turn
	FROM inquiries i LEFT JOIN mirrors m ON m.task = i.task AND m.conn = i.conn JOIN connections c ON c.id = i.conn
		CROSS JOIN LATERAL (SELECT i.outcome IS NULL AND (m.task IS NULL OR is_terminal(m.state)) AS over) AS o `

// inquiriesAmong reads those that a query selects, all columns of them, before anything is joined.
func inquiriesAmong(query string) string {
	return strings.Replace(inquiryColumns, "FROM inquiries i", `FROM (`+query+`) AS i`, 1)
}

func inquiries(rows pgx.Rows, err error) ([]Question, error) {
	if err != nil {
		return nil, fmt.Errorf("reading questions: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (q Question, err error) {
		err = row.Scan(&q.ID, &q.Task, &q.Attempt, &q.Text, &q.Options, &q.Default, &q.Data, &q.AskedAt, &q.Deadline, &q.State, &q.Answer, &q.Reason, &q.AnsweredBy, &q.AnsweredAt, &q.Sent, &q.Title, &q.Spoke, &q.HeardAt, &q.Turn)
		q.ShortID = commands.ShortID(q.ID)
		return q, err
	})
}

// OpenInquiries returns a page of the questions of agents on spokes that wait for an answer, without their data.
func (db *DB) OpenInquiries(ctx context.Context, p QuestionPage) (list []Question, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		list, err = inquiries(db.pool.Query(ctx, WithoutData(inquiriesAmong(`SELECT i.* FROM inquiries i, LATERAL (SELECT conn, ended_at FROM mirrors WHERE task = i.task OFFSET 0) AS m
				WHERE i.outcome IS NULL AND (i.turn, i.received_at, i.id) < ($1, $2, $3) AND m.conn = i.conn AND m.ended_at IS NULL ORDER BY i.turn DESC, i.received_at DESC, i.id DESC LIMIT $4`))+
			`ORDER BY i.turn DESC, i.received_at DESC, i.id DESC`, p.Args()...))
		return err
	})
	return list, err
}

// QuestionFigures counts the questions that wait for an answer, here and on spokes, up to 10,000, and says how old the oldest of them is.
func (db *DB) QuestionFigures(ctx context.Context) (open int64, oldest time.Duration, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `SELECT count(*), greatest(coalesce(clock_timestamp() - min(at), interval '0'), interval '0') FROM (
			SELECT n.at FROM connections f CROSS JOIN LATERAL (
				SELECT i.received_at AS at FROM inquiries i, LATERAL (SELECT conn, ended_at FROM mirrors WHERE task = i.task OFFSET 0) AS m
				WHERE i.conn = f.id AND i.outcome IS NULL AND m.conn = f.id AND m.ended_at IS NULL ORDER BY i.received_at LIMIT 10000) AS n
			UNION ALL SELECT asked_at FROM questions WHERE outcome IS NULL LIMIT 10000) AS waiting`).Scan(&open, &oldest)
	})
	return open, oldest, err
}

// Inquiries returns those that the agent of a task has asked, the oldest first.
func (db *DB) Inquiries(ctx context.Context, task string) (list []Question, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		list, err = inquiries(db.pool.Query(ctx, inquiryColumns+`WHERE i.task = $1 ORDER BY i.received_at, i.id LIMIT 100`, task))
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
		which := shortBetween("id")
		if !ids.Tail {
			which = `substring(uuid_send(id) FROM 12) = substring(uuid_send($1::text::uuid) FROM 12) AND id BETWEEN $1::text::uuid AND $2::text::uuid`
		}
		list, err = inquiries(db.pool.Query(ctx, inquiriesAmong(`SELECT * FROM inquiries WHERE `+which)+`ORDER BY i.id LIMIT 20`, ids.Low, ids.High))
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
		tx.Audit(AuditRow{Actor: a.By, Action: "task.answer_ordered", Object: a.Task, Why: OfAnswer(a, ""), Conn: conn})
		return sendAnswer(ctx, tx, conn, a, time.Now().UTC(), 0, q.Deadline)
	})
}

// sendAnswer sends what somebody answered at a time to a question that is held and open, whose deadline it may live to see; resent is
// how often that was sent before.
func sendAnswer(ctx context.Context, tx *Tx, conn string, a commands.Answer, at time.Time, resent int, deadline time.Time) error {
	command := tx.Send(Draft{Conn: conn, Body: &a, Life: min(min(max(time.Until(deadline), 0), commands.MaxQuestionFor)+10*time.Minute, commands.MaxQuestionFor-time.Hour)})
	_, err := tx.Exec(ctx, `UPDATE inquiries SET sent = $3, command = $4, resent = $5, reason = '' WHERE conn = $1 AND id = $2`, conn, a.Question, Sent{Answer: a.Answer, By: a.By, Reason: a.Reason, At: at}, command, resent)
	return err
}

// OfAnswer says for the audit which question was closed, by its short id, and with what: the audit stays when the question is gone. by is
// who has answered, where the actor of the row is another.
func OfAnswer(a commands.Answer, by string) string {
	words := []string{commands.ShortID(a.Question)}
	if a.Answer != "" {
		words = append(words, strconv.Quote(commands.Clip(a.Answer)))
	}
	for _, w := range []string{by, a.Reason} {
		if w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, "; ")
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
	case commands.QuestionWithdrawn:
		what = cmp.Or(q.Reason, what)
	}
	return commands.Refuse(commands.Conflict, "question %s is closed: %s", q.ShortID, what).Hinting("see").Running("inbox", "show", q.ShortID)
}
