package backlog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Past is what is known of a task's attempts from before a restore.
type Past struct {
	Begun int  // the last attempt that is known to have started; 0 = none
	Asked bool // the one who asked for the task was asked about it, and has not answered yet; not where it is killed: it ends so, whatever the answer is
}

// Pasts returns what is known of tasks from before a restore.
func (b *Backlog) Pasts(ctx context.Context, tasks []string) (map[string]Past, error) {
	pasts := map[string]Past{}
	err := b.db.Read(ctx, "looking for what was recalled of tasks", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, statement("pasts"), tasks)
		if err != nil {
			return err
		}
		var task string
		var p Past
		_, err = pgx.ForEachRow(rows, []any{&task, &p.Begun, &p.Asked}, func() error { pasts[task] = p; return nil })
		return err
	})
	return pasts, err
}

// Recall takes in how tasks of connection conn stand, as their asker recalls, in
// a transaction of its caller. A task of somebody else is one that is not here. What has ended there ends here too, with the same
// outcome. What had started is noted and its attempt opened, whatever its task would wait for, so that it is taken over
// and not started again. A task that is not here, runs there and will not be asked
// for again ends there: its asker is told.
func (b *Backlog) Recall(ctx context.Context, tx *store.Tx, conn string, list []commands.TaskStanding) error {
	b.begun.restored.Store(true)
	here, err := holdRecalled(ctx, tx, conn, list)
	if err != nil {
		return err
	}
	r := recalling{here: here, conn: conn}
	if r.restored, err = tx.RestoredAt(ctx, conn); err != nil {
		return err
	}
	for _, s := range list {
		r.sort(conn, s)
	}
	unknown, err := r.newUnknown(ctx, tx, list)
	if err != nil {
		return err
	}
	if len(r.lost) > 0 {
		if err := b.moved(ctx, tx, r.lost); err != nil {
			return err
		}
	}
	if err := b.answersOf(ctx, tx, conn, list); err != nil {
		return err
	}
	if err := b.endRecalled(ctx, tx, conn, r.ended, r.leased); err != nil {
		return err
	}
	if err := r.note(ctx, tx, conn); err != nil {
		return err
	}
	if err := r.noteWords(ctx, tx); err != nil {
		return err
	}
	if err := b.goOn(ctx, tx, &r); err != nil {
		return err
	}
	if _, err := b.takeBegun(ctx, tx, slices.Concat(r.begun.task, r.cancelled)); err != nil {
		return err
	}
	if err := finishRecalled(ctx, tx, conn, r.cancelled); err != nil {
		return err
	}
	return tx.CountRecalled(ctx, conn, unknown, len(r.lost)) // it locks the numbers, which come last
}

// newUnknown is how many tasks are not here, each once after a restore: a hub names a task in each page that has a message about
// it. One that comes again, and has begun nothing, counts each time. One that was named before is not told as lost again.
func (r *recalling) newUnknown(ctx context.Context, tx *store.Tx, list []commands.TaskStanding) (int, error) {
	var unknown []string
	for _, s := range list {
		if _, here := r.here[s.Task]; !here {
			unknown = append(unknown, s.Task)
		}
	}
	named := map[string]bool{}
	if len(unknown) > 0 && !r.restored.IsZero() {
		rows, err := tx.Query(ctx, statement("named_before"), unknown, r.conn, r.restored)
		if err != nil {
			return 0, fmt.Errorf("looking for tasks that were named before: %w", err)
		}
		var task string
		if _, err := pgx.ForEachRow(rows, []any{&task}, func() error { named[task] = true; return nil }); err != nil {
			return 0, fmt.Errorf("looking for tasks that were named before: %w", err)
		}
	}
	r.lost = slices.DeleteFunc(r.lost, func(m Moved) bool { return named[m.Task] })
	return len(unknown) - len(named), nil
}

// finishRecalled makes the open attempts of tasks of a connection that it recalls as cancelled the last ones: they may finish.
func finishRecalled(ctx context.Context, tx *store.Tx, conn string, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `UPDATE leases SET reason = $2 WHERE task = ANY ($1::uuid[]) AND conn = $3 AND reason = ''`, tasks, string(commands.CancelRequested), conn)
	if err != nil {
		return fmt.Errorf("making attempts the last ones as their asker recalls: %w", err)
	}
	return nil
}

// answersOf lets what is told of tasks answer the orders that their asker knows: it may
// have given them again since. How such a task ended is told once more.
func (b *Backlog) answersOf(ctx context.Context, tx *store.Tx, conn string, list []commands.TaskStanding) error {
	var tasks, orders, digests []string
	told := map[string]bool{} // or will be, with an order that comes again
	for _, s := range list {
		tasks, orders, digests = append(tasks, s.Task), append(orders, s.Command), append(digests, s.SHA256)
		told[s.Task] = s.State.Terminal() || s.Comes
	}
	rows, err := tx.Query(ctx, statement("answers_of"), tasks, orders, digests, conn)
	if err != nil {
		return fmt.Errorf("noting which orders tasks answer: %w", err)
	}
	ended, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Moved, error) {
		m := Moved{Conn: conn}
		err := row.Scan(&m.Task, &m.State, &m.Epoch, &m.Asked.Command, &m.Asked.Digest, &m.told)
		if m.told != nil {
			m.Attempt = m.told.Attempt
		}
		return m, err
	})
	if err != nil {
		return fmt.Errorf("noting which orders tasks answer: %w", err)
	}
	ended = slices.DeleteFunc(ended, func(m Moved) bool { return told[m.Task] })
	if len(ended) == 0 {
		return nil
	}
	return b.moved(ctx, tx, ended)
}

