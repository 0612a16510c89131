package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Log is what the index knows of the output of a task on a spoke. The bytes are
// in files, which [DB.GrowLogs] is told of after they are on disk.
type Log struct {
	Task     string
	Conn     string // of the spoke
	Tail     int64  // position behind the last record
	At       time.Time
	Segments []LogSegment // by Base; one begins where the one before it ends
	Streams  []LogStream  // by attempt and name
}

// A LogSegment is one file of a log: the positions from Base to Base+Bytes.
type LogSegment struct {
	Task  string
	Base  int64
	Bytes int64
	New   bool // told to [DB.GrowLogs]: there was no such segment
}

// A LogStream is what has arrived of one output stream of an attempt.
type LogStream struct {
	Task    string           `json:"-"`
	Attempt int              `json:"attempt"`
	Stream  string           `json:"stream"`
	Through int64            `json:"bytes"`             // that have arrived
	Dropped int64            `json:"dropped,omitempty"` // of these, from the beginning: went with old segments
	Ended   *commands.LogEnd `json:"ended,omitempty"`   // nil: more may come
}

// Stream returns what has arrived of a stream; a zero one when nothing has.
func (l *Log) Stream(attempt int, name string) LogStream {
	i := slices.IndexFunc(l.Streams, func(s LogStream) bool { return s.Attempt == attempt && s.Stream == name })
	if i < 0 {
		return LogStream{Task: l.Task, Attempt: attempt, Stream: name}
	}
	return l.Streams[i]
}

// LogsOf returns the logs of tasks, empty ones too, by task: of those that conn
// runs and may still tell about.
func (db *DB) LogsOf(ctx context.Context, conn string, tasks []string) (map[string]*Log, error) {
	return db.logs(ctx, `SELECT m.task::text, m.conn::text, coalesce(l.tail, 0), coalesce(l.at, m.created_at) FROM unnest($2::uuid[]) AS asked (task) CROSS JOIN LATERAL (SELECT * FROM mirrors WHERE task = asked.task LIMIT 1) AS m
		JOIN connections c ON c.id = m.conn AND c.state IN ('active', 'suspended') LEFT JOIN logs l ON l.task = m.task WHERE m.conn = $1`, tasks, conn)
}

// Log returns the log of a task; an empty one where nothing has arrived. It is that of one moment: whoever
// reads it takes what its streams say to have come for what is in its segments.
func (db *DB) Log(ctx context.Context, task string) (l *Log, err error) {
	err = db.Read(ctx, "reading the index of a log", func(ctx context.Context, conn *pgxpool.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			list, err := readLogs(ctx, tx, `SELECT task::text, conn::text, tail, at FROM logs WHERE $1 AND task = ANY($2::uuid[])`, []string{task}, true)
			l = list[task]
			return err
		})
	})
	if l == nil {
		l = &Log{Task: task}
	}
	return l, err
}

func (db *DB) logs(ctx context.Context, sql string, tasks []string, arg any) (list map[string]*Log, err error) {
	err = db.Read(ctx, "reading the index of logs", func(ctx context.Context, conn *pgxpool.Conn) (err error) {
		list, err = readLogs(ctx, conn, sql, tasks, arg)
		return err
	})
	return list, err
}

// readLogs reads logs that sql selects. Outside of a transaction of one snapshot, what was committed after
// the first statement may be in the others: more of a log, never less.
func readLogs(ctx context.Context, conn interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}, sql string, tasks []string, arg any) (map[string]*Log, error) {
	list := map[string]*Log{}
	b := &pgx.Batch{}
	b.Queue(sql, arg, tasks).Query(func(rows pgx.Rows) error {
		var l Log
		_, err := pgx.ForEachRow(rows, []any{&l.Task, &l.Conn, &l.Tail, &l.At}, func() error { one := l; list[l.Task] = &one; return nil })
		return err
	})
	b.Queue(`SELECT task::text, base, bytes FROM log_segments WHERE task = ANY($1::uuid[]) ORDER BY base`, tasks).Query(func(rows pgx.Rows) error {
		var s LogSegment
		_, err := pgx.ForEachRow(rows, []any{&s.Task, &s.Base, &s.Bytes}, func() error {
			if l := list[s.Task]; l != nil {
				l.Segments = append(l.Segments, s)
			}
			return nil
		})
		return err
	})
	b.Queue(`SELECT task::text, attempt, stream, through, dropped, ended FROM log_streams WHERE task = ANY($1::uuid[]) ORDER BY attempt, stream DESC`, tasks).Query(func(rows pgx.Rows) error {
		var s LogStream
		_, err := pgx.ForEachRow(rows, []any{&s.Task, &s.Attempt, &s.Stream, &s.Through, &s.Dropped, &s.Ended}, func() error {
			if l := list[s.Task]; l != nil {
				l.Streams = append(l.Streams, s)
			}
			s.Ended = nil
			return nil
		})
		return err
	})
	return list, conn.SendBatch(ctx, b).Close()
}

