package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DisableWebhook ends what a webhook is told, until it is enabled. Who has disabled it, and why, stays, unless actor [Overrides] that.
func (db *DB) DisableWebhook(ctx context.Context, text, reason, actor string) (Webhook, error) {
	return db.holdingWebhook(ctx, "disabling a webhook", byName, text, func(ctx context.Context, tx *Tx, w Webhook) error {
		switch {
		case w.State == WebhookDisabled && !Overrides(actor, w.DisabledBy):
			return nil
		case w.State == WebhookDisabled:
			tx.Audit(AuditRow{Actor: actor, Action: "webhook.disabled", Object: w.Name, Why: reason})
			_, err := tx.Exec(ctx, `UPDATE webhooks SET why = $2, disabled_by = $3, disabled_at = clock_timestamp(), updated_at = clock_timestamp() WHERE id = $1`, w.ID, reason, actor)
			return err
		}
		return disableWebhook(ctx, tx, w, reason, actor)
	})
}

// disableWebhook gives up what w was to be told, which can be sent again. From the first event of these on it may not have been told:
// whoever enables it says so. What it was told once, and is sent again, is none of them.
func disableWebhook(ctx context.Context, tx *Tx, w Webhook, why, actor string) error {
	tx.Audit(AuditRow{Actor: actor, Action: "webhook.disabled", Object: w.Name, Why: why})
	tx.Queue(`UPDATE webhooks SET state = 'disabled', why = $2, disabled_by = $3, disabled_at = clock_timestamp(), failures = 0, failing_since = NULL, held_until = NULL, updated_at = clock_timestamp(),
		given_up = (SELECT min(first) FROM webhook_deliveries WHERE webhook = $1 AND state = 'pending' AND NOT told) WHERE id = $1`, w.ID, why, actor)
	_, err := tx.Exec(ctx, `UPDATE webhook_deliveries SET state = 'failed', error = 'the webhook was disabled', leased_until = NULL, ended_at = clock_timestamp() WHERE webhook = $1 AND state = 'pending'`, w.ID)
	return err
}

// disableRestored disables all webhooks of a database that was restored: one of them may have been deleted since, and its
// receiver is to be told nothing more.
func disableRestored(ctx context.Context, tx *Tx) error {
	rows, err := tx.Query(ctx, `SELECT id::text, name FROM webhooks WHERE state = 'active' ORDER BY id FOR NO KEY UPDATE`)
	if err != nil {
		return fmt.Errorf("reading the webhooks: %w", err)
	}
	var list []Webhook
	var w Webhook
	if _, err := pgx.ForEachRow(rows, []any{&w.ID, &w.Name}, func() error { list = append(list, w); return nil }); err != nil {
		return fmt.Errorf("reading the webhooks: %w", err)
	}
	for _, w := range list {
		if err := disableWebhook(ctx, tx, w, Restored, "self"); err != nil {
			return fmt.Errorf("disabling the webhook %s: %w", w.Name, err)
		}
	}
	return nil
}

// EnableWebhook lets a webhook be told of what happens from now on. First it is told which events it may not have been told of, and
// whether the database is one from before since.
func (db *DB) EnableWebhook(ctx context.Context, text, reason, actor string, p Planner) (Webhook, error) {
	return db.holdingWebhook(ctx, "enabling a webhook", byName, text, func(ctx context.Context, tx *Tx, w Webhook) error {
		if w.State == WebhookActive {
			return nil
		}
		var first, last int64
		var now time.Time
		if err := tx.QueryRow(ctx, `SELECT coalesce(w.given_up, w.cursor + 1), n.last, clock_timestamp() FROM event_numbers n, webhooks w WHERE w.id = $1`, w.ID).Scan(&first, &last, &now); err != nil {
			return err
		}
		list, err := restoresAfter(ctx, tx, first-1, last)
		if err != nil {
			return err
		}
		tx.Audit(AuditRow{Actor: actor, Action: "webhook.enabled", Object: w.Name, Why: reason})
		var messages []Message
		if first <= last {
			messages = append(messages, p.Gap(first, last, now))
		}
		for _, e := range list {
			messages = append(messages, p.Tell(e))
		}
		w.tell(tx, messages)
		_, err = tx.Exec(ctx, `UPDATE webhooks SET state = 'active', why = '', disabled_by = '', disabled_at = NULL, cursor = $2, given_up = NULL, last_error = '', updated_at = clock_timestamp() WHERE id = $1`, w.ID, last)
		return err
	})
}

// tell makes deliveries of messages to w alone. One that there is, as when it was disabled again before it was told, is due
// again.
func (w Webhook) tell(tx *Tx, messages []Message) {
	if len(messages) == 0 {
		return
	}
	ids, which := make([]string, len(messages)), make([]int, len(messages))
	for i := range messages {
		ids[i], which[i] = w.ID, i
	}
	tx.Queue(planSQL+` ON CONFLICT (id) DO UPDATE SET state = 'pending', tries = 0, `+dueNow+`, ended_at = NULL`, planned(messages, ids, which)...)
}
