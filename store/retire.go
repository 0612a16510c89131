package store

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/signing"
)

// inboxMargin is how long after its expiry a message's id is remembered: it can
// still be accepted until then.
const inboxMargin = 2*signing.Skew + time.Hour

// Retire removes what can no longer matter, in bounded batches: inbox rows of
// messages that nobody would accept any more, outbox rows that were confirmed
// and whose question has expired, spent invites, old tombstones, claims that no
// quota counts any more, sums of removed budgets, grant keys that verify nothing.
func (db *DB) Retire(ctx context.Context) error {
	for _, sql := range []string{
		`DELETE FROM inbox WHERE (conn, id) IN (SELECT conn, id FROM inbox WHERE exp < clock_timestamp() - $1::interval ORDER BY exp LIMIT 5000)`,
		`DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE exp < clock_timestamp() - $1::interval ORDER BY exp LIMIT 5000)`,
		`DELETE FROM kills k WHERE exp < clock_timestamp() - $1::interval AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = k.task)`,
		`DELETE FROM invites WHERE expires_at < clock_timestamp() - $1::interval - interval '30 days'`,
		`DELETE FROM quota_uses u USING quotas q WHERE q.id = u.quota AND u.at < clock_timestamp() - greatest($1::interval, q.win)
			AND NOT EXISTS (SELECT FROM leases l WHERE l.task = u.task AND l.attempt = u.attempt)`,
		`DELETE FROM grant_keys WHERE verifies_until < clock_timestamp() - $1::interval`,
		`DELETE FROM budget_slots s WHERE $1 > interval '0' AND NOT EXISTS (SELECT FROM budgets b WHERE b.id = s.budget)`,
		`DELETE FROM last_commits WHERE at < clock_timestamp() - $1::interval`,
		`DELETE FROM recalled WHERE at < clock_timestamp() - $1::interval - interval '30 days'`,
		`DELETE FROM listeners WHERE until < clock_timestamp() - $1::interval`,
	} {
		err := db.Tx(ctx, "retiring old rows", func(ctx context.Context, tx *Tx) error {
			_, err := tx.Exec(ctx, sql, inboxMargin)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
