package backlog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Withdraw closes a question that the agent of an attempt needs no answer to any more, of which it returns what became. One that
// is closed in another way is a CONFLICT.
func (b *Backlog) Withdraw(ctx context.Context, f Fence, id string) (q Question, err error) {
	err = b.db.Tx(ctx, "withdrawing a question", func(ctx context.Context, tx *store.Tx) error {
		if q, err = holdQuestion(ctx, tx, id, f.Task); err != nil {
			return err
		}
		var at time.Time
		err := tx.QueryRow(ctx, statement("heard"), f.Task, f.Attempt, f.Epoch).Scan(&at)
		if err == pgx.ErrNoRows {
			return overtaken(ctx, tx, f)
		}
		if err != nil {
			return err
		}
		switch q.State {
		case commands.QuestionWithdrawn:
			return nil
		case commands.QuestionOpen:
		default:
			return store.AnsweredBefore(q)
		}
		if _, err := b.settle(ctx, tx, q, commands.QuestionWithdrawn, Answerer{Actor: "self"}, commands.Answer{Reason: "its agent needs no answer any more"}); err != nil {
			return err
		}
		q, err = questionByID(ctx, tx, id)
		return err
	})
	return q, err
}

// askedBefore is why a question is withdrawn whose attempt has ended.
const askedBefore = "the attempt that asked it has ended, and the next one has not asked it"

// withdrawAsked withdraws what the attempts of agents have asked that now wait for another attempt, and not for an answer: nobody would
// read that. One that had begun before a restore is none of these: it may have asked the same question, and wait. Who asked for them is told, before it is told how they stand.
func (b *Backlog) withdrawAsked(ctx context.Context, tx *store.Tx, moved []Moved) error {
	waiting := map[string]Moved{}
	var tasks []string
	for _, m := range moved {
		if m.Conn != "" && slices.Contains([]commands.State{commands.Queued, commands.Blocked, commands.Paused}, m.State) {
			waiting[m.Task], tasks = m, append(tasks, m.Task)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, statement("withdraw_asked"), tasks, askedBefore)
	if err != nil {
		return fmt.Errorf("withdrawing questions of attempts that have ended: %w", err)
	}
	var told []Moved
	var id, task string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &task, &at}, func() error {
		w := waiting[task]
		m := Moved{Task: task, Conn: w.Conn, Asked: w.Asked, State: w.State, Attempt: w.Attempt, Epoch: w.Epoch}
		m.Answered = &commands.Answered{Task: task, State: w.State, Question: id, Outcome: commands.QuestionWithdrawn, Reason: askedBefore, At: at.UnixMilli()}
		told = append(told, m)
		return nil
	})
	if err != nil || len(told) == 0 {
		return err
	}
	for _, m := range told {
		tx.Audit(store.AuditRow{Actor: "self", Action: "task." + commands.QuestionWithdrawn, Object: m.Task, Why: store.OfAnswer(commands.Answer{Question: m.Answered.Question, Reason: askedBefore}, "")})
	}
	return b.moved(ctx, tx, told)
}
