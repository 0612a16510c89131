package backlog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A database that was restored from a backup may have an agent as paused that went on since then and runs. Nothing would look for
// it before somebody resumes it, so it is claimed at once, and its attempt taken over.

// A PausedAgent is an agent that is paused and that no attempt holds, as far as is known here.
type PausedAgent struct {
	Task    string
	Attempt int // its last one; 0 = none
	Conn    string
}

// PausedAgents returns all of them.
func (b *Backlog) PausedAgents(ctx context.Context) (list []PausedAgent, err error) {
	err = b.db.Read(ctx, "looking for agents that are paused", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, statement("paused_agents"), MainWorkspace)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[PausedAgent])
		return err
	})
	return list, err
}

// TakeBack lets paused agents be claimed whose named attempt has begun here since the backup. Their pause is still the last word of
// it; see [Backlog.KeepPaused].
func (b *Backlog) TakeBack(ctx context.Context, list []PausedAgent) error {
	if len(list) == 0 {
		return nil
	}
	return b.db.Tx(ctx, "taking back agents that are paused", func(ctx context.Context, tx *store.Tx) error {
		tasks := make([]string, len(list))
		for i, a := range list {
			tasks[i] = a.Task
		}
		if err := holdStanding(ctx, tx, tasks); err != nil {
			return err
		}
		return takeBack(ctx, tx, list, "self")
	})
}

// wentOn is why a paused agent is claimed again.
const wentOn = "it went on after the backup that this database was restored from, and its attempt is taken over"

// takeBack is TakeBack where the caller holds the tasks. One that is not paused any more, or is held by an attempt, stays as it is.
func takeBack(ctx context.Context, tx *store.Tx, list []PausedAgent, actor string) error {
	if len(list) == 0 {
		return nil
	}
	tasks, before := make([]string, len(list)), map[string]int{}
	for i, a := range list {
		tasks[i], before[a.Task] = a.Task, a.Attempt-1
	}
	tasks, err := pullFrom(ctx, tx, tasks, statement("pull_paused"))
	if err != nil || len(tasks) == 0 {
		return err
	}
	forward := make([]int, len(tasks))
	for i, task := range tasks {
		forward[i] = before[task]
	}
	if _, err := tx.Exec(ctx, statement("unpark"), tasks, MainWorkspace, actor, "task.resumed", wentOn, commands.From(commands.ByResume)); err != nil {
		return fmt.Errorf("letting agents be claimed: %w", err)
	}
	if err := place(ctx, tx, tasks); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, statement("bring_forward"), tasks, forward); err != nil {
		return fmt.Errorf("bringing agents forward: %w", err)
	}
	return nil
}

// KeepPaused notes that the agent of an attempt that is taken over, and has not started as far as is known here, is to stand still,
// where the last word about its task is a pause. It reports whether that is so.
func (b *Backlog) KeepPaused(ctx context.Context, f Fence) (paused bool, err error) {
	err = b.db.Tx(ctx, "looking whether task "+f.Task+" is paused", func(ctx context.Context, tx *store.Tx) error {
		tag, err := tx.Exec(ctx, statement("keep_paused"), f.Task, f.Attempt, f.Epoch)
		paused = tag.RowsAffected() > 0
		return err
	})
	return paused, err
}
