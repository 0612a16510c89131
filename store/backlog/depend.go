package backlog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Link makes one task depend on another. An edge that is there already is not
// an error; one that would close a circle is, and the circle is spelled out.
func (ws *Workspace) Link(ctx context.Context, from, to string) error {
	return ws.again(ctx, func() error {
		return ws.tx(ctx, "linking tasks", func(ctx context.Context, tx *store.Tx) error {
			task, dep, err := ws.ends(ctx, tx, from, to)
			if err != nil {
				return err
			}
			if task.ID == dep.ID {
				return commands.Refuse(commands.Cycle, "task %s cannot depend on itself", task.Name())
			}
			if task.State.Terminal() || task.Owner != "" {
				return commands.Refuse(commands.Conflict, "task %s is %s: what it depends on is settled", task.Name(), task.State)
			}
			return ws.link(ctx, tx, task, dep)
		})
	})
}

func (ws *Workspace) ends(ctx context.Context, tx *store.Tx, from, to string) (task, dep Task, err error) {
	// One link at a time in a workspace: two at once could close a circle that
	// neither sees.
	if _, err = tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('link ' || $1, 0))`, ws.name); err != nil {
		return task, dep, err
	}
	if task, err = ws.find(ctx, tx, from); err != nil {
		return task, dep, err
	}
	dep, err = ws.find(ctx, tx, to)
	return task, dep, err
}

func (ws *Workspace) link(ctx context.Context, tx *store.Tx, task, dep Task) error {
	if err := ws.refuseCycle(ctx, tx, task, dep); err != nil {
		return err
	}
	// Held as they are until the commit, so that an end comes before or after.
	if err := hold(ctx, tx, []string{task.ID, dep.ID}); err != nil {
		return err
	}
	known, err := findTasks(ctx, tx, ws.name, []string{dep.ID})
	if err != nil {
		return err
	}
	if err := pullOne(ctx, tx, task.ID); err != nil {
		return err
	}
	held, there := known[dep.ID]
	if !there {
		return errRaced // it was pruned
	}
	met, bad := meets(held.state, task.OnFailedDep)
	if bad && task.OnFailedDep == "cancel" {
		return commands.Refuse(commands.Conflict, "task %s is %s, and %s is to be cancelled when a dependency fails", dep.Name(), dep.State, task.Name())
	}
	tag, err := tx.Exec(ctx, statement("add_edge"), task.ID, dep.ID, ws.name, met, bad, task.State)
	if err != nil {
		return fmt.Errorf("adding the edge: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errRaced
	}
	if err := ws.standAgain(ctx, tx, task); err != nil {
		return err
	}
	ws.audit(tx, "task.linked", task.ID, "", "depends on "+dep.ID)
	return nil
}

// rowState is the state that the row of a task says: that of a held one is its lease's.
func (t Task) rowState() commands.State {
	if t.Owner != "" {
		return commands.Queued
	}
	return t.State
}

// standAgain puts a waiting task that was pulled back where it belongs.
func (ws *Workspace) standAgain(ctx context.Context, tx *store.Tx, task Task) error {
	if task.State == commands.Queued {
		return place(ctx, tx, []string{task.ID})
	}
	return park(ctx, tx, []string{task.ID}, string(task.State))
}

// refuseCycle asks whether dep depends on task, directly or not.
func (ws *Workspace) refuseCycle(ctx context.Context, tx *store.Tx, task, dep Task) error {
	rows, err := tx.Query(ctx, statement("walk_dependencies"), dep.ID, task.ID)
	if err != nil {
		return fmt.Errorf("looking for a circle: %w", err)
	}
	via, name := map[string]string{}, map[string]string{}
	var node, from, called string
	_, err = pgx.ForEachRow(rows, []any{&node, &from, &called}, func() error {
		if _, known := via[node]; !known {
			via[node] = from
		}
		name[node] = called
		return nil
	})
	if err != nil {
		return fmt.Errorf("looking for a circle: %w", err)
	}
	if _, circle := via[task.ID]; !circle {
		return nil
	}
	// From task back to dep by the way the walk came, then the new edge in front.
	path := []string{task.Name()}
	for node := via[task.ID]; node != "" && len(path) <= len(via); node = via[node] {
		path = append(path, name[node])
	}
	path = append(path, task.Name())
	slices.Reverse(path)
	if len(path) > 12 {
		path = slices.Concat(path[:6], []string{fmt.Sprintf("… %d more …", len(path)-11)}, path[len(path)-5:])
	}
	return commands.Refuse(commands.Cycle, "task %s cannot depend on %s, that would be a circle: %s", task.Name(), dep.Name(), strings.Join(path, " -> ")).
		Hinting("each depends on the next; unlink one of them").Running("backlog", "unlink", "--from", "ID", "--to", "ID")
}

// Unlink removes an edge. A task whose last unmet dependency it was can be
// claimed from then on.
func (ws *Workspace) Unlink(ctx context.Context, from, to string) error {
	return ws.again(ctx, func() error {
		return ws.tx(ctx, "unlinking tasks", func(ctx context.Context, tx *store.Tx) error {
			task, dep, err := ws.ends(ctx, tx, from, to)
			if err != nil {
				return err
			}
			return ws.unlink(ctx, tx, task, dep)
		})
	})
}

func (ws *Workspace) unlink(ctx context.Context, tx *store.Tx, task, dep Task) error {
	leased, err := holdLeases(ctx, tx, []string{task.ID})
	if err != nil {
		return err
	}
	if err := hold(ctx, tx, []string{task.ID, dep.ID}); err != nil {
		return err
	}
	waits := !task.State.Terminal() && task.Owner == ""
	if waits {
		if err := pullOne(ctx, tx, task.ID); err != nil {
			return err
		}
	}
	if task.Owner != "" && len(leased) == 0 {
		return errRaced
	}
	var met bool
	err = tx.QueryRow(ctx, `DELETE FROM dependencies WHERE task = $1 AND dependency = $2 RETURNING met`, task.ID, dep.ID).Scan(&met)
	if err == pgx.ErrNoRows {
		return commands.Refuse(commands.NotFound, "task %s does not depend on %s", task.Name(), dep.Name())
	}
	if err != nil {
		return fmt.Errorf("removing the edge: %w", err)
	}
	tag, err := tx.Exec(ctx, statement("drop_edge"), task.ID, task.rowState(), intOf(!met))
	if err != nil {
		return fmt.Errorf("removing the edge: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errRaced
	}
	if waits {
		if err := ws.standAgain(ctx, tx, task); err != nil {
			return err
		}
	}
	ws.audit(tx, "task.unlinked", task.ID, "", "no longer depends on "+dep.ID)
	return nil
}

func intOf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// failDependents tells the dependents of tasks that ended without success, by
// each one's policy: hold notes the reason, cancel ends it with all its own
// dependents. (Who ignores it was let go when the dependency was resolved.)
func (b *Backlog) failDependents(ctx context.Context, tx *store.Tx, tasks []string) error {
	for len(tasks) > 0 {
		dependents, err := waitingDependents(ctx, tx, tasks)
		if err != nil || len(dependents) == 0 {
			return err
		}
		if _, err := tx.Exec(ctx, statement("tell_dependents"), dependents); err != nil {
			return fmt.Errorf("telling dependents: %w", err)
		}
		rows, err := tx.Query(ctx, statement("dependents_to_cancel"), tasks, commands.From(commands.ByCancel))
		if err != nil {
			return fmt.Errorf("finding dependents to cancel: %w", err)
		}
		if tasks, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(tasks) == 0 {
			return err
		}
		if tasks, err = b.cancelWaiting(ctx, tx, "self", tasks, commands.DependencyFailed); err != nil {
			return err
		}
	}
	return nil
}

// cancelWaiting cancels those of tasks that no attempt holds, and tells of it. It returns what it cancelled; their dependents are the
// caller's.
func (b *Backlog) cancelWaiting(ctx context.Context, tx *store.Tx, actor string, tasks []string, why commands.Reason) ([]string, error) {
	tasks, err := pull(ctx, tx, tasks)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, statement("cancel_waiting"), tasks, string(why), actor, append(commands.From(commands.ByCancel), commands.InReview, commands.Approved))
	if err != nil {
		return nil, fmt.Errorf("cancelling tasks: %w", err)
	}
	return b.tellEnded(ctx, tx, rows, nil)
}

// tellEnded lets go who waits for the tasks in rows, which have ended without an attempt, and tells who asked for them. What is known of the end is
// end, nil for nothing.
func (b *Backlog) tellEnded(ctx context.Context, tx *store.Tx, rows pgx.Rows, end *End) (done []string, err error) {
	if done, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(done) == 0 {
		return nil, err
	}
	if err := resolveNow(ctx, tx, done); err != nil {
		return nil, err
	}
	ends, err := endedTasks(ctx, tx, done)
	if err != nil {
		return nil, err
	}
	for i := range ends {
		ends[i].End = end
	}
	if end == nil {
		if err := keepDelivered(ctx, tx, ends); err != nil {
			return nil, err
		}
	}
	return done, b.report(ctx, tx, ends)
}
