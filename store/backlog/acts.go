package backlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// An Act moves one task on. With a fence it is the worker's, and holds only
// while the fence does; without one it is the operator's, and the audit says so.
type Act struct {
	Task   string // key or id; may be empty with a fence
	Fence  *Fence
	Reason string
	Result json.RawMessage
	Usage  map[string]Amount // of the whole attempt, by dimension; settles what was reserved
	Delay  time.Duration     // of release and retry: not claimable before
}

// errRaced says that a task changed between a look and a deed.
var errRaced = errors.New("the task changed at this moment")

// maxRaces bounds how often an act looks again.
const maxRaces = 20

// verb is one kind of act.
type verb struct {
	done     string // what the audit says
	trigger  commands.Trigger
	operator commands.Trigger // where the operator's word differs
	to       commands.State
	outcome  string          // of the attempt that it ends
	reason   commands.Reason // of the task, when the operator acts
}

var (
	completing = verb{done: "completed", trigger: commands.ByDone, operator: commands.ByOperator, to: commands.Completed, outcome: "succeeded"}
	failing    = verb{done: "failed", trigger: commands.ByFailure, to: commands.Failed, outcome: "failed"}
	releasing  = verb{done: "released", trigger: commands.ByRelease, to: commands.Queued, outcome: "released"}
	blocking   = verb{done: "blocked", trigger: commands.ByBlock, to: commands.Blocked, outcome: "blocked", reason: commands.Operator}
	pausing    = verb{done: "paused", trigger: commands.ByPause, to: commands.Paused, reason: commands.Operator}
	cancelling = verb{done: "cancelled", trigger: commands.ByCancel, operator: commands.ByCancelled, to: commands.Cancelled, outcome: "cancelled", reason: commands.CancelRequested}
)

// failure is what is kept of an attempt that v ends as failed.
func (v verb) failure(a Act, attempt int) *commands.LastError {
	if v.outcome != failing.outcome {
		return nil
	}
	return &commands.LastError{Code: v.outcome, Text: commands.Clean(a.Reason, commands.MaxError), Attempt: attempt}
}

// Complete ends a task well. Repeated with the same fence it returns the same
// answer; the operator may complete any task that has not ended.
func (ws *Workspace) Complete(ctx context.Context, a Act) (Task, error) {
	return ws.do(ctx, completing, a)
}

// Fail ends the attempt badly: the worker's failure is retried after a back-off
// while the task's retries last, the operator's is final.
func (ws *Workspace) Fail(ctx context.Context, a Act) (Task, error) { return ws.do(ctx, failing, a) }

// Release gives a claimed task back. It spends no retry.
func (ws *Workspace) Release(ctx context.Context, a Act) (Task, error) {
	return ws.do(ctx, releasing, a)
}

// Block parks a task until somebody unblocks it, and ends its attempt.
func (ws *Workspace) Block(ctx context.Context, a Act) (Task, error) { return ws.do(ctx, blocking, a) }

// Pause keeps a task that waits from being claimed until somebody resumes it. One that is
// claimed is its worker's.
func (ws *Workspace) Pause(ctx context.Context, a Act) (Task, error) {
	if a.Fence != nil {
		return Task{}, commands.Refuse(commands.Validation, "only the operator pauses; a worker releases or blocks")
	}
	return ws.do(ctx, pausing, a)
}

// Cancel ends a task that is no longer wanted.
func (ws *Workspace) Cancel(ctx context.Context, a Act) (Task, error) {
	if a.Fence != nil {
		return Task{}, commands.Refuse(commands.Validation, "only the operator cancels; a worker fails, blocks or releases")
	}
	return ws.do(ctx, cancelling, a)
}

func (a *Act) validate() error {
	if err := checkText("the reason", a.Reason, commands.MaxReason, false); err != nil {
		return err
	}
	switch {
	case a.Fence == nil && a.Task == "":
		return commands.Refuse(commands.Validation, "no task named").Hinting("give --id or --fence")
	case a.Delay < 0 || a.Delay > 365*24*time.Hour:
		return commands.Refuse(commands.Validation, "a delay of %s is outside 0..365d", a.Delay)
	case len(a.Result) > MaxBody:
		return commands.Refuse(commands.Validation, "the result is %d bytes, limit %d", len(a.Result), MaxBody).Hinting("keep large results elsewhere and point to them")
	case len(a.Result) > 0 && !json.Valid(a.Result):
		return commands.Refuse(commands.Validation, "the result is not JSON")
	}
	return checkEstimate(a.Usage)
}

func (ws *Workspace) do(ctx context.Context, v verb, a Act) (Task, error) {
	if err := a.validate(); err != nil {
		return Task{}, err
	}
	ref := a.Task
	if a.Fence != nil {
		ref = a.Fence.Task
	}
	var task Task
	err := ws.again(ctx, func() error {
		return ws.tx(ctx, "a task being "+v.done, func(ctx context.Context, tx *store.Tx) (err error) {
			if task, err = ws.find(ctx, tx, ref); err != nil {
				return err
			}
			if err := holdWithDependents(ctx, tx, task.ID); err != nil {
				return err
			}
			if a.Fence == nil {
				return ws.doByHand(ctx, tx, v, a, task)
			}
			if err := ws.isOf(ctx, tx, task, a.Task); err != nil {
				return err
			}
			return ws.doByFence(ctx, tx, v, a, task)
		})
	})
	if err != nil {
		return Task{}, refusedJSON("the result", err)
	}
	return ws.Show(ctx, task.ID)
}

