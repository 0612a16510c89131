package backlog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// KeptProgress is how many words on its progress an attempt keeps.
const KeptProgress = 100

// Heard notes that the agent of an attempt has said something, and returns when that was.
func (b *Backlog) Heard(ctx context.Context, f Fence) (at time.Time, err error) {
	err = b.byFence(ctx, "hearing an agent", f, func(ctx context.Context, tx *store.Tx) error {
		return tx.QueryRow(ctx, statement("heard"), f.Task, f.Attempt, f.Epoch).Scan(&at)
	})
	return at, err
}

// Unanswered notes that the agent of an attempt waits for answers, and returns the ids of its task's open questions.
func (b *Backlog) Unanswered(ctx context.Context, f Fence) (ids []string, err error) {
	err = b.byFence(ctx, "looking for the answers to an agent", f, func(ctx context.Context, tx *store.Tx) error {
		var at time.Time
		if err := tx.QueryRow(ctx, statement("heard"), f.Task, f.Attempt, f.Epoch).Scan(&at); err != nil {
			return err
		}
		ids, err = collect[string](tx.Query(ctx, statement("unanswered"), f.Task))
		return err
	})
	return ids, err
}

// SayProgress keeps what an agent says of its progress, and returns it with its number and time.
func (b *Backlog) SayProgress(ctx context.Context, f Fence, p commands.Progress) (Step, error) {
	s := Step{Progress: p, Attempt: f.Attempt}
	if err := p.Validate(); err != nil {
		return s, err
	}
	err := b.byFence(ctx, "noting the progress of an agent", f, func(ctx context.Context, tx *store.Tx) error {
		return tx.QueryRow(ctx, statement("say_progress"), f.Task, f.Attempt, f.Epoch, p, KeptProgress).Scan(&s.N, &s.At)
	})
	return s, err
}

// SayEnd keeps what an agent says of its own end, in place of what it said before.
func (b *Backlog) SayEnd(ctx context.Context, f Fence, w commands.Word) (at time.Time, err error) {
	if err := w.Validate(); err != nil {
		return at, err
	}
	err = b.byFence(ctx, "noting what an agent says of its end", f, func(ctx context.Context, tx *store.Tx) error {
		return tx.QueryRow(ctx, statement("say_end"), f.Task, f.Attempt, f.Epoch, w).Scan(&at)
	})
	return at, err
}

// LastWord returns what the agent of an open attempt has said of its own end; nil for nothing.
func (b *Backlog) LastWord(ctx context.Context, f Fence) (w *commands.Word, err error) {
	err = b.db.Read(ctx, "reading what an agent said of its end", func(ctx context.Context, conn *pgxpool.Conn) error {
		err := conn.QueryRow(ctx, `SELECT word FROM leases WHERE task = $1 AND attempt = $2`, f.Task, f.Attempt).Scan(&w)
		if err == pgx.ErrNoRows {
			return nil
		}
		return err
	})
	return w, err
}

// byFence runs what an agent says in a transaction. No row says that its fence does not hold: the error is
// STALE_ATTEMPT then, with what became of the attempt.
func (b *Backlog) byFence(ctx context.Context, doing string, f Fence, say func(context.Context, *store.Tx) error) error {
	return b.db.Tx(ctx, doing, func(ctx context.Context, tx *store.Tx) error {
		tx.TellNobody()
		err := say(ctx, tx)
		if err == pgx.ErrNoRows {
			return overtaken(ctx, tx, f)
		}
		return err
	})
}

// overtaken says how an attempt stands whose fence does not hold.
func overtaken(ctx context.Context, tx *store.Tx, f Fence) error {
	var state commands.State
	var reason commands.Reason
	var attempt int
	var outcome string
	err := tx.QueryRow(ctx, statement("overtaken"), f.Task, f.Attempt).Scan(&state, &reason, &attempt, &outcome)
	if err != nil && err != pgx.ErrNoRows {
		return fmt.Errorf("looking for what became of an attempt: %w", err)
	}
	now := "the task is not here any more"
	switch {
	case err != nil:
	case outcome != "":
		now = fmt.Sprintf("it has ended: %s; the task is %s", outcome, state)
	case reason != "":
		now = fmt.Sprintf("it is being ended (%s)", reason)
	default:
		now = fmt.Sprintf("the task is %s, with attempt %d", state, attempt)
	}
	return commands.Refuse(commands.StaleAttempt, "attempt %d of agent %s may say nothing any more: %s; nothing was changed", f.Attempt, commands.ShortID(f.Task), now).
		Hinting("end this process: what it does from now on does not count")
}

// A Step is what an agent said of its progress once.
type Step struct {
	commands.Progress
	Attempt int       `json:"attempt"`
	N       int       `json:"n"` // of the attempt, from 1
	At      time.Time `json:"at"`
}

// Steps returns what the agent of a task has said of its progress, the newest first.
func (b *Backlog) Steps(ctx context.Context, task string, limit int) (list []Step, err error) {
	err = b.db.Read(ctx, "reading the progress of an agent", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, statement("progress_of"), task, limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Step, err error) {
			err = row.Scan(&s.Attempt, &s.N, &s.Progress, &s.At)
			return s, err
		})
		return err
	})
	return list, err
}

// LastSteps returns what the agents of the open attempts of owner have said last, by their tasks.
func (b *Backlog) LastSteps(ctx context.Context, owner string) (map[string]Step, error) {
	last := map[string]Step{}
	err := b.db.Read(ctx, "reading the progress of agents", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, statement("last_progress"), owner)
		if err != nil {
			return err
		}
		var task string
		var said []byte
		var s Step
		_, err = pgx.ForEachRow(rows, []any{&task, &s.Attempt, &s.N, &said, &s.At}, func() error {
			s.Progress = commands.Progress{}
			err := json.Unmarshal(said, &s.Progress)
			last[task] = s
			return err
		})
		return err
	})
	return last, err
}
