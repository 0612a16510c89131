package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A LogPiece is a piece of an agent's output as the hub keeps it.
type LogPiece struct {
	Seq     int64  `json:"seq"` // order of arrival at this hub
	Attempt int    `json:"attempt"`
	Stream  string `json:"stream"`
	Offset  int64  `json:"offset"`
	Data    []byte `json:"data"`
}

// A LogReport is an opened log event of one connection.
type LogReport struct {
	Conn string
	Log  *commands.Log
}

// AddLogs stores pieces of output of tasks that the connection runs; repeated
// pieces and pieces of other tasks change nothing. It returns the tasks that
// got something new.
func (db *DB) AddLogs(ctx context.Context, list []LogReport) ([]string, error) {
	var conn, task, stream []string
	var attempt []int
	var at []int64
	var data [][]byte
	for _, r := range list {
		conn, task, stream = append(conn, r.Conn), append(task, r.Log.Task), append(stream, r.Log.Stream)
		attempt, at, data = append(attempt, r.Log.Attempt), append(at, r.Log.Offset), append(data, r.Log.Data)
	}
	var tasks []string
	err := db.Tx(ctx, "storing logs", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.Query(ctx, `
			WITH added AS (
				INSERT INTO logs (task, attempt, stream, at, data)
				SELECT u.task, u.attempt, u.stream, u.at, u.data
				FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::bigint[], $6::bytea[]) WITH ORDINALITY AS u (conn, task, attempt, stream, at, data, n)
				JOIN mirrors m ON m.task = u.task AND m.conn = u.conn
				JOIN connections c ON c.id = u.conn AND c.state IN ('active', 'suspended')
				ORDER BY u.n ON CONFLICT DO NOTHING RETURNING task
			)
			SELECT DISTINCT task::text FROM added`, conn, task, attempt, stream, at, data)
		if err != nil {
			return err
		}
		tasks, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return tasks, err
}

// Logs returns up to limit pieces of a task's output that arrived after seq.
func (db *DB) Logs(ctx context.Context, task string, after int64, limit int) ([]LogPiece, error) {
	rows, err := db.pool.Query(ctx, `SELECT seq, attempt, stream, at, data FROM logs WHERE task = $1 AND seq > $2 ORDER BY seq LIMIT $3`, task, after, limit)
	if err != nil {
		return nil, fmt.Errorf("reading the logs of task %s: %w", task, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LogPiece])
	if err != nil {
		return nil, fmt.Errorf("reading the logs of task %s: %w", task, err)
	}
	return list, nil
}

// LogBytes returns how much of an attempt's output is here.
func (db *DB) LogBytes(ctx context.Context, task string, attempt int) (n int64, err error) {
	err = db.pool.QueryRow(ctx, `SELECT coalesce(sum(octet_length(data)), 0) FROM logs WHERE task = $1 AND attempt = $2`, task, attempt).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("measuring the logs of task %s: %w", task, err)
	}
	return n, nil
}