// isOf refuses a fence whose task is not the one that ref names; an empty ref names any.
func (ws *Workspace) isOf(ctx context.Context, tx *store.Tx, task Task, ref string) error {
	if ref == "" || ref == task.Key || ref == task.ID {
		return nil
	}
	named, err := ws.find(ctx, tx, ref)
	if err == nil && named.ID != task.ID {
		err = commands.Refuse(commands.Validation, "the fence is of task %s, not of %s", task.Name(), named.Name())
	}
	return err
}

// again repeats an act that met another one.
func (ws *Workspace) again(ctx context.Context, act func() error) (err error) {
	for range maxRaces {
		if err = act(); !errors.Is(err, errRaced) || ctx.Err() != nil {
			return err
		}
	}
	return commands.Refuse(commands.Conflict, "the task changed again and again while it was acted on; try once more")
}

// doByFence ends the worker's own attempt.
func (ws *Workspace) doByFence(ctx context.Context, tx *store.Tx, v verb, a Act, task Task) error {
	if task.Kind == AgentKind {
		return ofSpoke(task)
	}
	if err := ws.report(ctx, tx, *a.Fence, "end", a.Usage); err != nil {
		return err
	}
	moved, err := ws.backlog.closeAttempts(ctx, tx, ws.actor, []closing{{fence: *a.Fence, outcome: v.outcome, delay: a.Delay, failure: v.failure(a, a.Fence.Attempt)}})
	if err != nil {
		return err
	}
	if len(moved) == 0 {
		same, err := ws.answeredBefore(ctx, tx, v, *a.Fence)
		if err != nil || same {
			return err
		}
		return stale(task, *a.Fence)
	}
	if a.Reason != "" {
		ws.audit(tx, "worker."+v.done, task.ID, "", a.Reason)
	}
	return ws.conclude(ctx, tx, moved, a)
}

