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
func keepInquiries(ctx context.Context, tx *Tx, from Standing, batch []*Incoming) error {
	open := openInquiries{tx: tx, n: -1}
	for _, m := range batch {
		var err error
		told := m.Code == "" && m.Effect == nil // as an answer to the order of its agent
		switch b := m.Body.(type) {
		case *commands.Question:
			if told {
				err = keepQuestion(ctx, tx, m, b, &open)
			}
		case *commands.Answered:
			if told {
				err = closeInquiry(ctx, tx, m, b)
			}
		case *commands.RefusedBody:
			err = answerRefused(ctx, tx, from, m, b)
		}
		if err != nil {
			return fmt.Errorf("keeping questions of agents: %w", err)
		}
	}
	return nil
}

// openInquiries counts the open questions of a connection once for all messages of a batch, the first [mostCounted]: a spoke may send
// hundreds of thousands of reports on its questions.
type openInquiries struct {
	tx *Tx
	n  int // < 0 = they were not counted yet
}

// mostCounted is how many open questions are counted: further ones are listed last, all with one turn.
const mostCounted = 2000

// before is how many were open when the batch came.
func (o *openInquiries) before(ctx context.Context, conn string) (int, error) {
	if o.n >= 0 {
		return o.n, nil
	}
	err := o.tx.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM inquiries WHERE conn = $1 AND outcome IS NULL LIMIT $2) AS open`, conn, mostCounted).Scan(&o.n)
	return o.n, err
}

// roomForInquiry holds where the agent of task $3 on connection $1 has few questions beside $2.
const roomForInquiry = `(SELECT count(*) FROM (SELECT FROM inquiries WHERE task = $3 AND conn = $1 AND id <> $2 LIMIT $4) AS other) < $4`

// keepQuestion keeps a question. One that was closed and is asked again is open: its spoke knows no answer any more. What people
// have read and what this hub has answered stay: the first words count, and other ones are refused. An answer of this hub that its spoke
// has taken and lost by a restore, or refused as it did not know the question, is sent once more, [mostResent] times at most.
func keepQuestion(ctx context.Context, tx *Tx, m *Incoming, q *commands.Question, open *openInquiries) error {
	before, err := open.before(ctx, m.Conn)
	if err != nil {
		return err
	}
	var lost *Sent
	var resent int
	err = tx.QueryRow(ctx, `
		WITH lost AS (SELECT sent FROM inquiries WHERE conn = $1 AND id = $2 AND seq < $6 AND outcome IS NOT NULL AND (command IS NOT NULL OR resent >= $14))
		INSERT INTO inquiries AS i (conn, id, task, attempt, seq, question, options, fallback, data, asked_at, deadline, turn)
		SELECT $1, $2, $3, $5, $6, $7, $8, $9, $10, from_ms($11), from_ms($12), turn_of($13) WHERE `+roomForInquiry+`
		ON CONFLICT (conn, id) DO UPDATE SET question = excluded.question, options = excluded.options, fallback = excluded.fallback, data = excluded.data, asked_at = excluded.asked_at, deadline = excluded.deadline,
			turn = CASE WHEN i.outcome IS NULL THEN i.turn ELSE excluded.turn END, attempt = greatest(i.attempt, excluded.attempt), seq = greatest(i.seq, excluded.seq), command = CASE WHEN i.outcome IS NULL THEN i.command END,
			outcome = CASE WHEN i.seq > excluded.seq THEN i.outcome END, answered_at = CASE WHEN i.seq > excluded.seq THEN i.answered_at END, answer = CASE WHEN i.seq > excluded.seq THEN i.answer ELSE '' END,
			answered_by = CASE WHEN i.seq > excluded.seq THEN i.answered_by ELSE '' END, reason = CASE WHEN i.seq > excluded.seq OR i.outcome IS NULL THEN i.reason ELSE '' END
		WHERE i.task = excluded.task AND (i.attempt = 0 OR (i.question, i.options, i.fallback, i.data) = (excluded.question, excluded.options, excluded.fallback, excluded.data))
		RETURNING (SELECT sent FROM lost), i.resent`,
		m.Conn, q.Question, q.Task, commands.MaxQuestions, q.Attempt, m.Header.Seq, q.Text, append([]string{}, q.Options...), q.Fallback(), q.Data, q.At, q.Deadline, before, mostResent).Scan(&lost, &resent)
	switch {
	case err == nil && lost != nil:
		return sendAgain(ctx, tx, m.Conn, q, *lost, resent)
	case err != pgx.ErrNoRows:
		return err
	}
	var of string
	switch err := tx.QueryRow(ctx, `SELECT task::text FROM inquiries WHERE conn = $1 AND id = $2`, m.Conn, q.Question).Scan(&of); {
	case err == pgx.ErrNoRows:
		m.reject(commands.TooMany, fmt.Sprintf("more than %d questions of one agent", commands.MaxQuestions))
		m.forgotten = true
	case err != nil:
		return err
	case of != q.Task:
		m.reject(commands.Validation, "it is a question of another agent")
	default:
		m.reject(commands.Validation, "it was asked before with other words")
	}
	return nil
}

// mostResent is how often the answer that somebody gave is sent once more: a spoke that is restored loses it once for each restore, and
// one that asks without end is told no more until somebody answers again.
const mostResent = 3

// sendAgain sends what somebody has answered to question q once more, as this hub's own act, where that was done fewer than
// [mostResent] times. Else the question is open as one that nobody has answered, and says why.
func sendAgain(ctx context.Context, tx *Tx, conn string, q *commands.Question, lost Sent, resent int) error {
	if resent >= mostResent {
		_, err := tx.Exec(ctx, `UPDATE inquiries SET reason = $3 WHERE conn = $1 AND id = $2`, conn, q.Question,
			fmt.Sprintf("its spoke has lost the answer of %s %d times; it is not sent again until somebody answers", lost.By, resent+1))
		return err
	}
	a := commands.Answer{Task: q.Task, Question: q.Question, Answer: lost.Answer, By: lost.By, Reason: lost.Reason}
	tx.Audit(AuditRow{Actor: "self", Action: "task.answer_resent", Object: q.Task, Why: OfAnswer(a, fmt.Sprintf("as %s answered at %s", lost.By, lost.At.Format(time.RFC3339))), Conn: conn})
	return sendAnswer(ctx, tx, conn, a, lost.At, resent+1, time.UnixMilli(q.Deadline))
}

// closeInquiry notes what became of a question, beside what this hub has sent itself. Where that comes before the question itself, it is kept without its words.
func closeInquiry(ctx context.Context, tx *Tx, m *Incoming, a *commands.Answered) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO inquiries AS i (conn, id, task, attempt, seq, question, options, fallback, data, asked_at, deadline, outcome, answer, answered_by, reason, answered_at)
		SELECT $1, $2, $3, 0, $5, '', '{}', '', '', at, at, $6, $7, $8, $9, at FROM from_ms($10) AS at WHERE `+roomForInquiry+`
		ON CONFLICT (conn, id) DO UPDATE SET seq = excluded.seq, outcome = excluded.outcome, answer = excluded.answer, answered_by = excluded.answered_by, reason = excluded.reason,
			answered_at = excluded.answered_at,
			command = CASE WHEN excluded.outcome = 'answered' AND i.sent->>'answer' = excluded.answer AND i.sent->>'by' = excluded.answered_by THEN i.command END
		WHERE i.task = excluded.task AND i.seq < excluded.seq`,
		m.Conn, a.Question, a.Task, commands.MaxQuestions, m.Header.Seq, a.Outcome, a.Answer, a.By, a.Reason, a.At)
	return err
}

