package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// MostArchived is how many mirrors are archived in one transaction.
const MostArchived = 1000

// An ArchiveTerm says which mirrors to archive, of those that have ended.
type ArchiveTerm struct {
	Older  time.Duration     // so long ago
	Labels commands.Selector // that they have
	After  string            // only those with a higher id; "" = all
}

// Archive leaves a mirror that has ended out of lists, or shows it in them again. One for which that is so
// already stays as it is.
func (db *DB) Archive(ctx context.Context, task string, archive bool, actor string) error {
	return db.Tx(ctx, "archiving agent "+task, func(ctx context.Context, tx *Tx) error {
		found, err := holdMirrors(ctx, tx, []string{task})
		if err != nil {
			return err
		}
		switch m, known := found[task]; {
		case !known:
			return commands.Refuse(commands.NotFound, "no agent %s", task)
		case !m.state.Terminal():
			return commands.Refuse(commands.Conflict, "agent %s is %s, and only what has ended is archived", commands.ShortID(task), m.state).Hinting("to end it").Running("kill", commands.ShortID(task))
		}
		_, _, err = archiveThose(ctx, tx, `SELECT task FROM mirrors WHERE task = $3`, archive, actor, task)
		return err
	})
}

// ArchiveSome archives the oldest mirrors that the term fits, at most [MostArchived]. It says how many, and the
// last of them where there may be more: the next ones are after it, and what is before it is not looked at again.
func (db *DB) ArchiveSome(ctx context.Context, t ArchiveTerm, actor string) (n int, last string, err error) {
	if t.After == "" {
		t.After = uuid.Nil.String()
	}
	err = db.Tx(ctx, "archiving agents", func(ctx context.Context, tx *Tx) (err error) {
		n, last, err = archiveThose(ctx, tx, `SELECT task FROM mirrors WHERE (archived, task) > (false, $5) AND archived <= false AND ended_at <= statement_timestamp() - $4::interval AND `+fits(6)+`
			ORDER BY archived, task LIMIT $3 FOR UPDATE SKIP LOCKED`, true, actor, append([]any{MostArchived, t.Older, t.After}, labelArgs(t.Labels)...)...)
		return err
	})
	if n < MostArchived {
		last = ""
	}
	return n, last, err
}

// archiveThose archives those that which selects, whose arguments are the third and the next, and audits each. It
// says how many, and the last of them.
func archiveThose(ctx context.Context, tx *Tx, which string, archive bool, actor string, args ...any) (n int, last string, err error) {
	err = tx.QueryRow(ctx, `
		WITH moved AS (
			UPDATE mirrors SET archived_at = CASE WHEN $1 THEN clock_timestamp() END, updated_at = clock_timestamp()
			WHERE task = ANY (ARRAY (`+which+`)) AND archived <> $1 RETURNING task, conn
		), noted AS (
			INSERT INTO audit (actor, action, object, conn) SELECT $2, CASE WHEN $1 THEN 'task.archived' ELSE 'task.unarchived' END, task::text, conn FROM moved
		)
		SELECT count(*), coalesce((SELECT task::text FROM moved ORDER BY moved.task DESC LIMIT 1), '') FROM moved`, append([]any{archive, actor}, args...)...).Scan(&n, &last)
	return n, last, err
}

// Label gives a mirror labels, beside those that it has; one of the same name gets the new value.
func (db *DB) Label(ctx context.Context, task string, labels commands.Labels, actor string) error {
	return db.Tx(ctx, "labelling agent "+task, func(ctx context.Context, tx *Tx) error {
		have := commands.Labels{}
		err := tx.QueryRow(ctx, `SELECT coalesce(labels, '{}') || $2::jsonb FROM mirrors WHERE task = $1 FOR UPDATE`, task, labels).Scan(&have)
		if err == pgx.ErrNoRows {
			return commands.Refuse(commands.NotFound, "no agent %s", task)
		}
		if err == nil {
			err = have.Check()
		}
		if err != nil {
			return err
		}
		tx.Audit(AuditRow{Actor: actor, Action: "task.labelled", Object: task, Why: labels.Text()})
		_, err = tx.Exec(ctx, `UPDATE mirrors SET labels = $2, updated_at = clock_timestamp() WHERE task = $1`, task, have)
		return err
	})
}