// A Lack is a stream of an agent's output of which there is more than is here, or
// may be.
type Lack struct {
	Conn, Task string
	Attempt    int
	Stream     string
	Through    int64 // that are here
}

// lackPage is how many tasks are looked at together, and how many streams are
// found at most.
const lackPage, lackMost = 1000, 256

// behindAll is an id that comes after every task's.
const behindAll = "ffffffff-ffff-ffff-ffff-ffffffffffff"

// LacksOutput looks at a page of tasks, the newest first, of those before the task
// before; "" = from the newest one on. It returns the streams of conns that have
// ended, with their attempt, and of which no end is here: of the last attempt those
// of which the result tells more than is here. next is where the next page begins,
// "" when there is none.
func (db *DB) LacksOutput(ctx context.Context, conns []string, before string) (list []Lack, next string, err error) {
	err = db.Read(ctx, "looking for output that is not here", func(ctx context.Context, conn *pgxpool.Conn) error {
		var n int
		err := conn.QueryRow(ctx, `SELECT count(*), coalesce((array_agg(task ORDER BY task))[1]::text, '')
			FROM (SELECT task FROM mirrors WHERE task < $1 ORDER BY task DESC LIMIT $2) AS page`, cmp.Or(before, behindAll), lackPage).Scan(&n, &next)
		if err != nil || n == 0 {
			return err
		}
		rows, err := conn.Query(ctx, `
			SELECT m.conn::text, m.task::text, a.attempt, n.stream, coalesce(s.through, 0)
			FROM mirrors m CROSS JOIN LATERAL generate_series(1, m.attempt) AS a (attempt) CROSS JOIN (VALUES ('stdout'), ('stderr')) AS n (stream)
				LEFT JOIN log_streams s ON s.task = m.task AND s.attempt = a.attempt AND s.stream = n.stream
			WHERE m.task >= $2::uuid AND m.task < $1 AND m.conn = ANY($3::uuid[]) AND m.ended_at IS NOT NULL AND s.ended IS NULL
				AND m.result->>'outcome' <> '' AND (a.attempt < m.attempt OR coalesce((m.result->n.stream->>'size')::bigint, 0) > coalesce(s.through, 0))
			ORDER BY m.task DESC, a.attempt, n.stream LIMIT $4`, cmp.Or(before, behindAll), next, conns, lackMost)
		if err != nil {
			return err
		}
		if n < lackPage {
			next = ""
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Lack])
		return err
	})
	return list, next, err
}

// holdLogs comes before anything else of logs is locked.
const holdLogs = `SELECT FROM logs WHERE task = ANY($1::uuid[]) ORDER BY task FOR UPDATE`

// ErrLogMoved says that a log is not as it was read, or its connection has ended:
// nothing was changed.
var ErrLogMoved = errors.New("the log was changed by somebody else, or its connection has ended")

