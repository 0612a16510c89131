package backlog

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// lapseQuestions closes those that nobody has answered in time: with their default, where they have one. It returns how many.
func (b *Backlog) lapseQuestions(ctx context.Context) (n int, err error) {
	type lapsed struct{ ID, Default string }
	var list []lapsed
	err = b.db.Read(ctx, "looking for questions that nobody has answered", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, statement("lapsed_questions"), sweepBatch)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[lapsed])
		}
		return err
	})
	for _, l := range list {
		if err != nil {
			return n, err
		}
		err = b.lapse(ctx, l.ID, l.Default)
		n++
	}
	return n, err
}

// lapse closes one question, each in a transaction of its own: each holds its task.
func (b *Backlog) lapse(ctx context.Context, id, answer string) error {
	return b.db.Tx(ctx, "closing a question that nobody has answered", func(ctx context.Context, tx *store.Tx) error {
		task, err := taskOfQuestion(ctx, tx, id)
		if err != nil {
			return err
		}
		q, err := holdQuestion(ctx, tx, id, task)
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
