package backlog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// An End is how an attempt ended, by the supervisor's evidence.
type End struct {
	Fence     Fence
	Outcome   commands.Outcome
	Why       commands.Reason // "" = what the outcome implies
	At        time.Time       // of the end; zero = now, and so is what the database finds impossible
	Exit      commands.Exit
	Stdout    commands.Output
	Stderr    commands.Output
	Reaped    []commands.Process
	Survivors []commands.Process
	Policy    string           // see [commands.Result]
	Isolation string           // see [commands.Result]
	Word      *commands.Word   // what the agent itself has said; nil = nothing
	Bundle    *commands.Bundle // what it has left in its working tree; nil = nothing, or not known
	Kept      string           // see [commands.Result]
	Collected bool             // its working tree was looked at: what earlier attempts have left is in Bundle, or was undone
}

// seen is what is kept of the end of an attempt: how its process ended, and by which reason where that does not say it.
type seen struct {
	commands.Exit
	Why commands.Reason `json:"why,omitempty"`
}

// final reports whether no attempt follows a failure: the agent has said so.
func (e End) final() bool { return e.Word != nil && e.Word.NoRetry() }

// backoffBase is how long the first retry waits at most where its task does not say so, and [commands.MaxBackoff] the most of all.
const backoffBase = 30 * time.Second

// failure is how the attempt failed; nil where it has not.
func (e End) failure() *commands.LastError {
	var said *commands.Report
	if e.Word != nil {
		said = &e.Word.Report
	}
	return commands.ErrorOf(e.Fence.Attempt, e.Outcome, e.Why, e.Exit, said)
}

// A closing ends one attempt. Outcome decides where the task goes.
type closing struct {
	fence   Fence
	outcome string
	why     commands.Reason // "" = what the outcome implies
	final   bool            // a failure is not retried
	delay   time.Duration   // before a released task is ready again
	at      time.Time       // of the end; zero = now
	exit    any
	failure *commands.LastError // without its time; nil = it has not failed
	passed  bool                // a later attempt has begun: whatever was asked, this end does not end the task
}

// closeAttempts moves tasks on by the ends of their attempts, as far as the
// fences hold, with all that follows: history, budgets, dependents, the place
// where the task stands next. A fence that does not hold changes nothing and is
// not among the answers.
func (b *Backlog) closeAttempts(ctx context.Context, tx *store.Tx, actor string, list []closing) ([]Moved, error) {
	if len(list) == 0 {
		return nil, nil
	}
	passed, err := b.markPassed(ctx, tx, list)
	if err != nil {
		return nil, err
	}
	moved, err := endAttempts(ctx, tx, actor, list)
	if err != nil {
		return nil, err
	}
	if err := b.followUp(ctx, tx, moved, true); err != nil {
		return nil, err
	}
	return moved, passOn(ctx, tx, passed)
}

// endAttempts moves the tasks, and lets those that wait for what has completed go on.
func endAttempts(ctx context.Context, tx *store.Tx, actor string, list []closing) ([]Moved, error) {
	var moved []Moved
	var batch pgx.Batch
	tasks := queueClose(&batch, statement("close_attempts"), actor, list, func(rows pgx.Rows) (err error) {
		moved, err = pgx.CollectRows(rows, scanMoved)
		return err
	})
	// Statements of their own, with a snapshot from after the rows were locked:
	// whoever linked to one of them before is seen, whoever links later waits and
	// then sees it completed.
	free := resolve(&batch, tasks)
	tx.QueueBatch(&batch)
	if err := tx.Flush(ctx); err != nil {
		return nil, fmt.Errorf("closing attempts: %w", err)
	}
	return moved, free(ctx, tx)
}

// queueClose queues the statement that ends attempts; answer gets its rows.
func queueClose(batch *pgx.Batch, sql, actor string, list []closing, answer func(pgx.Rows) error) (tasks [][16]byte) {
	f := fencesOf(list, func(c closing) Fence { return c.fence })
	tasks = uuids(f.task)
	outcomes, why, final, passed := make([]string, len(list)), make([]string, len(list)), make([]bool, len(list)), make([]bool, len(list))
	delays, exits, ended, failures := make([]int64, len(list)), make([]any, len(list)), make([]int64, len(list)), make([]any, len(list))
	for i, c := range list {
		outcomes[i], why[i], final[i], passed[i] = c.outcome, string(c.why), c.final, c.passed
		delays[i], exits[i] = c.delay.Milliseconds(), c.exit
		if c.failure != nil {
			failures[i] = c.failure
		}
		if !c.at.IsZero() {
			ended[i] = c.at.UnixMicro()
		}
	}
	batch.Queue(sql, tasks, f.attempt, f.epoch, outcomes, exits, why, final, delays, backoffBase, commands.MaxBackoff, actor, ended, failures, passed).Query(answer)
	return tasks
}

// uuids are ids in the form in which they travel fastest. What is no id is the
// id of no task.
func uuids(ids []string) [][16]byte {
	list := make([][16]byte, len(ids))
	for i, id := range ids {
		if u, err := uuid.Parse(id); err == nil {
			list[i] = u
		}
	}
	return list
}

// followUp does what a completed task does not need. With open, attempts that had begun before a restore are opened.
func (b *Backlog) followUp(ctx context.Context, tx *store.Tx, moved []Moved, open bool) error {
	var queued, bad, waiting []string
	aside := map[commands.State][]string{}
	for _, m := range moved {
		switch {
		case m.State == commands.Queued:
			queued = append(queued, m.Task)
			waiting = append(waiting, m.Task)
		case m.State == commands.Blocked, m.State == commands.Paused, m.State == commands.AwaitingInput, m.State == commands.InReview:
			aside[m.State] = append(aside[m.State], m.Task)
			waiting = append(waiting, m.Task)
		case m.State != commands.Completed:
			bad = append(bad, m.Task)
		}
	}
	if err := place(ctx, tx, queued); err != nil {
		return err
	}
	for state, tasks := range aside {
		if err := park(ctx, tx, tasks, string(state)); err != nil {
			return err
		}
	}
	var opened []string
	if open {
		var err error
		if opened, err = b.openBegun(ctx, tx, waiting); err != nil {
			return err
		}
	}
	if err := b.failDependents(ctx, tx, bad); err != nil {
		return err
	}
	return b.withdrawAsked(ctx, tx, slices.DeleteFunc(slices.Clone(moved), func(m Moved) bool { return slices.Contains(opened, m.Task) }))
}
