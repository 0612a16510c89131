package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// Freezes is what is frozen of what this instance orders, over connections that it commands.
type Freezes struct {
	number int64
	list   []frozen
}

type frozen struct {
	conn string // "" = all
	by   string
	why  string
	at   time.Time
}

// freezesOrders is whether a row of freezes binds what is ordered over connections: agents are in the main workspace.
func freezesOrders(f string) string {
	return `(` + f + `.scope = 'instance' OR ` + f + `.scope = 'connection' AND ` + f + `.workspace = 'main')`
}

// Freezes returns what is frozen over connections now.
func (db *DB) Freezes(ctx context.Context) (f Freezes, err error) {
	rows, err := db.pool.Query(ctx, `SELECT n.last, f.id IS NOT NULL, coalesce(f.target, ''), coalesce(f.actor, ''), coalesce(f.reason, ''), coalesce(f.since, to_timestamp(0))
		FROM freeze_numbers n LEFT JOIN freezes f ON `+freezesOrders("f")+` ORDER BY f.id`)
	if err == nil {
		var one frozen
		var is bool
		_, err = pgx.ForEachRow(rows, []any{&f.number, &is, &one.conn, &one.by, &one.why, &one.at}, func() error {
			if is {
				f.list = append(f.list, one)
			}
			return nil
		})
	}
	if err != nil {
		return f, fmt.Errorf("reading what is frozen: %w", err)
	}
	return f, nil
}

// Holds returns the oldest freeze that binds what is ordered over c; nil where none does.
func (f Freezes) Holds(c Connection) *Hold {
	v := f.Of(c.ID)
	if v == nil || !v.Frozen {
		return nil
	}
	first := f.list[slices.IndexFunc(f.list, func(x frozen) bool { return x.conn == "" || x.conn == c.ID })]
	h := &Hold{Freeze: *v, Scope: "instance"}
	if first.conn != "" {
		h.Scope = "connection:" + c.Name
	}
	return h
}

// Of is what is told to the peer of a connection; nil where nothing was ever frozen here.
func (f Freezes) Of(conn string) *commands.Freeze {
	if f.number == 0 {
		return nil
	}
	v := &commands.Freeze{Number: f.number}
	for _, x := range f.list {
		switch {
		case x.conn != "" && x.conn != conn:
		case v.Frozen:
			v.Reason = commands.CleanReason(v.Reason + "; and by " + x.by + ": " + x.why)
		default:
			v.Frozen, v.By, v.Reason, v.Since = true, x.by, commands.CleanReason(x.why), x.at.UnixMilli()
		}
	}
	return v
}

// A Hold is the oldest freeze of this side that holds up what goes over a connection.
type Hold struct {
	commands.Freeze
	Scope string // as "freeze" takes it, which lifts it
}

// Why says in a line who has frozen that and why; "" where nobody has.
func (h *Hold) Why() string {
	if h == nil {
		return ""
	}
	return commands.Clean("frozen by "+h.By+": "+h.Reason, 1000)
}

// FrozenHere returns what keeps this side from starting what the peer of a connection that it obeys orders; nil where nothing does.
func (db *DB) FrozenHere(ctx context.Context, conn string) (*Hold, error) {
	h := &Hold{Freeze: commands.Freeze{Frozen: true}}
	var since time.Time
	err := db.pool.QueryRow(ctx, `SELECT n.last, concat_ws(':', f.scope, CASE f.scope WHEN 'connection' THEN (SELECT peer_name FROM connections WHERE id::text = $1) ELSE nullif(f.target, '') END), f.actor, f.reason, f.since
		FROM freeze_numbers n, freezes f WHERE f.scope = 'instance' OR f.workspace = 'main' AND
			(f.scope = 'workspace' OR f.scope = 'lane' AND f.target = 'default' OR f.scope = 'connection' AND f.target = $1) ORDER BY f.id LIMIT 1`, conn).
		Scan(&h.Number, &h.Scope, &h.By, &h.Reason, &since)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading what is frozen here: %w", err)
	}
	h.Since = since.UnixMilli()
	return h, nil
}

// lastControl returns the number of the newest control that was sent over a connection, 0 for none.
func (db *DB) lastControl(ctx context.Context, conn string) (seq int64, err error) {
	err = db.pool.QueryRow(ctx, `SELECT coalesce(max(seq), 0) FROM outbox WHERE conn = $1 AND queue = '`+commands.QueueControl+`'`, conn).Scan(&seq)
	if err != nil {
		return 0, fmt.Errorf("reading the newest control of connection %s: %w", conn, err)
	}
	return seq, nil
}

// NoteFreeze notes what the peer of c, which is obeyed, lets start, and keeps the heartbeat that said so. It reports
// whether that is another word than the one before: what has a lower number, or the same, is old.
func (db *DB) NoteFreeze(ctx context.Context, c Connection, kid signing.KeyID, f commands.Freeze, envelope []byte) (changed bool, err error) {
	err = db.Tx(ctx, "noting what the peer has frozen", func(ctx context.Context, tx *Tx) error {
		if err := tx.Speaks(ctx, Speaker{c.ID, kid}); err != nil {
			return err
		}
		var was bool
		err := tx.QueryRow(ctx, `SELECT coalesce((SELECT frozen FROM latches WHERE conn = $1 FOR UPDATE), false)`, c.ID).Scan(&was)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO latches AS l (conn, number, frozen, reason, actor, since, envelope) VALUES ($1, $2, $3, $4, $5, from_ms($6), $7)
			ON CONFLICT (conn) DO UPDATE SET number = excluded.number, frozen = excluded.frozen, reason = excluded.reason, actor = excluded.actor, since = excluded.since, envelope = excluded.envelope
			WHERE l.number < excluded.number`, c.ID, f.Number, f.Frozen, f.Reason, f.By, f.Since, envelope)
		if changed = tag.RowsAffected() == 1 && was != f.Frozen; err != nil || !changed {
			return err
		}
		action := "peer.unfrozen"
		if f.Frozen {
			action = "peer.frozen"
		}
		tx.Audit(AuditRow{Actor: string(c.Peer), Action: action, Object: c.Name, Why: f.Reason, Conn: c.ID})
		return nil
	})
	return changed, err
}

// HoldStarts lets nothing start over a connection for a while: a new link may bring a word of the peer that was sent before.
func (db *DB) HoldStarts(ctx context.Context, conn string, most time.Duration) error {
	return db.Tx(ctx, "waiting for what the peer has sent", func(ctx context.Context, tx *Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO latches (conn, wait_until) VALUES ($1, clock_timestamp() + $2::interval)
			ON CONFLICT (conn) DO UPDATE SET wait_until = excluded.wait_until`, conn, most)
		return err
	})
}

// LetStart ends what [DB.HoldStarts] began, once the message of the peer with the number controls is stored, 0 for none. It reports
// whether it is.
func (db *DB) LetStart(ctx context.Context, conn string, controls int64) (ended bool, err error) {
	err = db.Tx(ctx, "letting agents start", func(ctx context.Context, tx *Tx) error {
		ended = false
		err := tx.QueryRow(ctx, `UPDATE latches l SET wait_until = '-infinity' FROM sequences s
			WHERE l.conn = $1 AND s.conn = l.conn AND ($2 = 0 OR s.stored @> $2::bigint) RETURNING true`, conn, controls).Scan(&ended)
		if err == pgx.ErrNoRows {
			return nil
		}
		return err
	})
	return ended, err
}
