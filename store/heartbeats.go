package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Beat is the last sign of life of a spoke.
type Beat struct {
	Conn   string
	At     time.Time          // when it arrived, by this database
	Age    time.Duration      // at the moment of asking
	Offset time.Duration      // the spoke's clock minus ours when it arrived
	Body   commands.Heartbeat // as the spoke signed it
}

// SaveBeats stores the newest beat of each connection, one row each, and what is news of their agents. What one of them
// says that the database refuses for ever keeps no other one from being saved: those connections are returned, each
// with why. After any other error what was not saved may be saved again.
func (db *DB) SaveBeats(ctx context.Context, beats []Beat) (refused map[string]error, err error) {
	if len(beats) == 0 {
		return nil, nil
	}
	err = db.saveBeats(ctx, beats)
	if err == nil || !poisonous(err) {
		return nil, err
	}
	if len(beats) == 1 {
		return map[string]error{beats[0].Conn: err}, nil
	}
	half := len(beats) / 2
	refused, err = db.SaveBeats(ctx, beats[:half])
	second, err2 := db.SaveBeats(ctx, beats[half:])
	if refused == nil {
		refused = map[string]error{}
	}
	maps.Copy(refused, second)
	return refused, errors.Join(err, err2)
}

func (db *DB) saveBeats(ctx context.Context, beats []Beat) error {
	var conn []string
	var interval, offset []int64
	var age []time.Duration
	var body []commands.Heartbeat
	for _, b := range beats {
		conn, interval = append(conn, b.Conn), append(interval, b.Body.IntervalMS)
		offset, age, body = append(offset, b.Offset.Milliseconds()), append(age, b.Age), append(body, b.Body)
	}
	return db.Tx(ctx, "saving heartbeats", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody()
		tx.Queue(`
			INSERT INTO heartbeats (conn, at, interval_ms, offset_ms, body)
			SELECT a, clock_timestamp() - b, c, d, e FROM unnest($1::uuid[], $2::interval[], $3::bigint[], $4::bigint[], $5::jsonb[]) AS u (a, b, c, d, e)
			ON CONFLICT (conn) DO UPDATE SET at = excluded.at, interval_ms = excluded.interval_ms, offset_ms = excluded.offset_ms, body = excluded.body
			WHERE heartbeats.at < excluded.at`, conn, age, interval, offset, body)
		queueNews(tx, beats)
		return nil
	})
}

// Beats returns the last beat of every connection that ever sent one.
func (db *DB) Beats(ctx context.Context) (map[string]Beat, error) {
	rows, err := db.pool.Query(ctx, `SELECT conn::text, at, clock_timestamp() - at, offset_ms, body FROM heartbeats`)
	if err != nil {
		return nil, fmt.Errorf("reading heartbeats: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Beat, error) {
		var b Beat
		var raw []byte
		var offset int64
		if err := row.Scan(&b.Conn, &b.At, &b.Age, &offset, &raw); err != nil {
			return b, err
		}
		b.Offset = time.Duration(offset) * time.Millisecond
		return b, json.Unmarshal(raw, &b.Body)
	})
	if err != nil {
		return nil, fmt.Errorf("reading heartbeats: %w", err)
	}
	beats := make(map[string]Beat, len(list))
	for _, b := range list {
		beats[b.Conn] = b
	}
	return beats, nil
}

// Beat returns the last beat of a connection, nil when there was none.
func (db *DB) Beat(ctx context.Context, conn string) (*Beat, error) {
	all, err := db.Beats(ctx)
	if b, ok := all[conn]; ok {
		return &b, err
	}
	return nil, err
}
