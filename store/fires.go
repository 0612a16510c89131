package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
)

// What became of a schedule that was due.
const (
	FireOrdered = "ordered"
	FireSkipped = "skipped"
	FireRefused = "refused"
)

// FireOutcomes are all of them.
var FireOutcomes = []string{FireOrdered, FireSkipped, FireRefused}

// An Outcome is what became of a schedule last.
type Outcome struct {
	Is    string        // one of [FireOutcomes]; "" = it was not due yet
	Code  commands.Code // why nothing was ordered
	Why   string
	Since *time.Time // each time since then has had the same outcome and code
}

// A Fire is what became of a schedule once.
type Fire struct {
	Seq     int64
	Due     *time.Time // nil: somebody had it run
	At      time.Time
	Outcome string
	Missed  int // how many more times it was due by then, which are this one
	Task    string
	Code    commands.Code // why nothing was ordered
	Why     string
	Actor   string
}

// A Firing is what is to become of a schedule that is held.
type Firing struct {
	Next    time.Time         // when it is due again; zero = never
	Missed  int               // see [Fire]
	Order   *SpawnOrder       // what is ordered
	Refused *commands.Refused // why nothing can be
	Later   bool              // nothing is done now
	Kill    commands.Kill     // of the last one, where that is replaced
	Life    time.Duration     // of that kill
	Actor   string
}

// A Fired is what has become of it. Ordered is empty where nothing was ordered.
type Fired struct {
	Fire
	Schedule Schedule
	Ordered  Ordered
	Killed   *KillOrdered // what was ordered before
}

