package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
)

// The states of a delivery.
const (
	DeliveryPending   = "pending"
	DeliveryDelivered = "delivered"
	DeliveryFailed    = "failed"
)

// A Delivery is what one webhook is told, and how that went.
type Delivery struct {
	N         int64
	ID        string // as the receiver is told
	Type      string
	At        time.Time // of the event
	CreatedAt time.Time
	State     string
	Tries     int // with the one that goes on
	NextTryAt time.Time
	Status    int // of the last answer; 0 = there was none
	Error     string
	EndedAt   *time.Time
}

const deliveryColumns = `d.n, d.id, d.type, d.at, d.created_at, d.state, d.tries, d.next_try_at, d.status, d.error, d.ended_at`

// Deliveries returns those to a webhook, the newest first, at most limit; where before is not 0, those with lower numbers.
func (db *DB) Deliveries(ctx context.Context, webhook string, before int64, limit int) (list []Delivery, err error) {
	if before == 0 {
		before = math.MaxInt64
	}
	err = db.retry(ctx, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, `SELECT `+deliveryColumns+` FROM webhook_deliveries d WHERE d.webhook = $1 AND d.n < $2 ORDER BY d.n DESC LIMIT $3`, webhook, before, limit)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Delivery])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading what a webhook was told: %w", err)
	}
	return list, nil
}

// FindDelivery returns the delivery to a webhook with an id.
func (db *DB) FindDelivery(ctx context.Context, webhook, id string) (d Delivery, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		d, err = oneDelivery(ctx, db.pool, webhook, id)
		return err
	})
	return d, err
}

func oneDelivery(ctx context.Context, q querier, webhook, id string) (d Delivery, err error) {
	rows, err := q.Query(ctx, `SELECT `+deliveryColumns+` FROM webhook_deliveries d WHERE d.webhook = $1 AND d.id = $2`, webhook, id)
	if err == nil {
		d, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Delivery])
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = commands.Refuse(commands.NotFound, "there is no delivery %q to this webhook; it may be older than deliveries are kept", commands.Clip(id)).Hinting("its id is in the list of its deliveries")
	}
	return d, err
}

// ResendDelivery makes a delivery due again, with all tries before it, under its id. One that somebody is sending is left to
// them: no two send it at once.
func (db *DB) ResendDelivery(ctx context.Context, text, id, actor string) (d Delivery, err error) {
	_, err = db.holdingWebhook(ctx, "sending a delivery again", byName, text, func(ctx context.Context, tx *Tx, w Webhook) error {
		if w.State == WebhookDisabled {
			return commands.Refuse(commands.Conflict, "the webhook %s is disabled: nothing is sent to it", w.Name).Hinting("enable it first").Running("webhook", "enable", w.Name)
		}
		if _, err := oneDelivery(ctx, tx, w.ID, id); err != nil {
			return err
		}
		tx.Audit(AuditRow{Actor: actor, Action: "webhook.resent", Object: w.Name, Why: id})
		tag, err := tx.Exec(ctx, `UPDATE webhook_deliveries SET state = 'pending', told = told OR state = 'delivered', tries = 0, `+dueNow+`, leased_until = NULL, ended_at = NULL
			WHERE webhook = $1 AND id = $2 AND (leased_until IS NULL OR leased_until <= clock_timestamp())`, w.ID, id)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return commands.Refuse(commands.Conflict, "delivery %s is being sent to the webhook %s now", id, w.Name).Hinting("see what comes of it").Running("webhook", "deliveries", w.Name)
		}
		d, err = oneDelivery(ctx, tx, w.ID, id)
		return err
	})
	return d, err
}

// WebhookFigures are what is to be watched of webhooks.
type WebhookFigures struct {
	OldestPending    time.Duration // 0 where nothing is
	Broken, Disabled int
}

// WebhookFigures reads them.
func (db *DB) WebhookFigures(ctx context.Context) (f WebhookFigures, err error) {
	err = db.Read(ctx, "reading figures of webhooks", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT coalesce(greatest(interval '0', clock_timestamp() - (SELECT min(d.at) FROM webhooks w, LATERAL (SELECT min(at) AS at FROM webhook_deliveries WHERE webhook = w.id AND state = 'pending') AS d)), interval '0'),
			count(*) FILTER (WHERE failures >= $1), count(*) FILTER (WHERE state = 'disabled') FROM webhooks`, BreakAfter).Scan(&f.OldestPending, &f.Broken, &f.Disabled)
	})
	return f, err
}
