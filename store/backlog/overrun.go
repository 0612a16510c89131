package backlog

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/store"
)

// An Overrun is an open attempt that takes much longer than estimated.
type Overrun struct {
	Task    string
	Attempt int
	Over    bool // it has told no progress since that was warned of, and is to be ended
}

// mostOverruns is how many are noted in one transaction; the next one is due at once where there are more.
const mostOverruns = 1000

// A Look is what [Backlog.Overruns] saw last, and when that was by the clock of this process, which nobody sets. The zero Look saw nothing.
type Look struct {
	at   time.Time // with its monotonic part
	now  time.Time // by the database
	seen []estimated
	slow int           // how many looks have taken longer since
	long time.Duration // see longest
}

// longest is how long a look may take that says whether the clock was set.
func (l Look) longest() time.Duration { return cmp.Or(l.long, longLook) }

// An estimated is an attempt that something is due of.
type estimated struct {
	task    string
	attempt int
	due     time.Time // as the database has it
	put     time.Time // the same, put off by what the agent has told since
}

// A clock that is set by less moves nothing, and a look that takes longer says nothing of it.
const (
	leastStep = 5 * time.Second
	longLook  = time.Second
)

// While looks take longer, nothing is noted by a clock that may have been set, so often; after that what is due is noted all the same.
const (
	maxSlow   = 5
	lookAgain = time.Second
)

// Overruns notes what is due of the attempts of owner that have an estimate, and returns all that overrun theirs, and how long nothing more
// is due, at most limit. What is due is moved along where the clock of the database was set, or its host slept, since the last look: an
// attempt that did not run so long has not overrun.
func (b *Backlog) Overruns(ctx context.Context, owner string, last *Look, limit time.Duration) (list []Overrun, next time.Duration, err error) {
	list, next, look, err := b.overruns(ctx, owner, limit, last.longest())
	if err != nil {
		return nil, 0, err
	}
	if step := look.step(*last); step != 0 {
		if err := b.moveOverruns(ctx, last.seen, step); err != nil {
			return nil, 0, err
		}
		list, next, look, err = b.overruns(ctx, owner, limit, last.longest())
	}
	if err == nil && next <= 0 && look.at.IsZero() && !last.at.IsZero() && last.slow < maxSlow {
		last.slow++
		return list, min(lookAgain, limit), nil
	}
	if err == nil && next <= 0 {
		err = b.db.Tx(ctx, "noting which attempts run longer than estimated", func(ctx context.Context, tx *store.Tx) error {
			tx.TellNobody()
			_, err := tx.Exec(ctx, statement("note_overruns"), owner, mostOverruns)
			return err
		})
		if err == nil {
			list, next, look, err = b.overruns(ctx, owner, limit, last.longest())
		}
	}
	if err != nil {
		return nil, 0, err
	}
	if !look.at.IsZero() {
		look.long, *last = last.long, look
	}
	return list, next, nil
}

// step is by how much the clock of the database was set between two looks; 0 where that is little, or not known.
func (l Look) step(last Look) time.Duration {
	if l.at.IsZero() || last.at.IsZero() {
		return 0
	}
	if step := l.now.Sub(last.now) - l.at.Sub(last.at); step.Abs() >= leastStep {
		return step
	}
	return 0
}

// moveOverruns moves what was due at the last look. What was changed since stays: it is by the clock that was set.
func (b *Backlog) moveOverruns(ctx context.Context, seen []estimated, step time.Duration) error {
	tasks, attempts, was, due := make([]string, len(seen)), make([]int, len(seen)), make([]time.Time, len(seen)), make([]time.Time, len(seen))
	for i, e := range seen {
		tasks[i], attempts[i], was[i], due[i] = e.task, e.attempt, e.due, e.put.Add(step)
	}
	return b.db.Tx(ctx, "moving what is due of attempts by what the clock was set", func(ctx context.Context, tx *store.Tx) error {
		tx.TellNobody()
		_, err := tx.Exec(ctx, statement("move_overruns"), tasks, attempts, was, due)
		return err
	})
}

func (b *Backlog) overruns(ctx context.Context, owner string, limit, long time.Duration) (list []Overrun, next time.Duration, look Look, err error) {
	err = b.db.Read(ctx, "looking for attempts that run longer than estimated", func(ctx context.Context, conn *pgxpool.Conn) error {
		list, next, look = nil, limit, Look{}
		begun := time.Now()
		rows, err := conn.Query(ctx, statement("overruns"), owner)
		if err != nil {
			return err
		}
		var o Overrun
		var warned bool
		var due, put *time.Time
		_, err = pgx.ForEachRow(rows, []any{&o.Task, &o.Attempt, &warned, &o.Over, &due, &put, &look.now}, func() error {
			if warned {
				list = append(list, o)
			}
			if due != nil {
				next = min(next, due.Sub(look.now))
				look.seen = append(look.seen, estimated{o.Task, o.Attempt, *due, *put})
			}
			return nil
		})
		if len(look.seen) > 0 && time.Since(begun) < long {
			look.at = begun
		}
		return err
	})
	return list, next, look, err
}

// OverrunOf returns since when the open attempt of a task overruns its estimate, as was warned of, and when it is ended where it tells no
// progress until then. since is nil where it does not; until is nil where it stands still, asks somebody, or is being ended.
func (b *Backlog) OverrunOf(ctx context.Context, task string) (since, until *time.Time, err error) {
	err = b.db.Read(ctx, "looking since when an attempt overruns its estimate", func(ctx context.Context, conn *pgxpool.Conn) error {
		err := conn.QueryRow(ctx, statement("overrun_of"), task).Scan(&since, &until)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return since, until, err
}

// Overran reports whether an attempt is to be ended, or was, as it overran its estimate.
func (b *Backlog) Overran(ctx context.Context, f Fence) (over bool, err error) {
	err = b.db.Read(ctx, "looking whether an attempt has overrun its estimate", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM overruns WHERE task = $1 AND attempt = $2 AND over_at IS NOT NULL)`, f.Task, f.Attempt).Scan(&over)
	})
	return over, err
}
