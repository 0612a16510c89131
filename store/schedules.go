package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
)

// MaxSchedules is how many schedules an instance has at most: lists of them have no pages.
const MaxSchedules = 1000

// What becomes of a schedule that is due while the last agent that it has ordered has not ended.
const (
	OverlapSkip    = "skip"    // nothing is ordered
	OverlapQueue   = "queue"   // it is ordered all the same
	OverlapReplace = "replace" // the last one is killed
)

// The states of a schedule.
const (
	ScheduleActive = "active"
	SchedulePaused = "paused"
)

// Restored is why schedules are paused, and webhooks disabled, whose database was restored from a backup.
const Restored = "restored"

// A Template is what a schedule orders. Its values are kept apart.
type Template struct {
	Spoke  string          `json:"spoke,omitempty"` // "" where Any is set, or for the only one there is
	Any    bool            `json:"any,omitempty"`
	LifeMS int64           `json:"life_ms,omitempty"` // 0 = the default
	Labels commands.Labels `json:"labels,omitempty"`
	Spawn  *commands.Spawn `json:"spawn"`
}

// A Schedule is an order that is given again and again.
type Schedule struct {
	ID, Name   string
	Cron, Zone string
	Overlap    string
	State      string
	Why        string // it is paused
	Restored   bool   // by a restore, and by nobody
	PausedBy   string // who has paused it: "self" is this instance
	PausedAt   *time.Time
	Template   Template
	box        []byte // its values
	Next       *time.Time
	LastFired  *time.Time
	LastTask   string
	Outcome    Outcome
	CreatedBy  string
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

const scheduleColumns = `s.id::text, s.name, s.cron, s.zone, s.overlap, s.state, s.why, s.restored, s.paused_by, s.paused_at, s.template, s.box, s.next_due_at, s.last_fired_at, coalesce(s.last_task::text, ''),
	s.outcome, s.outcome_code, s.outcome_why, s.outcome_since, s.created_by, s.created_at, s.updated_at`

func (s *Schedule) dest() []any {
	return []any{&s.ID, &s.Name, &s.Cron, &s.Zone, &s.Overlap, &s.State, &s.Why, &s.Restored, &s.PausedBy, &s.PausedAt, &s.Template, &s.box, &s.Next, &s.LastFired, &s.LastTask, &s.Outcome.Is, &s.Outcome.Code, &s.Outcome.Why, &s.Outcome.Since, &s.CreatedBy, &s.CreatedAt, &s.UpdatedAt}
}

func scanSchedule(row pgx.CollectableRow) (s Schedule, err error) { return s, row.Scan(s.dest()...) }

// named finds one by its name or id.
const named = `(s.name = $1 OR s.id::text = $1)`

func noSchedule(text string) error {
	return commands.Refuse(commands.NotFound, "there is no schedule with the name or the id %q", commands.Clip(text)).Hinting("see").Running("schedule", "list")
}

// AddSchedule stores a schedule, which is due first as next says. Its values are encrypted to this instance itself.
func (db *DB) AddSchedule(ctx context.Context, s Schedule, values commands.Values, next func(now time.Time) time.Time) error {
	box, err := db.sealTemplate(s, values)
	if err != nil {
		return err
	}
	return db.Tx(ctx, "creating the schedule "+s.Name, func(ctx context.Context, tx *Tx) error {
		var now time.Time
		var many bool
		if err := tx.QueryRow(ctx, `SELECT clock_timestamp(), (SELECT count(*) FROM schedules) >= $1`, MaxSchedules).Scan(&now, &many); err != nil {
			return err
		}
		if many {
			return commands.Refuse(commands.Conflict, "there are %d schedules, which is the limit", MaxSchedules).Hinting("delete those that are no longer needed").Running("schedule", "list")
		}
		_, err := tx.Exec(ctx, `INSERT INTO schedules (id, name, cron, zone, overlap, template, box, next_due_at, created_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			s.ID, s.Name, s.Cron, s.Zone, s.Overlap, s.Template, box, next(now), s.CreatedBy)
		tx.Audit(AuditRow{Actor: s.CreatedBy, Action: "schedule.created", Object: s.Name, Why: s.terms()})
		return s.refuse(err)
	})
}

// terms says when s is due, for the audit.
func (s Schedule) terms() string {
	return fmt.Sprintf("%s in %s, overlap %s", s.Cron, s.Zone, s.Overlap)
}

// refuse puts what the table does not take into words.
func (s Schedule) refuse(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch pg.ConstraintName {
	case "schedules_name":
		return commands.Refuse(commands.Conflict, "a schedule named %s is there already", s.Name).Hinting("choose another name, or see what it does").Running("schedule", "show", s.Name)
	case "name_is_a_name":
		return commands.NotAName(s.Name)
	case "overlap_is_known":
		return commands.Refuse(commands.Validation, "overlap %q is none of skip, queue and replace", commands.Clip(s.Overlap))
	}
	return err
}

// sealTemplate encrypts the values of a template; nil where it has none.
func (db *DB) sealTemplate(s Schedule, values commands.Values) ([]byte, error) {
	if len(values) == 0 {
		return nil, nil
	}
	if db.sealing == nil {
		return nil, errors.New("this instance has no sealing key to keep values with")
	}
	return s.Template.Spawn.Encrypt(db.sealing.Public(), db.keptPlace(s.ID), values)
}

// valuesOf opens the values of a schedule.
func (db *DB) valuesOf(s Schedule) (commands.Values, error) {
	if s.box == nil {
		return nil, nil
	}
	if db.sealing == nil {
		return nil, errors.New("this instance has no sealing key")
	}
	return s.Template.Spawn.Decrypt(db.sealing, db.sealing.KeyID(), db.keptPlace(s.ID), s.box)
}

// Schedules returns all, by name.
func (db *DB) Schedules(ctx context.Context) (list []Schedule, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, `SELECT `+scheduleColumns+` FROM schedules s ORDER BY s.name`)
		if err == nil {
			list, err = pgx.CollectRows(rows, scanSchedule)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the schedules: %w", err)
	}
	return list, nil
}

// FindSchedule returns the one with a name or an id.
func (db *DB) FindSchedule(ctx context.Context, text string) (s Schedule, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `SELECT `+scheduleColumns+` FROM schedules s WHERE `+named, text).Scan(s.dest()...)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return s, noSchedule(text)
	}
	if err != nil {
		return s, fmt.Errorf("reading the schedule %s: %w", commands.Clip(text), err)
	}
	return s, nil
}

// ChangeSchedule changes when a schedule is due, how it overlaps, and whether it is paused. What change does is done to the
// schedule as it is at that moment; it returns the action and the words for the audit, or no action where nothing is to be changed.
// A pause without a name is that of actor.
func (db *DB) ChangeSchedule(ctx context.Context, text, actor string, change func(s *Schedule, now time.Time) (action, why string, err error)) (s Schedule, err error) {
	err = db.Tx(ctx, "changing a schedule", func(ctx context.Context, tx *Tx) error {
		now, err := holdSchedule(ctx, tx, &s, text)
		if err != nil {
			return err
		}
		action, why, err := change(&s, now)
		if err != nil || action == "" {
			return err
		}
		switch {
		case s.State != SchedulePaused:
			s.PausedBy, s.PausedAt = "", nil
		case s.PausedBy == "":
			s.PausedBy, s.PausedAt = actor, &now
		}
		err = tx.QueryRow(ctx, `UPDATE schedules SET cron = $2, zone = $3, overlap = $4, state = $5, why = $6, next_due_at = $7, restored = $8, paused_by = $9, paused_at = $10, updated_at = clock_timestamp() WHERE id = $1 RETURNING updated_at`,
			s.ID, s.Cron, s.Zone, s.Overlap, s.State, s.Why, s.Next, s.Restored, s.PausedBy, s.PausedAt).Scan(&s.UpdatedAt)
		tx.Audit(AuditRow{Actor: actor, Action: action, Object: s.Name, Why: why})
		return s.refuse(err)
	})
	return s, err
}

// holdSchedule holds a schedule until the transaction ends, and returns what the time is.
func holdSchedule(ctx context.Context, tx *Tx, s *Schedule, text string) (now time.Time, err error) {
	*s = Schedule{}
	err = tx.QueryRow(ctx, `SELECT `+scheduleColumns+`, clock_timestamp() FROM schedules s WHERE `+named+` FOR UPDATE`, text).Scan(append(s.dest(), &now)...)
	if errors.Is(err, pgx.ErrNoRows) {
		err = noSchedule(text)
	}
	return now, err
}

// RemoveSchedule forgets a schedule. The agents that it has ordered go on.
func (db *DB) RemoveSchedule(ctx context.Context, text, actor, reason string) (s Schedule, err error) {
	err = db.Tx(ctx, "deleting a schedule", func(ctx context.Context, tx *Tx) error {
		if _, err := holdSchedule(ctx, tx, &s, text); err != nil {
			return err
		}
		tx.Audit(AuditRow{Actor: actor, Action: "schedule.deleted", Object: s.Name, Why: strings.TrimPrefix(reason+"; ", "; ") + s.terms()})
		_, err := tx.Exec(ctx, `DELETE FROM schedules WHERE id = $1`, s.ID)
		return err
	})
	return s, err
}
