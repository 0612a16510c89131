package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
)

// MaxWebhooks is how many webhooks an instance has at most: each event may be a delivery to all of them.
const MaxWebhooks = 100

// BreakAfter is how many tries of a webhook fail in a row until it gets one delivery at a time, to see whether it is back.
const BreakAfter = 5

// The states of a webhook.
const (
	WebhookActive   = "active"
	WebhookDisabled = "disabled"
)

// A Webhook is told of events by HTTP.
type Webhook struct {
	ID, Name, URL string
	Types         []string // of what it is told; and
	States        []string // of agents only changes to these; none = to any
	State         string
	Why           string // it is disabled
	DisabledBy    string // who has disabled it: "self" is this instance
	DisabledAt    *time.Time
	Cursor        int64  // number of the last event for which there is a delivery, or was none to make
	Key           string // that signs, and
	OldKey        string // that signs, too, "" = none is,
	OldKeyUntil   *time.Time
	Failures      int // in a row
	FailingSince  *time.Time
	HeldUntil     *time.Time // nothing is sent before
	LastError     string
	CreatedBy     string
	CreatedAt     time.Time
	UpdatedAt     time.Time
	Pending       int // deliveries, the first 1000
}

// Broken reports whether a webhook gets one delivery at a time, because tries failed.
func (w Webhook) Broken() bool { return w.Failures >= BreakAfter }

// Restored reports whether a restore has disabled a webhook, and nobody.
func (w Webhook) Restored() bool { return w.Why == Restored && w.DisabledBy == "self" }

const webhookColumns = `w.id::text, w.name, w.url, w.types, w.states, w.state, w.why, w.disabled_by, w.disabled_at, w.cursor, w.key::text, ` + oldKey + `, CASE WHEN w.old_key_until > clock_timestamp() THEN w.old_key_until END,
	w.failures, w.failing_since, w.held_until, w.last_error, w.created_by, w.created_at, w.updated_at,
	(SELECT count(*) FROM (SELECT FROM webhook_deliveries d WHERE d.webhook = w.id AND d.state = 'pending' LIMIT 1000) AS p)`

const oldKey = `CASE WHEN w.old_key_until > clock_timestamp() THEN w.old_key::text ELSE '' END`

// byID and byName find one. What a person writes may be either: no name looks like an id.
const (
	byID   = `w.id = $1::uuid`
	byName = `w.name = $1 OR w.id::text = $1`
)

func noWebhook(text string) error {
	return commands.Refuse(commands.NotFound, "there is no webhook with the name or the id %q", commands.Clip(text)).Hinting("see").Running("webhook", "list")
}

// AddWebhook stores a webhook, which is told of what happens from now on.
func (db *DB) AddWebhook(ctx context.Context, w Webhook) error {
	return db.Tx(ctx, "creating the webhook "+w.Name, func(ctx context.Context, tx *Tx) error {
		var many bool
		if err := tx.QueryRow(ctx, `SELECT count(*) >= $1 FROM webhooks`, MaxWebhooks).Scan(&many); err != nil {
			return err
		}
		if many {
			return commands.Refuse(commands.Conflict, "there are %d webhooks, which is the limit", MaxWebhooks).Hinting("delete those that are no longer needed").Running("webhook", "list")
		}
		_, err := tx.Exec(ctx, `INSERT INTO webhooks (id, name, url, types, states, key, created_by, cursor) SELECT $1, $2, $3, $4, $5, $6, $7, last FROM event_numbers`,
			w.ID, w.Name, w.URL, w.Types, w.States, w.Key, w.CreatedBy)
		tx.Audit(AuditRow{Actor: w.CreatedBy, Action: "webhook.created", Object: w.Name, Why: w.terms()})
		return w.refuse(err)
	})
}

// terms says what w is told, for the audit. Its URL may be known to few, and is not in there.
func (w Webhook) terms() string {
	text := strings.Join(w.Types, ", ")
	if len(w.States) > 0 {
		text += "; states " + strings.Join(w.States, ", ")
	}
	return text
}

