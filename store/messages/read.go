package messages

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Reader is one of a workspace, and how far it is.
type Reader struct {
	Name      string
	Acked     int64 // it needs nothing up to this number
	Delivered int64
	Head      int64 // the first that it was given and has not acknowledged
	Tries     int   // how often that one has failed
	HeadAt    *time.Time
	Seen      time.Time
	DroppedAt *time.Time // nothing is kept for it until it reads again
	Dead      int64
	Since     int64      // of those for all it needs none up to this number: they were there before it
	DueAt     *time.Time // Head has failed, and comes again then
}

// A Page is what a reader is given.
type Page struct {
	Messages  []Message
	Acked     int64
	DroppedAt *time.Time // it was not seen for long, and may have lost what came since
}

// MaxTries is how often a message may fail for a reader.
const MaxTries = 5

const columns = `m.seq, m.workspace, m.id::text, m.at, m.sender, m.recipient, m.type, m.correlation, coalesce(m.in_reply_to::text, ''), m.payload, m.blob, m.said_by, m.size`

// Sql of what a reader is given: its own and those for all, each by its own part of an index.
const (
	unread = `SELECT ` + columns + `, false FROM (
		(SELECT * FROM messages WHERE workspace = $1 AND recipient = $2 AND seq > $3 ORDER BY seq LIMIT $4) UNION ALL
		(SELECT * FROM messages WHERE workspace = $1 AND recipient = '' AND seq > greatest($3::bigint, $5::bigint) ORDER BY seq LIMIT $4)) AS m ORDER BY m.seq LIMIT $4`
	again = `SELECT ` + columns + `, true FROM message_dead d JOIN messages m ON m.seq = d.seq WHERE d.workspace = $1 AND d.reader = $2 AND d.again ORDER BY d.seq LIMIT $3`
	// anyUnread asks the same of a reader that is known, and in how many seconds what has failed comes again; no row = it is not.
	anyUnread = `SELECT r.dropped_at IS NOT NULL OR r.seen < clock_timestamp() - interval '1 day'
			OR EXISTS (SELECT FROM message_dead d WHERE d.workspace = $1 AND d.reader = $2 AND d.again)
			OR coalesce(r.due_at <= clock_timestamp(), true) AND (
				EXISTS (SELECT FROM messages m WHERE m.workspace = $1 AND m.recipient = $2 AND m.seq > r.acked)
				OR EXISTS (SELECT FROM messages m WHERE m.workspace = $1 AND m.recipient = '' AND m.seq > greatest(r.acked, r.since))),
			coalesce(extract(epoch FROM r.due_at - clock_timestamp()), 0)::float8
		FROM message_readers r WHERE r.workspace = $1 AND r.name = $2`
	// newReader makes a reader where there is none, and says how many others there were. Agents are not among them: each has one, until
	// its task is over. An agent is told what comes from now on, and what was sent to it before.
	newReader = `WITH new AS (
			INSERT INTO message_readers (workspace, name, since) SELECT $1, $2, CASE WHEN starts_with($2, $3) THEN coalesce((SELECT max(seq) FROM messages WHERE workspace = $1), 0) ELSE 0 END
				WHERE NOT EXISTS (SELECT FROM message_readers WHERE workspace = $1 AND name = $2) ON CONFLICT DO NOTHING RETURNING 1
		) SELECT CASE WHEN EXISTS (SELECT FROM new) AND NOT starts_with($2, $3) THEN (SELECT count(*) FROM message_readers WHERE workspace = $1 AND dropped_at IS NULL AND NOT starts_with(name, $3)) ELSE 0 END`
	holdReader = `SELECT name, acked, delivered, head, tries, head_at, seen, dropped_at, 0::bigint, since, due_at FROM message_readers WHERE workspace = $1 AND name = $2 FOR UPDATE`
	saveReader = `UPDATE message_readers SET acked = $3, delivered = $4, head = $5, tries = $6, head_at = $7, due_at = $8, seen = clock_timestamp(), dropped_at = NULL WHERE workspace = $1 AND name = $2`
	// makeRoom forgets the oldest dead letters of a reader: what it cannot use must not stop it.
	makeRoom = `DELETE FROM message_dead WHERE workspace = $1 AND reader = $2 AND seq <= (SELECT seq FROM message_dead WHERE workspace = $1 AND reader = $2 ORDER BY seq DESC OFFSET $3 LIMIT 1)`
	bury     = `INSERT INTO message_dead (workspace, reader, seq, tries, why) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (workspace, reader, seq) DO NOTHING`
)

// Poll returns the first messages that a reader has not acknowledged, in their order, up to most of them, and waits for one until a time.
// A reader that was not known begins with the oldest that is kept. What was a dead letter and is to be tried again comes first.
func (l *Log) Poll(ctx context.Context, workspace, reader string, most int, until time.Time) (p Page, err error) {
	if err := checkName(reader); err != nil {
		return p, err
	}
	err = l.Await(ctx, workspace, reader, until, func(ctx context.Context) (bool, time.Duration, error) {
		some, due, err := l.any(ctx, workspace, reader)
		if err != nil || !some {
			return false, due, err
		}
		p, err = l.poll(ctx, workspace, reader, most)
		return len(p.Messages) > 0 || p.DroppedAt != nil, 0, err
	})
	return p, err
}

