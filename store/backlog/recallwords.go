package backlog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// What the host of a restored database has said since the backup, or an agent itself, is in no message that comes again: that an
// agent is to stand still or to go on, and that a question is closed. It is in how the one who asked for the task recalls it. None of
// it is told: the asker knows.

// Why it is as the asker recalls.
const (
	pausedBefore   = "it was paused before this instance was restored from a backup"
	goesOn         = "it went on after the backup that this database was restored from"
	answeredBefore = "its agent went on after the backup that this database was restored from"
)

// earlyFor is how long a word on what is not here waits for it.
const earlyFor = 7 * 24 * time.Hour

// A recalledWord is whether the agent of a task is to stand still.
type recalledWord struct {
	Pause
	here  heldTask // zero: it is not
	told  commands.TaskStanding
	waits bool // its next attempt has not begun, as far as is told
}

// word notes whether a task was paused. What its asker has said of that before is older.
func (r *recalling) word(h heldTask, s commands.TaskStanding, waits bool) {
	if h.leased && waits && s.State == commands.Paused { // it was claimed here, and that is not told yet
		return
	}
	p := Pause{Task: s.Task, Number: s.Word + 1, Paused: s.State == commands.Paused, Reason: goesOn, Actor: "peer"}
	if p.Paused {
		p.Reason = pausedBefore
	}
	if h.state == "" {
		p.Expires = time.Now().Add(earlyFor)
	}
	r.words = append(r.words, recalledWord{p, h, s, waits})
}

// noteWords keeps what was noted, and sorts what stands otherwise here.
func (r *recalling) noteWords(ctx context.Context, tx *store.Tx) error {
	for _, w := range r.words {
		still, known, err := r.noteWord(ctx, tx, w.Pause)
		if err != nil {
			return err
		}
		switch {
		case w.here.leased && known: // of a later attempt nothing is to be done to this one
			_, _, err = pauseLease(ctx, tx, Pause{Task: w.Task, Paused: still && w.told.Attempt == w.here.fence.Attempt})
		case w.here.leased || !w.waits:
		case still && w.here.state == commands.Queued:
			r.paused = append(r.paused, w.Task)
		case !still && w.here.state == commands.Paused && w.told.State == commands.Queued:
			r.ran = append(r.ran, PausedAgent{Task: w.Task, Attempt: w.told.Attempt + 1})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// noteWord keeps a word. It reports whether the agent is to stand still then; known is false where nobody has said anything of that.
func (r *recalling) noteWord(ctx context.Context, tx *store.Tx, p Pause) (still, known bool, err error) {
	var early *time.Time
	if !p.Expires.IsZero() {
		early = &p.Expires
	}
	err = tx.QueryRow(ctx, statement("note_recalled_word"), p.Task, r.conn, p.Number, p.Paused, p.Reason, p.Actor, early, r.restored).Scan(&still)
	if err == pgx.ErrNoRows {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("recording whether task %s is paused: %w", p.Task, err)
	}
	return still, true, nil
}

// goOn lets tasks stand as they are recalled, or tells how they stand.
func (b *Backlog) goOn(ctx context.Context, tx *store.Tx, r *recalling) error {
	if err := r.closeQuestions(ctx, tx); err != nil {
		return err
	}
	for _, task := range r.unasked { // what it has asked since is not known here: it asks again, or goes on
		if _, err := b.tellStanding(ctx, tx, task); err != nil {
			return err
		}
	}
	if err := takeBack(ctx, tx, r.ran, "peer"); err != nil {
		return err
	}
	if len(r.paused) == 0 {
		return nil
	}
	if _, err := pull(ctx, tx, r.paused); err != nil {
		return err
	}
	return parkPaused(ctx, tx, r.paused, "peer")
}

// closeQuestions withdraws what agents have asked before the restore that went on since: somebody of this host has answered it, or the
// agent itself needs no answer any more.
func (r *recalling) closeQuestions(ctx context.Context, tx *store.Tx) error {
	if len(r.answered) == 0 {
		return nil
	}
	tasks, err := collect[string](tx.Query(ctx, statement("withdraw_recalled"), r.answered, r.restored, answeredBefore))
	if err != nil {
		return fmt.Errorf("closing questions as their asker recalls: %w", err)
	}
	for _, task := range tasks {
		if _, err := afterAnswer(ctx, tx, task); err != nil {
			return err
		}
		tx.Audit(store.AuditRow{Actor: "peer", Action: "task." + commands.QuestionWithdrawn, Object: task, Why: answeredBefore, Conn: r.conn})
	}
	return nil
}
