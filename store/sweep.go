package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/signing"
)

// PromoteDue makes queued tasks whose time has come claimable, and returns how
// many and when the next one comes (at most limit from now).
func (db *DB) PromoteDue(ctx context.Context, limit time.Duration) (n int64, next time.Duration, err error) {
	err = db.tx(ctx, "promoting due tasks", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			WITH came AS (
				DELETE FROM due WHERE task IN (SELECT task FROM due WHERE at <= clock_timestamp() ORDER BY at LIMIT 1000 FOR UPDATE SKIP LOCKED) RETURNING task
			)
			INSERT INTO ready (workspace, lane, requires, rank, task, expires_at)
			SELECT workspace, lane, requires, -priority, id, 'infinity' FROM tasks JOIN came ON task = id WHERE state = 'queued' AND unmet = 0
			ON CONFLICT (task) DO NOTHING`)
		if err != nil {
			return err
		}
		n = tag.RowsAffected()
		return tx.QueryRow(ctx, `SELECT least(greatest(coalesce(min(at) - clock_timestamp(), $1), interval '0'), $1) FROM due`, limit).Scan(&next)
	})
	return n, next, err
}

// ExpireWaiting ends tasks that were never started and whose last moment to be
// started has passed; their signed results say so. It returns how many.
func (db *DB) ExpireWaiting(ctx context.Context) (n int, err error) {
	err = db.tx(ctx, "expiring tasks", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			WITH late AS (
				DELETE FROM ready WHERE task IN (SELECT task FROM ready WHERE expires_at < 'infinity' AND expires_at <= clock_timestamp() LIMIT 1000 FOR UPDATE SKIP LOCKED) RETURNING task
			), moved AS (
				UPDATE tasks SET state = 'expired', reason = 'command_expired', epoch = epoch + 1, ended_at = clock_timestamp(), updated_at = clock_timestamp()
				WHERE id = ANY (ARRAY (SELECT task FROM late)) AND state = 'queued' AND attempt = 0 RETURNING id
			), audited AS (
				INSERT INTO audit (actor, action, object, code) SELECT 'self', 'task.expired', id::text, 'command_expired' FROM moved
			)
			SELECT id::text FROM moved`)
		if err != nil {
			return err
		}
		tasks, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if n = len(tasks); err != nil || n == 0 {
			return err
		}
		ends, err := endedTasks(ctx, tx, tasks)
		if err != nil {
			return err
		}
		drafts, err := resultDrafts(ctx, tx, ends, nil)
		if err != nil {
			return err
		}
		_, err = db.put(ctx, tx, drafts)
		return err
	})
	return n, err
}

// inboxMargin is how long after its expiry a message's id is remembered: it can
// still be accepted until then.
const inboxMargin = 2*signing.Skew + time.Hour

// Retire removes what can no longer matter, in bounded batches: inbox rows of
// messages that nobody would accept any more, outbox rows that were confirmed
// and whose question has expired, spent invites and old tombstones.
func (db *DB) Retire(ctx context.Context) error {
	for _, sql := range []string{
		`DELETE FROM inbox WHERE (conn, id) IN (SELECT conn, id FROM inbox WHERE exp < clock_timestamp() - $1::interval ORDER BY exp LIMIT 5000)`,
		`DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE exp < clock_timestamp() - $1::interval ORDER BY exp LIMIT 5000)`,
		`DELETE FROM kills k WHERE exp < clock_timestamp() - $1::interval AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = k.task)`,
		`DELETE FROM invites WHERE expires_at < clock_timestamp() - $1::interval - interval '30 days'`,
	} {
		if err := db.retry(ctx, func(ctx context.Context) error { _, err := db.pool.Exec(ctx, sql, inboxMargin); return err }); err != nil {
			return fmt.Errorf("retiring old rows: %w", err)
		}
	}
	return nil
}

// ReadyCount returns how many tasks wait to be claimed.
func (db *DB) ReadyCount(ctx context.Context) (n int, err error) {
	if err = db.pool.QueryRow(ctx, `SELECT count(*) FROM ready`).Scan(&n); err != nil {
		return 0, fmt.Errorf("counting ready tasks: %w", err)
	}
	return n, nil
}
