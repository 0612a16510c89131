package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// How much is planned at a time, and for one webhook in all: behind that its events wait in the feed.
const (
	planPage = 200
	planRoom = 1000
)

// A Message is what webhooks are told of an event.
type Message struct {
	Prefix string // of its id, before webhook and number
	Seq    int64
	Type   string
	Body   string
	At     time.Time
}

// A Planner says what webhooks are told.
type Planner struct {
	Wants func(w Webhook, e Event) bool // whether it is told of e
	Tell  func(e Event) Message
	Gap   func(from, to int64, at time.Time) Message // events with these numbers are no longer kept
}

// Planned says how far planning is.
type Planned struct {
	Active int  // webhooks
	More   bool // there may be more to plan now
	Full   bool // there will be when a webhook that takes deliveries has taken some of those that wait
}

// PlanDeliveries makes the deliveries of some events to the webhooks that are furthest behind, and notes how far these
// are with it: an event becomes one delivery to each that wants it, whenever this is cut off.
func (db *DB) PlanDeliveries(ctx context.Context, p Planner) (done Planned, err error) {
	err = db.Tx(ctx, "planning deliveries", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody()
		done = Planned{}
		list, err := p.furthestBehind(ctx, tx, &done)
		if err != nil {
			return err
		}
		var events []Event
		at := int64(0)
		if len(list) > 0 {
			at = list[0].Cursor
			events, err = eventsAfter(ctx, tx, at, planPage)
		}
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return tx.SendLast(ctx, &pgx.Batch{}) // and writes nothing
		}
		done.More = true
		var messages []Message
		var webhooks []string
		var which []int
		tell := func(m Message, wants func(Webhook) bool) {
			for _, w := range list {
				if wants(w) {
					webhooks, which = append(webhooks, w.ID), append(which, len(messages))
				}
			}
			messages = append(messages, m)
		}
		for _, e := range events {
			if e.Seq > at+1 && e.Kind != RestoredEvent {
				tell(p.Gap(at+1, e.Seq-1, e.At), func(Webhook) bool { return true })
			}
			tell(p.Tell(e), func(w Webhook) bool { return p.Wants(w, e) })
			at = e.Seq
		}
		if len(webhooks) > 0 {
			tx.Queue(planSQL, planned(messages, webhooks, which)...)
		}
		ids := make([]string, len(list))
		for i, w := range list {
			ids[i] = w.ID
		}
		_, err = tx.Exec(ctx, `UPDATE webhooks SET cursor = $2 WHERE id = ANY ($1::uuid[])`, ids, at)
		return err
	})
	return done, err
}

// furthestBehind holds the active webhooks, and returns those of them that have room and the lowest cursor.
func (p Planner) furthestBehind(ctx context.Context, tx *Tx, done *Planned) (list []Webhook, err error) {
	rows, err := tx.Query(ctx, `SELECT w.id::text, w.types, w.states, w.cursor, w.failures, EXISTS (SELECT FROM webhook_deliveries d WHERE d.webhook = w.id AND d.state = 'pending' OFFSET $1)
		FROM webhooks w WHERE w.state = 'active' ORDER BY w.id FOR NO KEY UPDATE`, planRoom)
	if err != nil {
		return nil, err
	}
	var w Webhook
	var full bool
	_, err = pgx.ForEachRow(rows, []any{&w.ID, &w.Types, &w.States, &w.Cursor, &w.Failures, &full}, func() error {
		done.Active++
		switch {
		case full:
			done.Full = done.Full || !w.Broken()
		case len(list) == 0 || w.Cursor < list[0].Cursor:
			list = []Webhook{w}
		case w.Cursor == list[0].Cursor:
			list = append(list, w)
		}
		w = Webhook{}
		return nil
	})
	return list, err
}

// planSQL makes deliveries: each is a webhook and the place of a message in a list.
const planSQL = `
	INSERT INTO webhook_deliveries (id, webhook, type, body, at)
	SELECT m.prefix || '_' || replace(d.webhook::text, '-', '') || '_' || m.seq, d.webhook, m.type, m.body, m.at
	FROM unnest($1::uuid[], $2::int[]) WITH ORDINALITY AS d (webhook, which, n)
	JOIN unnest($3::text[], $4::bigint[], $5::text[], $6::text[], $7::timestamptz[]) WITH ORDINALITY AS m (prefix, seq, type, body, at, n) ON m.n = d.which + 1
	ORDER BY d.n`

// planned are the parameters of planSQL.
func planned(messages []Message, webhooks []string, which []int) []any {
	var prefixes, types, bodies []string
	var seqs []int64
	var ats []time.Time
	for _, m := range messages {
		prefixes, seqs, types, bodies, ats = append(prefixes, m.Prefix), append(seqs, m.Seq), append(types, m.Type), append(bodies, m.Body), append(ats, m.At)
	}
	return []any{webhooks, which, prefixes, seqs, types, bodies, ats}
}
