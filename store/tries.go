package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
)

const (
	// AtOnce is how many deliveries of one webhook are tried at a time.
	AtOnce = 4
	// Ahead is how many of one are claimed together, the ones that are tried among them: a commit is for many.
	Ahead = 32
)

// A Trial is a delivery that is to be tried now.
type Trial struct {
	N       int64
	ID      string
	Body    string
	Tries   int // with this one
	Webhook Webhook
}

const trialColumns = `d.n, d.id, d.body, d.tries, w.id::text, w.name, w.url, w.key::text, ` + oldKey + `, w.failures`

func scanTrial(row pgx.CollectableRow) (t Trial, err error) {
	w := &t.Webhook
	return t, row.Scan(&t.N, &t.ID, &t.Body, &t.Tries, &w.ID, &w.Name, &w.URL, &w.Key, &w.OldKey, &w.Failures)
}

// room is how many more deliveries of w may be claimed now: many, when few are left of those before; no more than are tried at
// a time, when the last try failed; of one that fails one, to see whether it is back.
var room = fmt.Sprintf(`(SELECT greatest(0, CASE WHEN w.failures >= %d THEN 1 - count(*) WHEN w.failures > 0 THEN %d - count(*) WHEN count(*) <= %[2]d THEN %d - count(*) ELSE 0 END)
	FROM webhook_deliveries l WHERE l.webhook = w.id AND l.leased_until > statement_timestamp())`, BreakAfter, AtOnce, Ahead)

// due is until when the next try of a delivery of w may be set for it to be tried now.
var due = fmt.Sprintf(`CASE WHEN w.failures < %d THEN statement_timestamp() ELSE 'infinity' END`, BreakAfter)

// NextDelivery is in how long the next delivery is due, at most within.
func (db *DB) NextDelivery(ctx context.Context, within time.Duration) (next time.Duration, err error) {
	err = db.Read(ctx, "looking for the next delivery", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `
			SELECT least($1::interval, min(greatest(CASE WHEN w.failures < $2 THEN d.next ELSE least(d.next, statement_timestamp()) END, w.held_until)) - clock_timestamp())
			FROM webhooks w, LATERAL (SELECT min(next_try_at) AS next FROM webhook_deliveries WHERE webhook = w.id AND state = 'pending' AND (leased_until IS NULL OR leased_until <= statement_timestamp())) AS d
			WHERE w.state = 'active' AND d.next IS NOT NULL AND `+room+` > 0`, within, BreakAfter).Scan(&next)
	})
	return next, err
}

// ClaimDeliveries takes the deliveries that are due, as far as their webhooks have room, and leases them for so long. A try
// counts from its claim: a sender that dies may have sent it, and a delivery at which senders die comes to an end.
func (db *DB) ClaimDeliveries(ctx context.Context, lease time.Duration) (list []Trial, err error) {
	err = db.Tx(ctx, "claiming deliveries", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody()
		rows, err := tx.Query(ctx, `
			WITH due AS (
				SELECT d.n FROM webhooks w, LATERAL (
					SELECT n FROM webhook_deliveries WHERE webhook = w.id AND state = 'pending' AND next_try_at <= `+due+` AND (leased_until IS NULL OR leased_until <= statement_timestamp())
					ORDER BY next_try_at LIMIT `+room+` FOR UPDATE SKIP LOCKED) AS d
				WHERE w.state = 'active' AND (w.held_until IS NULL OR w.held_until <= statement_timestamp())
			)
			UPDATE webhook_deliveries d SET tries = d.tries + 1, leased_until = clock_timestamp() + $1 FROM due, webhooks w WHERE d.n = due.n AND w.id = d.webhook RETURNING `+trialColumns, lease)
		if err == nil {
			list, err = pgx.CollectRows(rows, scanTrial)
		}
		return err
	})
	return list, err
}

// A Delivered is a try to which the receiver has agreed.
type Delivered struct {
	Trial
	Status int
}

// stillWaits are the deliveries of a list of numbers and tries, $1 and $2, that nobody has noted. It neither says state = 'pending' nor
// leaves the numbers to the join: a plan that is made while few deliveries wait would read all that do, and is kept when they are many.
const stillWaits = `d.n = ANY ($1::bigint[]) AND d.n = u.n AND d.tries = u.tries AND d.ended_at IS NULL`

const noteDelivered = `UPDATE webhook_deliveries d SET state = 'delivered', status = u.status, error = '', leased_until = NULL, ended_at = clock_timestamp()
	FROM unnest($1::bigint[], $2::int[], $3::int[]) AS u (n, tries, status) WHERE ` + stillWaits

// NoteDelivered notes tries that were successful.
func (db *DB) NoteDelivered(ctx context.Context, list []Delivered) error {
	var ns []int64
	var tries, status []int
	for _, d := range list {
		ns, tries, status = append(ns, d.N), append(tries, d.Tries), append(status, d.Status)
	}
	return db.Tx(ctx, "noting deliveries", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody()
		_, err := tx.Exec(ctx, noteDelivered, ns, tries, status)
		return err
	})
}

