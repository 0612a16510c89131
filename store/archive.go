package store

import (
	"context"
	"fmt"
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
			return commands.Refuse(commands.Conflict, "agent %s is %s, and only what has ended is archived", commands.ShortID(task), m.state).Hinting("to end it").Running("kill", commands.ShortID(task), "--reason", "WHY")
		}
		_, err = archiveThose(ctx, tx, `SELECT task FROM mirrors WHERE task = $3`, archive, actor, task)
		return err
	})
}

// ArchiveSome archives the oldest mirrors that the term fits, at most [MostArchived]. It says how many, and the
// last one that it has looked at where there may be more: the next ones are after it, and what is before it is not looked
// at again. It may have archived none although there are more.
func (db *DB) ArchiveSome(ctx context.Context, t ArchiveTerm, actor string) (n int, last string, err error) {
	if t.After == "" {
		t.After = uuid.Nil.String()
	}
	page, last, err := db.toArchive(ctx, t)
	if err != nil || len(page) == 0 {
		return 0, last, err
	}
	err = db.Tx(ctx, "archiving agents", func(ctx context.Context, tx *Tx) (err error) {
		n, err = archiveThose(ctx, tx, `SELECT task FROM mirrors WHERE task = ANY ($3::uuid[]) AND `+fits(4)+` ORDER BY task FOR UPDATE SKIP LOCKED`, true, actor, append([]any{page}, labelArgs(t.Labels)...)...)
		return err
	})
	return n, last, err
}

// toArchive finds what to archive in one batch, the oldest first, and after which mirror the next batch goes on; "" = it is the
// last one. It looks at [mirrorsLooked] mirrors, or at all that have the labels where these are fewer.
func (db *DB) toArchive(ctx context.Context, t ArchiveTerm) (page []string, last string, err error) {
	all, last, fit := false, "", ` FROM seen WHERE NOT archived AND task > $2 AND ended_at <= statement_timestamp() - $8::interval AND `+fits(4)
	ask := func(seen string) error {
		return db.retry(ctx, func(ctx context.Context) error {
			return db.pool.QueryRow(ctx, `WITH `+seen+` SELECT (SELECT count(*) FROM seen) < $1::int, coalesce((SELECT task::text FROM seen ORDER BY seen.task DESC LIMIT 1), ''),
				ARRAY (SELECT task::text`+fit+` ORDER BY seen.task LIMIT $3)`, append([]any{mirrorsLooked, t.After, MostArchived}, append(labelArgs(t.Labels), t.Older)...)...).Scan(&all, &last, &page)
		})
	}
	if len(t.Labels.Has) > 0 {
		err = ask(fewLabelled(4))
	}
	if err == nil && !all {
		err = ask(`seen AS MATERIALIZED (SELECT task, labels, ended_at, archived FROM mirrors WHERE (archived, task) > (false, $2) AND archived <= false ORDER BY archived, task LIMIT $1)`)
	}
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("looking for agents to archive: %w", err)
	case len(page) == MostArchived:
		return page, page[len(page)-1], nil
	case all:
		return page, "", nil
	}
	return page, last, nil
}

// archiveThose archives those that which selects, whose arguments are the third and the next, audits each, and says how many.
func archiveThose(ctx context.Context, tx *Tx, which string, archive bool, actor string, args ...any) (n int, err error) {
	err = tx.QueryRow(ctx, `
		WITH moved AS (
			UPDATE mirrors SET archived_at = CASE WHEN $1 THEN clock_timestamp() END, updated_at = clock_timestamp()
			WHERE task = ANY (ARRAY (`+which+`)) AND archived <> $1 RETURNING task, conn
		), noted AS (
			INSERT INTO audit (actor, action, object, conn) SELECT $2, CASE WHEN $1 THEN 'task.archived' ELSE 'task.unarchived' END, task::text, conn FROM moved
		)
		SELECT count(*) FROM moved`, append([]any{archive, actor}, args...)...).Scan(&n)
	return n, err
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
