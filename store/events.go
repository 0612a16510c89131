package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
)

// An EventKind says what an event is about.
type EventKind string

// The kinds of events.
const (
	TaskEvent       EventKind = "task"       // the agent of an order stands otherwise
	ProgressEvent   EventKind = "progress"   // the agent of an order has said how far it is
	OverrunEvent    EventKind = "overrun"    // it runs much longer than estimated
	ConnectionEvent EventKind = "connection" // a connection was made, or its state changed
	LinkEvent       EventKind = "link"       // the link of a connection is up or down
	StartedEvent    EventKind = "started"    // this instance was started: links are down until they are said to be up
	RestoredEvent   EventKind = "restored"   // the database is one from before: what happened since is not in it
)

// An Event is one change, as whoever follows the instance is told. Its number is greater by
// one than that of the event before; the number of a [RestoredEvent] is greater by more.
type Event struct {
	Seq      int64
	At       time.Time
	Kind     EventKind
	Task     string // its id
	Conn     string // id of the connection, and
	Name     string // what people here call the peer
	Role     Authority
	Previous string // state of the task
	State    string
	Reason   string
	Attempt  int
	Accepted bool // by the spoke
	Progress *commands.AgentProgress
}

// NumberEvents gives numbers to up to most events that are committed and have none. It returns
// how many these are, and the last number that was given, 0 where there was none yet.
func (db *DB) NumberEvents(ctx context.Context, most int) (n int, last int64, err error) {
	err = db.Tx(ctx, "numbering events", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody()
		return tx.QueryRow(ctx, `SELECT numbered, upto FROM number_events($1)`, most).Scan(&n, &last)
	})
	return n, last, err
}

// EventsAfter returns the first events with numbers above after, up to most of them, in their order.
func (db *DB) EventsAfter(ctx context.Context, after int64, most int) (list []Event, err error) {
	err = db.Read(ctx, "reading events", func(ctx context.Context, conn *pgxpool.Conn) error {
		list, err = eventsAfter(ctx, conn, after, most)
		return err
	})
	return list, err
}

func eventsAfter(ctx context.Context, q querier, after int64, most int) ([]Event, error) {
	return readEvents(ctx, q, `SELECT * FROM events WHERE seq > $1 ORDER BY seq LIMIT $2`, after, most)
}

// restoresAfter returns the restores of the database that are events with numbers above after, up to last.
func restoresAfter(ctx context.Context, q querier, after, last int64) ([]Event, error) {
	return readEvents(ctx, q, `SELECT * FROM events WHERE seq BETWEEN $1::bigint + 1 AND $2 AND kind = 'restored'`, after, last)
}

func readEvents(ctx context.Context, q querier, sql string, args ...any) ([]Event, error) {
	rows, err := q.Query(ctx, `
			SELECT e.seq, e.at, e.kind, coalesce(e.task::text, ''), coalesce(e.conn::text, ''), coalesce(c.peer_name, ''), coalesce(c.authority, ''), e.previous, e.state, e.reason, e.attempt, e.accepted, e.progress
			FROM (`+sql+`) AS e LEFT JOIN connections c ON c.id = e.conn ORDER BY e.seq`, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Event])
}

// LastEvent returns the number of the last event, 0 where there was none yet.
func (db *DB) LastEvent(ctx context.Context) (last int64, err error) {
	err = db.Read(ctx, "reading the number of the last event", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT last FROM event_numbers`).Scan(&last)
	})
	return last, err
}

// NoteEvent adds what no change of a row tells.
func (db *DB) NoteEvent(ctx context.Context, kind EventKind, conn, state string) error {
	return db.Tx(ctx, "noting an event", func(ctx context.Context, tx *Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO new_events (kind, conn, state) VALUES ($1, nullif($2, '')::uuid, $3)`, kind, conn, state)
		return err
	})
}
