package store

import (
	"context"
	"time"
)

// dueNow makes a delivery due that may have waited.
const dueNow = `next_try_at = clock_timestamp(), waits_since = clock_timestamp()`

// waitAnew is of a number of deliveries of each webhook: no lease of them is longer than $1.
const waitAnew = `
	WITH held AS (
		UPDATE webhooks SET held_until = CASE WHEN held_at > now() THEN now() + (held_until - held_at) ELSE held_until END,
			held_at = CASE WHEN held_at > now() THEN now() ELSE held_at END, failing_since = CASE WHEN failing_since > now() THEN now() ELSE failing_since END
		WHERE held_at > now() OR failing_since > now()
	), ahead AS MATERIALIZED (
		SELECT d.n FROM webhooks w, LATERAL (
			SELECT n FROM webhook_deliveries WHERE webhook = w.id AND state = 'pending' AND waits_since > now() ORDER BY waits_since DESC LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) AS d
	), leased AS MATERIALIZED (
		SELECT d.n FROM webhooks w, LATERAL (
			SELECT n FROM webhook_deliveries WHERE webhook = w.id AND leased_until > now() + $1::interval ORDER BY leased_until DESC LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) AS d
	)
	UPDATE webhook_deliveries SET leased_until = CASE WHEN leased_until > now() + $1::interval THEN now() + $1::interval ELSE leased_until END,
		next_try_at = CASE WHEN waits_since > now() THEN now() + (next_try_at - waits_since) ELSE next_try_at END, waits_since = least(waits_since, now())
	WHERE n = ANY (ARRAY (SELECT n FROM ahead UNION SELECT n FROM leased))`

// WaitAnew bounds what waits by a clock of the database that was ahead, and was set back since: a delivery, or a whole webhook, waits
// for its time from now on, and whoever has one has it for no longer than lease. Else all wait as much longer as the clock was ahead.
func (db *DB) WaitAnew(ctx context.Context, lease time.Duration) error {
	return db.Tx(ctx, "bounding what waits to be delivered by a clock that was ahead", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody()
		_, err := tx.Exec(ctx, waitAnew, lease, planRoom)
		return err
	})
}