// refuse puts what the table does not take into words.
func (w Webhook) refuse(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch pg.ConstraintName {
	case "webhooks_name":
		return commands.Refuse(commands.Conflict, "a webhook named %s is there already", w.Name).Hinting("choose another name, or see what it does").Running("webhook", "show", w.Name)
	case "name_is_a_name":
		return commands.NotAName(w.Name)
	case "name_is_no_id":
		return commands.Refuse(commands.Validation, "a webhook named %s cannot be created: the name looks like an id", w.Name).Hinting("choose another name")
	}
	return err
}

// Webhooks returns all, by name.
func (db *DB) Webhooks(ctx context.Context) (list []Webhook, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, `SELECT `+webhookColumns+` FROM webhooks w ORDER BY w.name`)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Webhook])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the webhooks: %w", err)
	}
	return list, nil
}

// FindWebhook returns the one with a name or an id.
func (db *DB) FindWebhook(ctx context.Context, text string) (w Webhook, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		w, err = oneWebhook(ctx, db.pool, byName, text)
		return err
	})
	if commands.CodeOf(err) == commands.NotFound || err == nil {
		return w, err
	}
	return w, fmt.Errorf("reading the webhook %s: %w", commands.Clip(text), err)
}

func oneWebhook(ctx context.Context, q querier, by, text string) (Webhook, error) {
	rows, err := q.Query(ctx, `SELECT `+webhookColumns+` FROM webhooks w WHERE `+by, text)
	if err != nil {
		return Webhook{}, err
	}
	w, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Webhook])
	if errors.Is(err, pgx.ErrNoRows) {
		err = noWebhook(text)
	}
	return w, err
}

// holdingWebhook runs act with a webhook that is held until the transaction ends, and returns it as it is then.
func (db *DB) holdingWebhook(ctx context.Context, doing, by, text string, act func(ctx context.Context, tx *Tx, w Webhook) error) (w Webhook, err error) {
	err = db.Tx(ctx, doing, func(ctx context.Context, tx *Tx) error {
		if w, err = oneWebhook(ctx, tx, `(`+by+`) FOR NO KEY UPDATE`, text); err != nil {
			return err
		}
		if err := act(ctx, tx, w); err != nil {
			return err
		}
		w, err = oneWebhook(ctx, tx, byID, w.ID)
		return err
	})
	return w, err
}

// RotateWebhook has a webhook signed by another key, and by its key of now, too, for overlap.
func (db *DB) RotateWebhook(ctx context.Context, text, key string, overlap time.Duration, actor string) (Webhook, error) {
	return db.holdingWebhook(ctx, "rotating the key of a webhook", byName, text, func(ctx context.Context, tx *Tx, w Webhook) error {
		tx.Audit(AuditRow{Actor: actor, Action: "webhook.rotated", Object: w.Name})
		_, err := tx.Exec(ctx, `UPDATE webhooks SET key = $2, old_key = key, old_key_until = clock_timestamp() + $3::interval, updated_at = clock_timestamp() WHERE id = $1`, w.ID, key, overlap)
		return err
	})
}

// RemoveWebhook forgets a webhook. What it was told may be much, and goes as rows are pruned: whoever plans deliveries to others waits for
// this.
func (db *DB) RemoveWebhook(ctx context.Context, text, actor string) (w Webhook, err error) {
	err = db.Tx(ctx, "deleting a webhook", func(ctx context.Context, tx *Tx) error {
		if w, err = oneWebhook(ctx, tx, `(`+byName+`) FOR UPDATE`, text); err != nil {
			return err
		}
		tx.Audit(AuditRow{Actor: actor, Action: "webhook.deleted", Object: w.Name, Why: w.terms()})
		_, err := tx.Exec(ctx, `DELETE FROM webhooks WHERE id = $1`, w.ID)
		return err
	})
	return w, err
}