// any reports whether a poll has anything to say, and after what time to ask again; 0 = when messages have come.
func (l *Log) any(ctx context.Context, workspace, reader string) (some bool, due time.Duration, err error) {
	var seconds float64
	err = l.db.ReadIn(ctx, "looking for messages", workspace, func(ctx context.Context, tx *store.Tx) error {
		return tx.QueryRow(ctx, anyUnread, workspace, reader).Scan(&some, &seconds)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return true, 0, nil
	}
	return some, max(0, time.Duration(seconds*float64(time.Second))), err
}

func (l *Log) poll(ctx context.Context, workspace, reader string, most int) (p Page, err error) {
	err = l.db.TxIn(ctx, "handing out messages", workspace, func(ctx context.Context, tx *store.Tx) error {
		tx.TellNobody()
		r, now, err := l.hold(ctx, tx, workspace, reader, true)
		if err != nil {
			return err
		}
		p = Page{DroppedAt: r.DroppedAt}
		if p.Messages, err = l.onceMore(ctx, tx, workspace, reader, most, now); err != nil {
			return err
		}
		room := most - len(p.Messages)
		if slices.ContainsFunc(p.Messages, func(m Message) bool { return m.Blob != "" }) {
			room = 0 // they may have all the bytes of a page
		}
		fresh, err := l.unread(ctx, tx, workspace, &r, room, now)
		if err != nil {
			return err
		}
		p.Messages, p.Acked = append(p.Messages, fresh...), r.Acked
		return r.save(ctx, tx, workspace)
	})
	return p, err
}

// unread returns what is next for a reader, after what has failed too often was laid aside. What has failed comes alone: it may be
// one behind it that is to blame, and whoever reads them together never gets to say so.
func (l *Log) unread(ctx context.Context, tx *store.Tx, workspace string, r *Reader, most int, now time.Time) ([]Message, error) {
	for most > 0 && (r.DueAt == nil || !now.Before(*r.DueAt)) {
		list, err := read(tx.Query(ctx, unread, workspace, r.Name, r.Acked, most, r.Since))
		if err != nil || len(list) == 0 {
			return nil, err
		}
		switch first := list[0].Seq; {
		case r.Head != first:
			r.Head, r.Tries = first, 0
		case r.HeadAt == nil: // it has failed, and is counted
		case now.Sub(*r.HeadAt) < l.Within:
			now = *r.HeadAt // the same delivery, once more
		default:
			r.Tries++
		}
		if list = list[:Fitting(list)]; r.Tries > 0 {
			list = list[:1]
		}
		if r.Tries < MaxTries {
			r.HeadAt, r.DueAt = &now, nil
			r.Delivered = max(r.Delivered, list[len(list)-1].Seq)
			return list, nil
		}
		if err := l.lay(ctx, tx, workspace, r, "it was not acknowledged in time"); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// lay lays the first message of a reader aside, as a dead letter of it. The reader goes on behind it.
func (l *Log) lay(ctx context.Context, tx *store.Tx, workspace string, r *Reader, why string) error {
	if _, err := tx.Exec(ctx, makeRoom, workspace, r.Name, l.MostDead-1); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, bury, workspace, r.Name, r.Head, r.Tries, why); err != nil {
		return err
	}
	r.acknowledge(r.Head)
	return nil
}

// onceMore returns dead letters that are to be tried again, after those that have not been acknowledged in time are dead again.
func (l *Log) onceMore(ctx context.Context, tx *store.Tx, workspace, reader string, most int, now time.Time) ([]Message, error) {
	if _, err := tx.Exec(ctx, `UPDATE message_dead SET again = false, tries = tries + 1, given_at = NULL, why = 'it was not acknowledged in time'
		WHERE workspace = $1 AND reader = $2 AND again AND given_at < $3::timestamptz - $4::interval`, workspace, reader, now, l.Within); err != nil {
		return nil, err
	}
	list, err := read(tx.Query(ctx, again, workspace, reader, most))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	list = list[:Fitting(list)]
	seqs := make([]int64, len(list))
	for i, m := range list {
		seqs[i] = m.Seq
	}
	_, err = tx.Exec(ctx, `UPDATE message_dead SET given_at = $4 WHERE workspace = $1 AND reader = $2 AND seq = ANY ($3::bigint[]) AND given_at IS NULL`, workspace, reader, seqs, now)
	return list, err
}

// hold returns a reader, held, and the time. One that is not known is made where that is asked for.
func (l *Log) hold(ctx context.Context, tx *store.Tx, workspace, reader string, create bool) (r Reader, now time.Time, err error) {
	if create {
		var n int
		if err := tx.QueryRow(ctx, newReader, workspace, reader, agents).Scan(&n); err != nil {
			return r, now, err
		}
		if n >= l.MostReaders {
			return r, now, commands.Refuse(commands.Full, "the workspace has %d readers, as many as may be", n).Hinting("drop some").Running("message", "reader", "list")
		}
	}
	rows, err := tx.Query(ctx, holdReader, workspace, reader)
	if err == nil {
		r, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Reader])
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return r, now, noReader(reader)
	}
	if err == nil && r.DroppedAt != nil && !create {
		err = commands.Refuse(commands.Conflict, "%s was not seen for long, and nothing is kept for it", r.Name).Hinting("poll: it is a reader again from then on")
	}
	if err != nil {
		return r, now, err
	}
	return r, now, tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
}