// It is answered_at that is null, as in [newsSQL] not ended_at.
const refuseAnswer = `UPDATE inquiries SET command = CASE WHEN $4 THEN command END, reason = $3, outcome = CASE WHEN $4 THEN 'withdrawn' END, answered_at = CASE WHEN $4 THEN clock_timestamp() END
	WHERE conn = $1 AND command = $2 AND answered_at IS NULL`

// answerRefused notes that an answer had no effect, and puts it into the audit, once, with the words of the spoke: they say which
// answer stands. A question that its spoke does not know is closed; what else became of it the spoke tells itself.
func answerRefused(ctx context.Context, tx *Tx, from Standing, m *Incoming, b *commands.RefusedBody) error {
	if m.Effect != commands.AnswerKind {
		return nil
	}
	if _, err := tx.Exec(ctx, auditAnswerRefused, m.Header.Re.ID, m.Conn, string(from.Peer), b.Code, commands.CleanReason(b.Why)); err != nil {
		return err
	}
	gone := b.Code == commands.NotFound || b.Code == commands.UnknownTask
	_, err := tx.Exec(ctx, refuseAnswer, m.Conn, m.Header.Re.ID, commands.CleanReason(b.Why), gone)
	return err
}

// auditAnswerRefused is about the answer $1, which the audit has as the message. One that was taken, and is refused when it comes once
// more after a restore of its spoke, is none that was refused.
const auditAnswerRefused = `
	INSERT INTO audit (actor, action, object, code, why, conn, message) SELECT $3, 'task.answer_refused', o.task::text, $4, $5, o.conn, o.id FROM outbox o
	WHERE o.id = $1 AND (o.conn = $2) IS TRUE AND NOT EXISTS (SELECT FROM audit a WHERE a.object = o.task::text AND a.workspace = '' AND a.action = 'task.answer_refused' AND a.message = o.id)
		AND NOT EXISTS (SELECT FROM inquiries i WHERE i.command = o.id AND i.conn = o.conn AND i.outcome = 'answered')`

// mostClosed is how many questions one transaction closes.
const mostClosed = 1000

// endsLate is how much earlier than its commit an agent may be noted as ended.
const endsLate = 10 * time.Minute

// CloseInquiries closes what agents have asked that have ended, a bounded number, and says how many. Where none has ended since the time
// that the last look has returned it looks at no question; zero = there was none. Who reads one sees that before, so no end of an agent waits for this.
func (db *DB) CloseInquiries(ctx context.Context, last time.Time) (n int, looked time.Time, err error) {
	err = db.Tx(ctx, "closing questions of agents that have ended", func(ctx context.Context, tx *Tx) error {
		return tx.QueryRow(ctx, `WITH closed AS (
			UPDATE inquiries SET outcome = 'withdrawn', reason = $1, answered_at = clock_timestamp(), command = NULL WHERE (conn, id) IN (
				SELECT n.conn, n.id FROM connections f CROSS JOIN LATERAL (
					SELECT i.conn, i.id FROM inquiries i, LATERAL (SELECT conn, ended_at FROM mirrors WHERE task = i.task OFFSET 0) AS m
					WHERE i.conn = f.id AND i.outcome IS NULL AND (m.ended_at IS NOT NULL OR m.conn <> i.conn) ORDER BY i.received_at LIMIT $3 FOR UPDATE OF i SKIP LOCKED) AS n
				WHERE EXISTS (SELECT FROM mirrors WHERE ended_at > $2) LIMIT $3) RETURNING id)
			SELECT count(*), statement_timestamp() FROM closed`, agentEnded, last.Add(-endsLate), mostClosed).Scan(&n, &looked)
	})
	if n == mostClosed { // there may be more
		looked = last
	}
	return n, looked, err
}
