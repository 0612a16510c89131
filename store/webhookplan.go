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
	Number string // of the event, or of the first and the last that it tells of
	First  int64  // of these
	Type   string
	Body   string
	At     time.Time
}

// A Planner says what webhooks are told.
type Planner struct {
	Wants func(w Webhook, e Event) bool // whether it is told of e
	Tell  func(e Event) Message
	Gap   func(from, to int64, at time.Time) Message // events with these numbers may not have been told
	After int64                                      // of those with room is served who is least far, but further than this: all take turns
}

// Planned says how far planning is.
type Planned struct {
	Active int   // webhooks
	At     int64 // how far those are that were served, for the next turn
	More   bool  // there may be more to plan now
	Full   bool  // there will be when a webhook that takes deliveries has taken some of those that wait
}

// PlanDeliveries makes the deliveries of some events to webhooks that are equally far, and notes how far these are with it:
// an event becomes one delivery to each that wants it, whenever this is cut off.
func (db *DB) PlanDeliveries(ctx context.Context, p Planner) (done Planned, err error) {
	err = db.Tx(ctx, "planning deliveries", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody()
		done = Planned{}
		list, err := p.next(ctx, tx, &done)
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
			if e.Seq > at+1 {
				tell(p.Gap(at+1, e.Seq-1, e.At), func(Webhook) bool { return true })
			}
			tell(p.Tell(e), func(w Webhook) bool { return p.Wants(w, e) })
			at = e.Seq
		}
		done.At = at
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

// next holds the active webhooks, and returns those whose turn it is: the least far of those that have room, events to be
// told, and not had their turn. One that is far behind so holds the others up by a page at a time.
func (p Planner) next(ctx context.Context, tx *Tx, done *Planned) (list []Webhook, err error) {
	rows, err := tx.Query(ctx, `SELECT w.id::text, w.types, w.states, w.cursor, w.failures, w.cursor < (SELECT coalesce(max(seq), 0) FROM events),
			EXISTS (SELECT FROM webhook_deliveries d WHERE d.webhook = w.id AND d.state = 'pending' OFFSET $1)
		FROM webhooks w WHERE w.state = 'active' ORDER BY w.id FOR NO KEY UPDATE`, planRoom)
	if err != nil {
		return nil, err
	}
	var w Webhook
	var behind, full bool
	_, err = pgx.ForEachRow(rows, []any{&w.ID, &w.Types, &w.States, &w.Cursor, &w.Failures, &behind, &full}, func() error {
		done.Active++
		switch {
		case full:
			done.Full = done.Full || !w.Broken()
		case !behind:
		case len(list) == 0 || p.before(w, list[0]):
			list = []Webhook{w}
		case w.Cursor == list[0].Cursor:
			list = append(list, w)
		}
		w = Webhook{}
		return nil
	})
	return list, err
}

// before reports whether it is the turn of v before that of w.
func (p Planner) before(v, w Webhook) bool {
	if had := v.Cursor <= p.After; had != (w.Cursor <= p.After) {
		return !had
	}
	return v.Cursor < w.Cursor
}

// planSQL makes deliveries: each is a webhook and the place of a message in a list.
const planSQL = `
	INSERT INTO webhook_deliveries (id, webhook, first, type, body, at)
	SELECT m.prefix || '_' || replace(d.webhook::text, '-', '') || '_' || m.number, d.webhook, m.first, m.type, m.body, m.at
	FROM unnest($1::uuid[], $2::int[]) WITH ORDINALITY AS d (webhook, which, n)
	JOIN unnest($3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::timestamptz[]) WITH ORDINALITY AS m (prefix, number, first, type, body, at, n) ON m.n = d.which + 1
	ORDER BY d.n`

// planned are the parameters of planSQL.
func planned(messages []Message, webhooks []string, which []int) []any {
	var prefixes, numbers, types, bodies []string
	var firsts []int64
	var ats []time.Time
	for _, m := range messages {
		prefixes, numbers, firsts = append(prefixes, m.Prefix), append(numbers, m.Number), append(firsts, m.First)
		types, bodies, ats = append(types, m.Type), append(bodies, m.Body), append(ats, m.At)
	}
	return []any{webhooks, which, prefixes, numbers, firsts, types, bodies, ats}
}
