package backlog

import (
	"context"
	"fmt"

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
			return commands.Refuse(commands.Conflict, "task %s is %s, and only what has ended is archived", task.Name(), task.State).Hinting("to end it").Running("backlog", "cancel", task.Name())
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