// GrowLogs takes over into the index what was appended to logs of a connection:
// was is where they ended, segments and streams are those that have changed.
// Their bytes are on disk already.
func (db *DB) GrowLogs(ctx context.Context, conn string, was map[string]int64, grown []*Log) error {
	rows, err := rowsOf(was, grown)
	if err != nil {
		return err
	}
	tasks, segments, streams := rows.tasks, rows.segments, rows.streams
	return db.Tx(ctx, "storing output", func(ctx context.Context, tx *Tx) error {
		for _, do := range []struct {
			sql  string
			rows int // that it must change; -1: any number
			args []any
		}{
			{`SELECT FROM connections WHERE id = $1 AND state IN ('active', 'suspended') FOR SHARE`, 1, []any{conn}},
			{`INSERT INTO logs (task, conn) SELECT task, $2 FROM unnest($1::uuid[]) AS task ON CONFLICT DO NOTHING`, -1, []any{tasks, conn}},
			{holdLogs, len(tasks), []any{tasks}},
			{`UPDATE logs l SET tail = u.tail, at = clock_timestamp() FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS u (task, was, tail)
				WHERE l.task = u.task AND l.tail = u.was`, len(tasks), []any{tasks, rows.was, rows.tail}},
			{`WITH u AS (SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::boolean[]) AS u (task, base, bytes, fresh)), grown AS (
				UPDATE log_segments s SET bytes = u.bytes, at = clock_timestamp() FROM u WHERE NOT u.fresh AND s.task = u.task AND s.base = u.base RETURNING s.base
			), begun AS (
				INSERT INTO log_segments (task, base, conn, bytes) SELECT task, base, $5, bytes FROM u WHERE fresh RETURNING base
			) SELECT base FROM grown UNION ALL SELECT base FROM begun`, len(segments.task),
				[]any{segments.task, segments.base, segments.bytes, segments.fresh, conn}},
			{`INSERT INTO log_streams AS s (task, attempt, stream, through, ended)
				SELECT task, attempt, stream, through, nullif(ended, '')::jsonb FROM unnest($1::uuid[], $2::int[], $3::text[], $4::bigint[], $5::text[]) AS u (task, attempt, stream, through, ended)
				ON CONFLICT (task, attempt, stream) DO UPDATE SET through = excluded.through, ended = excluded.ended`, len(streams.task),
				[]any{streams.task, streams.attempt, streams.stream, streams.through, rows.ended}},
		} {
			tag, err := tx.Exec(ctx, do.sql, do.args...)
			if err != nil {
				return err
			}
			if do.rows >= 0 && int(tag.RowsAffected()) != do.rows {
				return ErrLogMoved
			}
		}
		return nil
	})
}

// grownRows are the rows that a growth of logs changes, by columns; tasks are in the
// order of their locks.
type grownRows struct {
	tasks     []string
	was, tail []int64
	segments  segmentRows
	streams   streamRows
	ended     []string // JSON, "" = goes on; beside streams
}

func rowsOf(was map[string]int64, grown []*Log) (r grownRows, err error) {
	for _, l := range slices.SortedFunc(slices.Values(grown), func(a, b *Log) int { return cmp.Compare(a.Task, b.Task) }) {
		r.tasks, r.was, r.tail = append(r.tasks, l.Task), append(r.was, was[l.Task]), append(r.tail, l.Tail)
		for _, s := range l.Segments {
			r.segments.add(s)
		}
		for _, s := range l.Streams {
			r.streams.add(s)
			var text []byte
			if s.Ended != nil {
				if text, err = json.Marshal(s.Ended); err != nil {
					return r, err
				}
			}
			r.ended = append(r.ended, string(text))
		}
	}
	return r, nil
}

// LogBound bounds what is kept of the output of a connection's agents.
type LogBound struct {
	Bytes int64         // of all of them together
	Age   time.Duration // since the last record of a segment
}

// DropBatch is how many segments are dropped together.
const DropBatch = 500

