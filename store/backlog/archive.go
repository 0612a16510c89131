package backlog

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Archive leaves a card that has ended out of lists, or shows it in them again. One for which that is so already stays
// as it is. It is a mark, no state: retries and retention are as for others.
func (ws *Workspace) Archive(ctx context.Context, ref string, archive bool) (Task, error) {
	done := "archived"
	if !archive {
		done = "unarchived"
	}
	var task Task
	err := ws.tx(ctx, "a task being "+done, func(ctx context.Context, tx *store.Tx) (err error) {
		if task, err = ws.find(ctx, tx, ref); err != nil {
			return err
		}
		// Held, so that nobody queues it again meanwhile.
		if err := hold(ctx, tx, []string{task.ID}); err != nil {
			return err
		}
		if task, err = ws.find(ctx, tx, task.ID); err != nil {
			return err
		}
		switch {
		case task.Kind == AgentKind:
			return commands.Refuse(commands.Conflict, "task %s is an agent of a hub, not a card", task.Name()).Hinting("that hub archives it")
		case !task.State.Terminal():
			return commands.Refuse(commands.Conflict, "task %s is %s, and only what has ended is archived", task.Name(), task.State).Hinting("to end it").Running("backlog", "cancel", task.Name(), "--reason", "WHY")
		}
		tag, err := tx.Exec(ctx, statement("archive"), ws.name, task.State, task.ID, archive)
		if err != nil {
			return fmt.Errorf("archiving task %s: %w", task.Name(), err)
		}
		if tag.RowsAffected() > 0 {
			ws.audit(tx, "task."+done, task.ID, "", "")
		}
		return nil
	})
	if err != nil {
		return Task{}, err
	}
	return ws.Show(ctx, task.ID)
}

// archiveBatch is at how many tasks that have ended one call of [Workspace.ArchiveSome] looks.
const archiveBatch = 1000

// An ArchiveTerm says which cards to archive, of those that have ended.
type ArchiveTerm struct {
	Older time.Duration // so long ago
	Lane  string        // "" = any
	Phase string        // "" = any
	After string        // only those with a higher id; "" = all
}

// ArchiveSome archives the oldest cards that the term fits, of a bounded number that it looks at. It says how many, and the last
// one that it has looked at where there may be more: the next ones are after it. It may have archived none although there are more.
func (ws *Workspace) ArchiveSome(ctx context.Context, t ArchiveTerm) (n int, last string, err error) {
	if t.Older <= 0 && t.Lane == "" && t.Phase == "" {
		return 0, "", commands.Refuse(commands.Validation, "neither an age nor a lane or phase says which tasks to archive").Hinting("say how long ago they ended, or which lane or phase they are of")
	}
	if t.After == "" {
		t.After = uuid.Nil.String()
	}
	done := Filter{Status: BoardDone}
	err = ws.tx(ctx, "archiving tasks", func(ctx context.Context, tx *store.Tx) error {
		var tasks []string
		n, last = 0, ""
		err := tx.QueryRow(ctx, t.source(), ws.name, done.states(), t.After, t.Older, t.Lane, t.Phase, archiveBatch).Scan(&last, &tasks)
		if err != nil || len(tasks) == 0 {
			return err
		}
		if err := hold(ctx, tx, tasks); err != nil { // nobody queues them again meanwhile
			return err
		}
		tag, err := tx.Exec(ctx, statement("archive_some"), ws.name, done.states(), tasks, t.Older, ws.actor)
		n = int(tag.RowsAffected())
		return err
	})
	return n, last, err
}

// source is the statement that walks the narrowest set which holds all that the term may fit.
func (t ArchiveTerm) source() string {
	switch {
	case t.Phase != "":
		return statement("archivable_of_phase")
	case t.Lane != "":
		return statement("archivable_of_lane")
	}
	return statement("archivable")
}