// answeredBefore reports whether the fence's attempt has ended by the same word:
// the answer may have been lost.
func (ws *Workspace) answeredBefore(ctx context.Context, tx *store.Tx, v verb, f Fence) (same bool, err error) {
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM attempts WHERE task = $1 AND number = $2 AND epoch = $3 AND outcome = $4)`,
		f.Task, f.Attempt, f.Epoch, v.outcome).Scan(&same)
	return same, err
}

// stale is the refusal of a fence that no longer holds, with who holds the task
// now.
func stale(t Task, f Fence) error {
	now := fmt.Sprintf("it is %s", t.State)
	if t.Owner != "" {
		now = fmt.Sprintf("%s holds it with attempt %d", t.Owner, t.Attempts)
		if t.LeaseUntil != nil {
			now += " until " + t.LeaseUntil.UTC().Format(time.RFC3339)
		}
	}
	return commands.Refuse(commands.StaleAttempt, "attempt %d (epoch %d) no longer holds task %s: %s; nothing was changed", f.Attempt, f.Epoch, t.Name(), now).
		Hinting("stop working on it, and claim again")
}

// doByHand is the operator's act on a task in whatever state.
func (ws *Workspace) doByHand(ctx context.Context, tx *store.Tx, v verb, a Act, task Task) error {
	held := task.Owner != ""
	by := v.trigger
	if v.operator != "" && (held || v.to == commands.Completed) {
		by = v.operator
	}
	switch {
	case task.asked && v.to == commands.Paused:
		return numbered(task, "pause")
	case task.State == v.to && v.to != commands.Queued:
		return nil // a repeated word is not an error
	case !commands.May(task.State, v.to, by):
		return commands.Refuse(commands.Conflict, "task %s is %s and cannot be %s", task.Name(), task.State, v.done).Hinting("see").Running("backlog", "show", task.Name())
	case held && task.Kind == AgentKind:
		return ofSpoke(task)
	case held:
		return ws.endHeld(ctx, tx, v, a, task)
	case task.Kind == AgentKind:
		if err := ws.refuseBegun(ctx, tx, task); err != nil {
			return err
		}
	}
	return ws.moveWaiting(ctx, tx, v, a, task)
}

// refuseBegun refuses to move an agent that waits as far as a restored database knows, and has begun.
func (ws *Workspace) refuseBegun(ctx context.Context, tx *store.Tx, t Task) error {
	last, untold, err := ws.backlog.begunNow(ctx, tx, []string{t.ID})
	if attempt := last[t.ID]; attempt > 0 && err == nil {
		err = commands.Refuse(commands.Conflict, "task %s is an agent whose attempt %d had begun before this database was restored from a backup, and may run", t.Name(), attempt).
			Hinting("end it with").Running("kill", commands.ShortID(t.ID), "--reason", "WHY")
	}
	return cmp.Or(err, untold[t.ID])
}

// ofSpoke refuses what only this instance's spoke does to an agent: whoever knows its
// task can guess its fence.
func ofSpoke(t Task) error {
	return commands.Refuse(commands.Conflict, "task %s is an agent that this instance's spoke runs", t.Name()).Hinting("end it with").Running("kill", commands.ShortID(t.ID), "--reason", "WHY")
}

// numbered refuses to pause or resume an agent here: that is done by words with a number, of which the newest counts.
func numbered(t Task, word string) error {
	return commands.Refuse(commands.Conflict, "task %s is an agent of a hub, not a card", t.Name()).Hinting("%s it with", word).Running(word, commands.ShortID(t.ID))
}

// endHeld ends a worker's attempt for it. The new epoch makes the worker's fence
// stale before, so that the operator's word is never taken for the worker's own.
func (ws *Workspace) endHeld(ctx context.Context, tx *store.Tx, v verb, a Act, task Task) error {
	f := Fence{Task: task.ID, Attempt: task.Attempts, Epoch: task.epoch + 1}
	tag, err := tx.Exec(ctx, statement("take_over"), f.Task, f.Attempt, f.Epoch)
	if err != nil {
		return fmt.Errorf("taking over an attempt: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errRaced
	}
	if err := ws.report(ctx, tx, f, "end", a.Usage); err != nil {
		return err
	}
	moved, err := ws.backlog.closeAttempts(ctx, tx, ws.actor, []closing{{fence: f, outcome: v.outcome, final: true, delay: a.Delay, why: v.reason, failure: v.failure(a, f.Attempt)}})
	if err != nil {
		return err
	}
	if len(moved) == 0 {
		return errRaced
	}
	ws.audit(tx, "operator."+v.done, task.ID, "", a.Reason)
	return ws.conclude(ctx, tx, moved, a)
}

// moveWaiting moves a task that no attempt holds.
func (ws *Workspace) moveWaiting(ctx context.Context, tx *store.Tx, v verb, a Act, task Task) error {
	if err := pullOne(ctx, tx, task.ID); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, statement("move_waiting"), task.ID, task.State, v.to, string(v.reason), task.epoch)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return errRaced
	}
	ws.audit(tx, "operator."+v.done, task.ID, string(v.reason), a.Reason)
	moved, err := endedTasks(ctx, tx, []string{task.ID})
	if err != nil {
		return err
	}
	if err := resolveNow(ctx, tx, []string{task.ID}); err != nil {
		return err
	}
	if err := ws.backlog.followUp(ctx, tx, moved, true); err != nil {
		return err
	}
	return ws.conclude(ctx, tx, moved, a)
}

// conclude keeps the result and tells of the move.
func (ws *Workspace) conclude(ctx context.Context, tx *store.Tx, moved []Moved, a Act) error {
	if len(a.Result) > 0 {
		_, err := tx.Exec(ctx, `INSERT INTO task_bodies (task, workspace, result) VALUES ($1, $2, $3) ON CONFLICT (task) DO UPDATE SET result = excluded.result`,
			moved[0].Task, ws.name, a.Result)
		if err != nil {
			return fmt.Errorf("storing the result: %w", err)
		}
	}
	return ws.backlog.report(ctx, tx, moved)
}

func (ws *Workspace) audit(tx *store.Tx, action, object, code, why string) {
	tx.Audit(store.AuditRow{Actor: ws.actor, Action: action, Object: object, Code: code, Why: why})
}

// CompleteMany ends many attempts well in one transaction, and answers for each
// whether its fence still held. It is for workers that claim in batches, and one
// round trip. Programs that link this package have it, and the benchmarks: no
// operation of the API does, and a spoke ends tasks by [Backlog.Record].
func (ws *Workspace) CompleteMany(ctx context.Context, fences []Fence) ([]bool, error) {
	held := make([]bool, len(fences))
	list := make([]closing, len(fences))
	for i, f := range fences {
		list[i] = closing{fence: f, outcome: completing.outcome}
	}
	err := ws.tx(ctx, "completing tasks", func(ctx context.Context, tx *store.Tx) error {
		clear(held)
		var batch pgx.Batch
		// Claimers that work off what one task waits for take turns at it.
		batch.Queue(statement("hold_with_dependents"), uuids(fencesOf(fences, func(f Fence) Fence { return f }).task))
		tasks := queueClose(&batch, statement("complete_attempts"), ws.actor, list, func(rows pgx.Rows) error {
			var n int
			_, err := pgx.ForEachRow(rows, []any{&n}, func() error { held[n-1] = true; return nil })
			return err
		})
		batch.Queue(statement("resolve"), tasks)
		batch.Queue(statement("free"), tasks)
		return tx.SendLast(ctx, &batch)
	})
	if err != nil || !slices.Contains(held, false) {
		return held, err
	}
	return held, ws.read(ctx, "answering for completed tasks", func(ctx context.Context, tx *store.Tx) error {
		for i, f := range fences {
			// The answer to an earlier call may have been lost.
			if !held[i] {
				if held[i], err = ws.answeredBefore(ctx, tx, completing, f); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