// NextSchedule is in how long the next schedule is due, at most within.
func (db *DB) NextSchedule(ctx context.Context, within time.Duration) (next time.Duration, err error) {
	err = db.Read(ctx, "looking for the next schedule", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT least(min(next_due_at) - clock_timestamp(), $1::interval) FROM schedules WHERE next_due_at < clock_timestamp() + $1::interval`, within).Scan(&next)
	})
	return next, err
}

// DueSchedules returns the ids of schedules that are due, at most limit, those first that have been for longest.
func (db *DB) DueSchedules(ctx context.Context, limit int) (ids []string, err error) {
	err = db.Read(ctx, "looking for schedules that are due", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `SELECT id::text FROM schedules WHERE next_due_at <= clock_timestamp() ORDER BY next_due_at LIMIT $1`, limit)
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	return ids, err
}

// Fire orders what a schedule has that is due: the order, what is noted of it and when it is due next are one transaction,
// which holds the schedule. It does nothing, and returns nil, where another process has it or it is not due any more.
func (db *DB) Fire(ctx context.Context, id string, decide func(s Schedule, values func() (commands.Values, error), now time.Time) Firing) (fired *Fired, err error) {
	err = db.Tx(ctx, "firing a schedule", func(ctx context.Context, tx *Tx) error {
		fired = nil
		var s Schedule
		var now time.Time
		var before bool
		err := tx.QueryRow(ctx, `SELECT `+scheduleColumns+`, clock_timestamp(), EXISTS (SELECT FROM schedule_fires f WHERE f.schedule = s.id AND f.due_at = s.next_due_at)
			FROM schedules s WHERE id = $1 AND next_due_at <= clock_timestamp() FOR UPDATE SKIP LOCKED`, id).Scan(append(s.dest(), &now, &before)...)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		f := decide(s, func() (commands.Values, error) { return db.valuesOf(s) }, now)
		if f.Later {
			return nil
		}
		if before { // the clock was set back, and the schedule changed after it
			return advance(ctx, tx, s, f.Next)
		}
		fired = &Fired{Schedule: s, Fire: Fire{Due: s.Next, Missed: f.Missed, Actor: f.Actor}}
		if err := db.orderDue(ctx, tx, fired, f); err != nil {
			return err
		}
		if err := noteFire(ctx, tx, fired); err != nil {
			return err
		}
		return advance(ctx, tx, s, f.Next)
	})
	return fired, err
}

// RunSchedule orders what a schedule has, whether it is due or not: when it is due next stays as it is, and so does what
// runs of it.
func (db *DB) RunSchedule(ctx context.Context, text string, decide func(s Schedule, values func() (commands.Values, error), now time.Time) Firing) (fired *Fired, err error) {
	err = db.Tx(ctx, "running a schedule", func(ctx context.Context, tx *Tx) error {
		var s Schedule
		now, err := holdSchedule(ctx, tx, &s, text)
		if err != nil {
			return err
		}
		f := decide(s, func() (commands.Values, error) { return db.valuesOf(s) }, now)
		fired = &Fired{Schedule: s, Fire: Fire{Actor: f.Actor, At: now}}
		if err := db.orderOf(ctx, tx, fired, f); err != nil {
			return err
		}
		if fired.Outcome == FireRefused {
			return cmp.Or(f.Refused, fired.Ordered.Err)
		}
		if fired.Ordered.Existing {
			return nil
		}
		return noteFire(ctx, tx, fired)
	})
	return fired, err
}

// orderDue orders what f says, unless the last agent of the schedule is in the way.
func (db *DB) orderDue(ctx context.Context, tx *Tx, fired *Fired, f Firing) error {
	s := fired.Schedule
	if f.Order == nil || s.Overlap == OverlapQueue || s.LastTask == "" {
		return db.orderOf(ctx, tx, fired, f)
	}
	// Connections are held in the order of their ids, before the mirror.
	if _, err := tx.Exec(ctx, `SELECT FROM connections WHERE id IN (SELECT conn FROM mirrors WHERE task = $1 UNION SELECT nullif($2, '')::uuid) ORDER BY id FOR SHARE`, s.LastTask, f.Order.Conn); err != nil {
		return err
	}
	var open, ends bool // in time: what may finish is in the way until it has
	err := tx.QueryRow(ctx, `SELECT ended_at IS NULL, end_limited(kill) FROM mirrors WHERE task = $1`, s.LastTask).Scan(&open, &ends)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	switch {
	case open && s.Overlap == OverlapSkip:
		fired.Outcome, fired.Why = FireSkipped, "agent "+commands.ShortID(s.LastTask)+", the last one, has not ended"
		return nil
	case open && !ends:
		list, err := killIn(ctx, tx, []string{s.LastTask}, f.Kill, f.Life, f.Actor)
		if err != nil {
			return err
		}
		fired.Killed = &list[0]
	}
	return db.orderOf(ctx, tx, fired, f)
}

// orderOf orders what f says.
func (db *DB) orderOf(ctx context.Context, tx *Tx, fired *Fired, f Firing) error {
	refused := f.Refused
	if f.Order != nil {
		list, err := db.orderIn(ctx, tx, []SpawnOrder{*f.Order})
		if err != nil {
			return err
		}
		fired.Ordered, refused = list[0], list[0].Err
	}
	if refused != nil {
		fired.Outcome, fired.Code, fired.Why = FireRefused, refused.Code, refused.Why
		return nil
	}
	fired.Outcome, fired.Task = FireOrdered, fired.Ordered.Task
	return nil
}

// noteFire writes what became of a schedule. What was ordered has a row in the audit already.
func noteFire(ctx context.Context, tx *Tx, f *Fired) error {
	err := tx.QueryRow(ctx, `INSERT INTO schedule_fires (schedule, due_at, outcome, missed, task, code, why, actor)
		VALUES ($1, $2, $3, $4, nullif($5, '')::uuid, $6, $7, $8) RETURNING seq, at`,
		f.Schedule.ID, f.Due, f.Outcome, f.Missed, f.Task, f.Code, f.Why, f.Actor).Scan(&f.Seq, &f.At)
	if err != nil {
		return fmt.Errorf("noting what became of the schedule %s: %w", f.Schedule.Name, err)
	}
	if f.Outcome != FireOrdered {
		tx.Audit(AuditRow{Actor: f.Actor, Action: "schedule." + f.Outcome, Object: f.Schedule.Name, Code: string(f.Code), Why: f.Why})
	}
	_, err = tx.Exec(ctx, `UPDATE schedules SET outcome = $2, outcome_code = $3, outcome_why = $4, outcome_since = CASE WHEN (outcome, outcome_code) = ($2, $3) THEN outcome_since ELSE $5 END,
		last_task = coalesce(nullif($6, '')::uuid, last_task), last_fired_at = CASE WHEN $6 = '' THEN last_fired_at ELSE $5 END WHERE id = $1`,
		f.Schedule.ID, f.Outcome, f.Code, f.Why, f.At, f.Task)
	return err
}

// advance notes when a schedule is due next. One that will not be is paused.
func advance(ctx context.Context, tx *Tx, s Schedule, next time.Time) error {
	if !next.IsZero() {
		_, err := tx.Exec(ctx, `UPDATE schedules SET next_due_at = $2 WHERE id = $1`, s.ID, next)
		return err
	}
	const why = "it is not due within five years"
	tx.Audit(AuditRow{Actor: "self", Action: "schedule.paused", Object: s.Name, Why: why})
	_, err := tx.Exec(ctx, `UPDATE schedules SET next_due_at = NULL, state = 'paused', why = $2, paused_by = 'self', paused_at = clock_timestamp(), updated_at = clock_timestamp() WHERE id = $1`, s.ID, why)
	return err
}

// Fires returns what became of a schedule, the newest first, at most limit; where before is not 0, those with lower numbers.
func (db *DB) Fires(ctx context.Context, id string, before int64, limit int) (list []Fire, err error) {
	if before == 0 {
		before = math.MaxInt64
	}
	err = db.retry(ctx, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, `SELECT seq, due_at, at, outcome, missed, coalesce(task::text, ''), code, why, actor FROM schedule_fires
			WHERE schedule = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3`, id, before, limit)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Fire])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading what became of a schedule: %w", err)
	}
	return list, nil
}