// A heldTask is a task as it is held until the commit.
type heldTask struct {
	state  commands.State
	fence  Fence
	leased bool
}

func holdRecalled(ctx context.Context, tx *store.Tx, conn string, list []commands.TaskStanding) (map[string]heldTask, error) {
	tasks := make([]string, len(list))
	for i, s := range list {
		tasks[i] = s.Task
	}
	if err := holdStanding(ctx, tx, tasks); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, statement("read_recalled"), tasks, conn)
	if err != nil {
		return nil, fmt.Errorf("reading tasks that were recalled: %w", err)
	}
	here, h := map[string]heldTask{}, heldTask{}
	_, err = pgx.ForEachRow(rows, []any{&h.fence.Task, &h.state, &h.fence.Attempt, &h.fence.Epoch, &h.leased}, func() error {
		here[h.fence.Task] = h
		return nil
	})
	return here, err
}

// recalling sorts what was recalled by what follows from it.
type recalling struct {
	conn      string
	restored  time.Time // see [store.Tx.RestoredAt]
	here      map[string]heldTask
	words     []recalledWord
	paused    []string      // tasks that wait here, and are not to
	ran       []PausedAgent // that are paused here, and have begun an attempt that is not known here
	answered  []string      // tasks whose agents went on, in a later attempt too
	cancelled []string      // tasks whose agents may finish, and have no other attempt; here or not
	unasked   []string      // tasks whose agents wait for an answer as far as their asker knows, and do not here, and those that wait for a review
	ended     []commands.TaskStanding
	leased    []closing // of these, the attempts that are open here
	lost      []Moved   // of which nothing is here
	begun     attempts  // that had started, and may run
	over      attempts  // that have ended, of tasks that are not here
	forward   attempts  // of tasks that wait, the last ones that are over
}

type attempts struct {
	task    []string
	attempt []int
}

func (a *attempts) add(task string, attempt int) {
	if attempt == 0 {
		return
	}
	a.task, a.attempt = append(a.task, task), append(a.attempt, attempt)
}

func (r *recalling) sort(conn string, s commands.TaskStanding) {
	if s.Reason == commands.CancelRequested {
		r.cancelled = append(r.cancelled, s.Task)
	}
	h, here := r.here[s.Task]
	switch {
	case !here:
		if !s.State.Terminal() && !s.Comes {
			r.lost = append(r.lost, lost(conn, s))
		}
		if s.Attempt == 0 && !s.Comes { // else it may be lost yet
			r.over.task, r.over.attempt = append(r.over.task, s.Task), append(r.over.attempt, 0) // that it was named
		}
		r.before(s)
	case h.state.Terminal():
	case s.State.Terminal():
		if r.ended = append(r.ended, s); h.leased {
			r.leased = append(r.leased, closing{fence: h.fence, outcome: string(commands.Released)})
		}
	case reviewed(h.state) && s.Attempt <= h.fence.Attempt: // its asker decides again
		r.unasked = append(r.unasked, s.Task)
	case reviewed(s.State) && !h.leased: // its end is found
		r.begun.add(s.Task, s.Attempt)
		r.forward.add(s.Task, s.Attempt-1)
	case s.Attempt > 0 && h.leased:
		if s.State == commands.AwaitingInput && s.Attempt == h.fence.Attempt && !s.Over && h.state == commands.Running {
			r.unasked = append(r.unasked, s.Task)
		}
		r.begun.add(s.Task, s.Attempt)
		r.wentOn(h, s)
	case s.Attempt == 0 || s.Over || s.State == commands.Queued: // the next one may start
		r.forward.add(s.Task, s.Attempt)
		r.word(h, s, true)
		if s.State == commands.Queued && s.Attempt > h.fence.Attempt {
			r.answered = append(r.answered, s.Task)
		}
	default:
		r.begun.add(s.Task, max(s.Attempt, h.fence.Attempt+1))
		r.forward.add(s.Task, s.Attempt-1)
		if s.Attempt > h.fence.Attempt {
			r.wentOn(h, s)
		}
	}
}

// wentOn sorts a task with an attempt that has begun by how its agent stands.
func (r *recalling) wentOn(h heldTask, s commands.TaskStanding) {
	r.word(h, s, false)
	if !h.leased && h.state == commands.Paused {
		r.ran = append(r.ran, PausedAgent{Task: s.Task, Attempt: s.Attempt})
	}
	if s.State == commands.Running && s.Attempt >= h.fence.Attempt {
		r.answered = append(r.answered, s.Task)
	}
}