// NoteAnswers notes that a webhook takes deliveries again; broken says that it did not. What waits for it is due at once
// then, and whenever a test of it was taken: somebody has mended its receiver.
func (db *DB) NoteAnswers(ctx context.Context, id string, tested bool) (broken bool, err error) {
	_, err = db.holdingWebhook(ctx, "noting that a webhook answers", byID, id, func(ctx context.Context, tx *Tx, w Webhook) error {
		tx.TellNobody()
		if broken = w.Broken(); broken || tested {
			tx.Queue(`UPDATE webhook_deliveries SET `+dueNow+` WHERE webhook = $1 AND state = 'pending' AND leased_until IS NULL`, w.ID)
		}
		_, err := tx.Exec(ctx, `UPDATE webhooks SET failures = 0, failing_since = NULL, held_until = NULL, last_error = '' WHERE id = $1 AND failures > 0`, w.ID)
		return err
	})
	if commands.CodeOf(err) == commands.NotFound { // it was deleted
		err = nil
	}
	return broken, err
}

// A Failure is a try that the receiver has not agreed to.
type Failure struct {
	Trial
	Status  int
	Error   string
	Last    bool                                     // no other one follows
	Again   time.Duration                            // in which the next try is
	Hold    func(failures int) time.Duration         // how long nothing is sent to the webhook after so many in a row
	Disable func(failing time.Duration) (why string) // whether it is to be disabled
}

const noteFailure = `UPDATE webhook_deliveries d SET status = $3, error = $4, leased_until = NULL, next_try_at = clock_timestamp() + $5, waits_since = clock_timestamp(),
	state = CASE WHEN $6 THEN 'failed' ELSE state END, ended_at = CASE WHEN $6 THEN clock_timestamp() END WHERE d.n = $1 AND d.tries = $2 AND d.ended_at IS NULL`

// NoteFailure notes a try that failed, and what it says about the webhook, which is returned as it is then.
func (db *DB) NoteFailure(ctx context.Context, f Failure) (w Webhook, err error) {
	w, err = db.holdingWebhook(ctx, "noting a failed delivery", byID, f.Webhook.ID, func(ctx context.Context, tx *Tx, w Webhook) error {
		tx.TellNobody()
		tag, err := tx.Exec(ctx, noteFailure, f.N, f.Tries, f.Status, f.Error, f.Again, f.Last)
		if err != nil || tag.RowsAffected() == 0 || w.State == WebhookDisabled {
			return err
		}
		var failing time.Duration
		if err := tx.QueryRow(ctx, `UPDATE webhooks SET failures = failures + 1, failing_since = coalesce(failing_since, clock_timestamp()), last_error = $2,
			held_at = CASE WHEN held_until > clock_timestamp() + $3 THEN held_at ELSE clock_timestamp() END, held_until = greatest(held_until, CASE WHEN $3 > interval '0' THEN clock_timestamp() + $3 END) WHERE id = $1 RETURNING clock_timestamp() - failing_since`,
			w.ID, f.Error, f.Hold(w.Failures+1)).Scan(&failing); err != nil {
			return err
		}
		if why := f.Disable(failing); why != "" {
			return disableWebhook(ctx, tx, w, why, "self")
		}
		return nil
	})
	if commands.CodeOf(err) == commands.NotFound {
		err = nil
	}
	return w, err
}

const returnDeliveries = `UPDATE webhook_deliveries d SET tries = d.tries - 1, leased_until = NULL FROM unnest($1::bigint[], $2::int[]) AS u (n, tries) WHERE ` + stillWaits

// ReturnDeliveries undoes the claims of deliveries that were not tried to their end.
func (db *DB) ReturnDeliveries(ctx context.Context, list []Trial) error {
	var ns []int64
	var tries []int
	for _, t := range list {
		ns, tries = append(ns, t.N), append(tries, t.Tries)
	}
	return db.Tx(ctx, "returning deliveries", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody()
		_, err := tx.Exec(ctx, returnDeliveries, ns, tries)
		return err
	})
}

// unanswered is what is said of a test until its receiver has answered, and for ever where whoever sent it has died.
const unanswered = "no answer was noted"

// BeginTest makes a delivery of one message that is tried once, by who calls it. It counts as failed until [DB.EndTest]: so
// nobody else tries it.
func (db *DB) BeginTest(ctx context.Context, webhook, id string, m Message) (t Trial, err error) {
	_, err = db.holdingWebhook(ctx, "beginning the test of a webhook", byID, webhook, func(ctx context.Context, tx *Tx, w Webhook) error {
		rows, err := tx.Query(ctx, `WITH d AS (
				INSERT INTO webhook_deliveries (id, webhook, type, body, at, tries, state, error, ended_at) VALUES ($1, $2, $3, $4, $5, 1, 'failed', $6, clock_timestamp()) RETURNING *
			) SELECT `+trialColumns+` FROM d JOIN webhooks w ON w.id = d.webhook`, id, w.ID, m.Type, m.Body, m.At, unanswered)
		if err == nil {
			t, err = pgx.CollectExactlyOneRow(rows, scanTrial)
		}
		return err
	})
	return t, err
}

// EndTest notes what came of a test: why it failed, if it did.
func (db *DB) EndTest(ctx context.Context, t Trial, status int, failed string) error {
	return db.Tx(ctx, "noting the test of a webhook", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody()
		_, err := tx.Exec(ctx, `UPDATE webhook_deliveries SET state = CASE WHEN $2 = '' THEN 'delivered' ELSE 'failed' END, status = $3, error = $2, ended_at = clock_timestamp()
			WHERE n = $1 AND state = 'failed' AND tries = 1`, t.N, failed, status)
		return err
	})
}