// OldSegments returns the oldest segments of a connection that are beyond b, up
// to [DropBatch]. A segment counts as the block that its file takes at least. It
// reads the sum that is kept, makes one row of it, and reads a batch of segments.
func (db *DB) OldSegments(ctx context.Context, conn string, b LogBound) (list []LogSegment, err error) {
	err = db.Tx(ctx, "looking for old segments of logs", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.Query(ctx, `
			WITH parts AS (
				DELETE FROM log_sums WHERE ctid = ANY (ARRAY (SELECT ctid FROM log_sums WHERE conn = $1 FOR UPDATE SKIP LOCKED))
					AND EXISTS (SELECT FROM log_sums WHERE conn = $1 OFFSET 1) RETURNING bytes
			), summed AS (
				INSERT INTO log_sums SELECT $1, sum(bytes) FROM parts HAVING sum(bytes) <> 0
			), kept AS (
				SELECT coalesce(sum(bytes), 0) AS bytes FROM log_sums WHERE conn = $1
			)
			SELECT task::text, base, s.bytes, false FROM kept, (
				SELECT *, sum(greatest(bytes, 4096)) OVER (ORDER BY at, task, base) - greatest(bytes, 4096) AS older
				FROM (SELECT * FROM log_segments WHERE conn = $1 ORDER BY at, task, base LIMIT CASE
					WHEN (SELECT bytes FROM kept) > $2 OR (SELECT min(at) FROM log_segments WHERE conn = $1) < statement_timestamp() - $3::interval THEN $4::bigint ELSE 0 END) AS oldest
			) AS s WHERE kept.bytes - older > $2 OR at < statement_timestamp() - $3::interval ORDER BY at, task, base`, conn, b.Bytes, b.Age, DropBatch)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LogSegment])
		return err
	})
	return list, err
}

// DropSegments takes segments out of the index; their files go afterwards. The
// streams say up to where they were in these segments.
func (db *DB) DropSegments(ctx context.Context, list []LogSegment, in []LogStream) error {
	segments, streams := segmentRows{}, streamRows{}
	for _, s := range list {
		segments.add(s)
	}
	for _, s := range in {
		streams.add(s)
	}
	return db.Tx(ctx, "dropping old segments of logs", func(ctx context.Context, tx *Tx) error {
		if _, err := tx.Exec(ctx, holdLogs, segments.task); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM log_segments s USING unnest($1::uuid[], $2::bigint[]) AS u (task, base) WHERE s.task = u.task AND s.base = u.base`,
			segments.task, segments.base); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE log_streams s SET dropped = greatest(s.dropped, least(u.through, s.through))
			FROM unnest($1::uuid[], $2::int[], $3::text[], $4::bigint[]) AS u (task, attempt, stream, through)
			WHERE s.task = u.task AND s.attempt = u.attempt AND s.stream = u.stream`, streams.task, streams.attempt, streams.stream, streams.through); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE log_streams s SET dropped = through WHERE task = ANY($1::uuid[]) AND dropped < through
			AND NOT EXISTS (SELECT FROM log_segments g WHERE g.task = s.task)`, segments.task)
		return err
	})
}

// LogConns returns the connections whose agents' output is kept here, and which
// of tasks have a log, each as CONNECTION/TASK.
func (db *DB) LogConns(ctx context.Context, tasks []string) (conns []string, logs map[string]bool, err error) {
	ids := slices.DeleteFunc(slices.Clone(tasks), func(t string) bool { return len(t) != 36 || uuid.Validate(t) != nil })
	err = db.Read(ctx, "looking through the logs", func(ctx context.Context, c *pgxpool.Conn) error {
		logs = map[string]bool{}
		rows, err := c.Query(ctx, `SELECT id::text FROM connections c WHERE EXISTS (SELECT FROM log_sums s WHERE s.conn = c.id)`)
		if err != nil {
			return err
		}
		if conns, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		if rows, err = c.Query(ctx, `SELECT conn || '/' || task FROM logs WHERE task = ANY($1::uuid[])`, ids); err != nil {
			return err
		}
		var name string
		_, err = pgx.ForEachRow(rows, []any{&name}, func() error { logs[name] = true; return nil })
		return err
	})
	return conns, logs, err
}

type segmentRows struct {
	task        []string
	base, bytes []int64
	fresh       []bool
}

func (r *segmentRows) add(s LogSegment) {
	r.task, r.base, r.bytes, r.fresh = append(r.task, s.Task), append(r.base, s.Base), append(r.bytes, s.Bytes), append(r.fresh, s.New)
}

type streamRows struct {
	task    []string
	attempt []int
	stream  []string
	through []int64
}

func (r *streamRows) add(s LogStream) {
	r.task, r.attempt, r.stream, r.through = append(r.task, s.Task), append(r.attempt, s.Attempt), append(r.stream, s.Stream), append(r.through, s.Through)
}