// before sorts what is not here, for when it comes.
func (r *recalling) before(s commands.TaskStanding) {
	waits := s.Attempt == 0 || s.Over || s.State == commands.Queued
	switch {
	case s.State.Terminal(), reviewed(s.State): // its end is found
		r.begun.add(s.Task, s.Attempt)
	case waits:
		r.word(heldTask{}, s, true)
		r.over.add(s.Task, s.Attempt)
	default:
		if s.State != commands.Paused { // else its agent is found as it stands
			r.word(heldTask{}, s, false)
		}
		r.begun.add(s.Task, s.Attempt)
	}
}

// lost is the end of a task of which nothing is here.
func lost(conn string, s commands.TaskStanding) Moved {
	m := Moved{Task: s.Task, Conn: conn, Asked: Asked{Command: s.Command, Digest: s.SHA256}, State: commands.Failed, Reason: commands.ExecutorDied,
		Attempt: s.Attempt, At: time.Now().UnixMilli(), End: &End{Outcome: commands.Interrupted,
			Exit: commands.Exit{Code: -1, Error: "the spoke was restored from a backup that does not know this agent"}}}
	if s.Attempt == 0 {
		m.State, m.Reason, m.End = commands.Expired, commands.CommandExpired, nil
	}
	return m
}

func (r *recalling) note(ctx context.Context, tx *store.Tx, conn string) error {
	over := make([]bool, len(r.begun.task), len(r.begun.task)+len(r.over.task))
	for range r.over.task {
		over = append(over, true)
	}
	if len(over) > 0 {
		if _, err := tx.Exec(ctx, statement("note_recalled"), append(r.begun.task, r.over.task...), append(r.begun.attempt, r.over.attempt...), conn, over, r.cancelled); err != nil {
			return fmt.Errorf("noting attempts that had started: %w", err)
		}
	}
	if len(r.forward.task) > 0 {
		if _, err := tx.Exec(ctx, statement("bring_forward"), r.forward.task, r.forward.attempt); err != nil {
			return fmt.Errorf("bringing tasks forward: %w", err)
		}
	}
	return nil
}

// endRecalled ends tasks as their asker recalls that they ended. The asker is told so once
// more: it knows the end, but may go back to a backup that does not, and the word that it
// had was lost here.
func (b *Backlog) endRecalled(ctx context.Context, tx *store.Tx, conn string, list []commands.TaskStanding, open []closing) error {
	if len(list) == 0 {
		return nil
	}
	var tasks, states, reasons []string
	var last []int
	var ended []int64
	for _, s := range list {
		tasks, states, reasons = append(tasks, s.Task), append(states, string(s.State)), append(reasons, string(s.Reason))
		last, ended = append(last, s.Attempt), append(ended, s.Ended)
	}
	if err := b.closeRecalled(ctx, tx, open); err != nil {
		return err
	}
	if _, err := pull(ctx, tx, tasks); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, statement("end_recalled"), tasks, states, reasons, last, "peer", ended)
	if err != nil {
		return fmt.Errorf("ending tasks as their asker recalls: %w", err)
	}
	done, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("ending tasks as their asker recalls: %w", err)
	}
	var ends []Moved
	var bad []string
	for _, s := range list {
		if !slices.Contains(done, s.Task) {
			continue
		}
		if s.State != commands.Completed {
			bad = append(bad, s.Task)
		}
		m := Moved{Task: s.Task, Conn: conn, Asked: Asked{Command: s.Command, Digest: s.SHA256}, State: s.State, Reason: s.Reason, Attempt: s.Attempt, At: s.Ended}
		if s.Outcome != "" {
			m.End = &End{Outcome: s.Outcome, Exit: commands.Exit{Code: s.Code}}
		}
		ends = append(ends, m)
	}
	if err := resolveNow(ctx, tx, done); err != nil {
		return err
	}
	if err := b.report(ctx, tx, ends); err != nil {
		return err
	}
	return b.failDependents(ctx, tx, bad)
}

// endedBefore is how an attempt ended that had begun, of a task whose asker recalls the end.
const endedBefore = "it ran when the backup was taken that this database was restored from; the end of its task is as its hub recalls it"

// closeRecalled closes the attempts of tasks that end as their asker recalls. They decide nothing, so they are given back; those that
// had begun are kept as what they are.
func (b *Backlog) closeRecalled(ctx context.Context, tx *store.Tx, open []closing) error {
	if len(open) == 0 {
		return nil
	}
	moved, err := endAttempts(ctx, tx, "peer", open)
	if err != nil {
		return err
	}
	if err := b.followUp(ctx, tx, moved, false); err != nil {
		return err
	}
	f := fencesOf(open, func(c closing) Fence { return c.fence })
	if _, err := tx.Exec(ctx, statement("interrupt_recalled"), f.task, f.attempt, commands.Exit{Code: -1, Error: endedBefore}); err != nil {
		return fmt.Errorf("closing attempts that had begun: %w", err)
	}
	return nil
}
