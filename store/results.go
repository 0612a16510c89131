package store

import (
	"context"
	"fmt"

	"github.com/spawnmesh/spawnmesh/commands"
)

// markEnded applies the supervisor's evidence and tells those who
// asked.
func (db *DB) markEnded(ctx context.Context, tx *Tx, ends []End, held []bool, at []int) error {
	list := make([]closing, len(ends))
	for i, e := range ends {
		list[i] = closing{fence: e.Fence, outcome: string(e.Outcome), why: e.Why, exit: e.Exit}
	}
	moved, err := db.closeAttempts(ctx, tx, "self", list)
	if err != nil {
		return err
	}
	evidence := map[string]End{}
	for _, m := range moved {
		held[at[m.n-1]] = true
		evidence[m.task] = ends[m.n-1]
	}
	if err := tellResults(ctx, tx, moved, evidence); err != nil {
		return err
	}
	for _, m := range moved {
		if !m.killed {
			continue
		}
		e := evidence[m.task]
		if err := answerKills(ctx, tx, m.task, m.state, e.Reaped, e.Survivors); err != nil {
			return err
		}
	}
	return nil
}

// tellResults stores the results of tasks that reached a terminal state and
// sends the messages that tell of them; a task that goes on gets a receipt.
func tellResults(ctx context.Context, tx *Tx, list []ended, evidence map[string]End) error {
	var tasks []string
	var results []*commands.Result
	for _, e := range list {
		x := evidence[e.task]
		if !e.state.Terminal() {
			if e.asked.conn != "" {
				tx.Send(e.asked.draft(LaneEvt, &commands.Ended{Task: e.task, Attempt: e.attempt, Outcome: x.Outcome,
					State: e.state, Reason: e.reason, Exit: x.Exit, At: e.at}, e.task, e.attempt))
			}
			continue
		}
		r := &commands.Result{Task: e.task, State: e.state, Reason: e.reason, Attempt: e.attempt, Outcome: x.Outcome, Exit: x.Exit,
			Stdout: x.Stdout, Stderr: x.Stderr, Reaped: x.Reaped, Survivors: x.Survivors, StartedAt: e.started, EndedAt: e.at}
		if x.Outcome == "" {
			r.Exit.Code = -1
		}
		r.Summary = r.Sentence()
		tasks, results = append(tasks, e.task), append(results, r)
		if e.asked.conn != "" {
			tx.Send(e.asked.draft(LaneRes, r, e.task, e.attempt))
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `UPDATE task_bodies b SET result = u.result FROM unnest($1::uuid[], $2::jsonb[]) AS u (task, result) WHERE b.task = u.task`, tasks, results)
	if err != nil {
		return fmt.Errorf("storing results: %w", err)
	}
	return nil
}