func noReader(name string) error {
	return commands.Refuse(commands.NotFound, "no reader %s here", commands.Clip(name)).Hinting("it is one once it has polled; see").Running("message", "reader", "list")
}

// acknowledge moves a reader: what is the first behind the number has not failed.
func (r *Reader) acknowledge(seq int64) {
	r.Acked, r.Head, r.Tries, r.HeadAt, r.DueAt = seq, 0, 0, nil, nil
}

func (r Reader) save(ctx context.Context, tx *store.Tx, workspace string) error {
	_, err := tx.Exec(ctx, saveReader, workspace, r.Name, r.Acked, r.Delivered, r.Head, r.Tries, r.HeadAt, r.DueAt)
	return err
}

// Ack says that a reader needs nothing more up to a number. It never goes back. Of a dead letter that was tried again it is for that one alone.
func (l *Log) Ack(ctx context.Context, workspace, reader string, seq int64) (r Reader, err error) {
	err = l.db.TxIn(ctx, "noting what a reader has acknowledged", workspace, func(ctx context.Context, tx *store.Tx) error {
		tx.TellNobody()
		if r, _, err = l.hold(ctx, tx, workspace, reader, false); err != nil {
			return err
		}
		if seq > r.Delivered {
			return notDelivered(r, seq)
		}
		tag, err := tx.Exec(ctx, `DELETE FROM message_dead WHERE workspace = $1 AND reader = $2 AND seq = $3 AND again`, workspace, reader, seq)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 && seq > r.Acked {
			r.acknowledge(seq)
		}
		return r.save(ctx, tx, workspace)
	})
	return r, err
}

func notDelivered(r Reader, seq int64) error {
	return commands.Refuse(commands.Conflict, "message %d was not given to %s, which was given those up to %d", seq, r.Name, r.Delivered).
		Hinting("poll first. After a restore from a backup a reader may have been given more than is known here")
}

// Fail says that a reader could not use the first message that it has not acknowledged, or a dead letter that it tries again.
func (l *Log) Fail(ctx context.Context, workspace, reader string, seq int64, why string) (r Reader, err error) {
	why = commands.CleanLine(why, 200)
	err = l.db.TxIn(ctx, "noting what a reader could not use", workspace, func(ctx context.Context, tx *store.Tx) error {
		tx.TellNobody()
		var now time.Time
		if r, now, err = l.hold(ctx, tx, workspace, reader, false); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `UPDATE message_dead SET again = false, tries = tries + 1, given_at = NULL, why = $4 WHERE workspace = $1 AND reader = $2 AND seq = $3 AND again`, workspace, reader, seq, why)
		switch {
		case err != nil:
			return err
		case tag.RowsAffected() == 0:
			if err := l.fail(ctx, tx, workspace, &r, seq, why, now); err != nil {
				return err
			}
		}
		return r.save(ctx, tx, workspace)
	})
	return r, err
}

// fail counts that the first message that a reader has not acknowledged has failed, once for each time that it was given. It comes again after a while.
func (l *Log) fail(ctx context.Context, tx *store.Tx, workspace string, r *Reader, seq int64, why string, now time.Time) error {
	if r.Delivered < seq {
		return notDelivered(*r, seq)
	}
	if r.Head <= r.Acked { // those before it were acknowledged since it was given
		list, err := read(tx.Query(ctx, unread, workspace, r.Name, r.Acked, 1, r.Since))
		if err != nil {
			return err
		}
		if len(list) > 0 {
			r.Head, r.Tries, r.HeadAt = list[0].Seq, 0, &now
		}
	}
	if seq != r.Head {
		return commands.Refuse(commands.Conflict, "message %d is not the first that %s has not acknowledged", seq, r.Name).Hinting("acknowledge those before it; what fails stays the first")
	}
	if r.HeadAt == nil { // it was not given again since it has failed
		return nil
	}
	due := now.Add(l.Pause << r.Tries)
	if r.Tries, r.HeadAt, r.DueAt = r.Tries+1, nil, &due; r.Tries >= MaxTries {
		return l.lay(ctx, tx, workspace, r, why)
	}
	return nil
}

func read(rows pgx.Rows, err error) ([]Message, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Message])
}
