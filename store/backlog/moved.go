package backlog

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Asked names the message that asked for something; empty for the instance's
// own tasks.
type Asked struct {
	Command string // the message's id
	Digest  string // hex
}

// A Moved is the fact that a task which a connection asked for has started, has
// ended, or goes back to the queue after an attempt.
type Moved struct {
	Task    string
	Conn    string // whose task it is
	Asked   Asked  // what asked for it
	State   commands.State
	Reason  commands.Reason
	Attempt int
	Epoch   int64
	Started int64   // of the first start, in milliseconds of Unix time; 0 = never
	At      int64   // of the fact, in milliseconds of Unix time
	Next    int64   // no attempt follows before, in milliseconds of Unix time; 0 = one may at once, or none does
	Start   *Start  // the proof of a start; nil when it is something else
	End     *End    // the evidence of the attempt that ended; nil without any
	Kills   []Asked // who of Conn asked for its end and was not told yet
	// Asked for and answered: a question of the agent, or what became of one; nil when it is something else.
	Question *commands.Question
	Answered *commands.Answered
	Stands   bool // how it stands is the news: it was paused, or goes on
	Before   bool // it had ended before, and was told: only Kills are news

	told   *commands.Result // as it was told before; nil = it is news
	before leftWork         // what attempts before the last one have left, where that has not looked

	n      int // the place in the caller's list, from 1
	killed bool
	killer *string // who on this host had it killed, and why; nil = nobody
	kill   string  // see [commands.Result]
}

// delivers reports whether m is the end of an attempt whose work is to be reviewed.
func (m Moved) delivers() bool { return m.State == commands.InReview && m.End != nil }

// Delivers is what m has delivered for review; nil where it has not.
func (m Moved) Delivers() *commands.Result {
	if !m.delivers() {
		return nil
	}
	return m.Result()
}

// Result is how an ended task ended.
func (m Moved) Result() *commands.Result {
	if m.told != nil {
		return m.told
	}
	r := &commands.Result{Task: m.Task, State: m.State, Reason: m.Reason, Attempt: m.Attempt, StartedAt: m.Started, EndedAt: m.At, Kill: m.kill}
	if e := m.End; e != nil {
		r.Outcome, r.Exit, r.Stdout, r.Stderr, r.Reaped, r.Survivors, r.Policy, r.Isolation = e.Outcome, e.Exit, e.Stdout, e.Stderr, e.Reaped, e.Survivors, e.Policy, e.Isolation
		if w := e.Word; w != nil {
			r.Reported, r.Data, r.Artifacts = &w.Report, w.Data, w.Artifacts
		}
	} else {
		r.Exit.Code = -1
	}
	w := m.work()
	r.Bundle, r.Kept = w.Bundle, w.Kept
	r.Summary = r.Sentence()
	if m.killer != nil && m.State == commands.Cancelled {
		r.Summary += " " + *m.killer
	}
	return r
}

// report stores the results of tasks that have ended and tells of all that a
// connection asked for.
func (b *Backlog) report(ctx context.Context, tx *store.Tx, list []Moved) error {
	if err := leftBefore(ctx, tx, list); err != nil {
		return err
	}
	storeResults(tx, list)
	holdLeft(tx, list)
	facts := slices.DeleteFunc(slices.Clone(list), func(m Moved) bool { return m.Conn == "" })
	if err := b.findKills(ctx, tx, facts); err != nil || len(facts) == 0 {
		return err
	}
	return b.moved(ctx, tx, facts)
}

// storeResults queues the storing of how tasks have ended.
func storeResults(tx *store.Tx, list []Moved) {
	var tasks []string
	var results []*commands.Result
	for _, m := range list {
		if (m.State.Terminal() || m.delivers()) && (m.Conn != "" || m.End != nil) {
			tasks, results = append(tasks, m.Task), append(results, m.Result())
		}
	}
	if len(tasks) == 0 {
		return
	}
	tx.Queue(`UPDATE task_bodies b SET result = u.result FROM unnest($1::uuid[], $2::jsonb[]) AS u (task, result) WHERE b.task = u.task`, tasks, results)
}

// findKills adds to the facts about killed tasks who asked for it and was not
// told yet, and notes that they are told now.
func (b *Backlog) findKills(ctx context.Context, tx *store.Tx, facts []Moved) error {
	at := map[string]int{}
	var tasks []string
	for i, m := range facts {
		if m.killed {
			at[m.Task] = i
			tasks = append(tasks, m.Task)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, statement("answer_kills"), tasks)
	if err != nil {
		return fmt.Errorf("answering kills: %w", err)
	}
	var task string
	var k Asked
	var now int64
	_, err = pgx.ForEachRow(rows, []any{&task, &k.Command, &k.Digest, &now}, func() error {
		m := &facts[at[task]]
		m.Kills = append(m.Kills, k)
		if m.Before {
			m.At = now
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("answering kills: %w", err)
	}
	return nil
}

func scanMoved(row pgx.CollectableRow) (Moved, error) {
	var m Moved
	var digest []byte
	var started, next, at *time.Time
	err := row.Scan(&m.n, &m.Task, &m.State, &m.Reason, &m.Attempt, &m.Conn, &m.Asked.Command, &digest, &m.Epoch, &m.killed, &m.killer, &m.kill, &started, &next, &at)
	m.Asked.Digest, m.Started, m.Next, m.At = hex.EncodeToString(digest), millis(started), millis(next), millis(at)
	return m, err
}

// millis is Unix time in milliseconds, 0 for none.
func millis(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMilli()
}

// endedTasks reads tasks that ended without an attempt's evidence.
func endedTasks(ctx context.Context, tx *store.Tx, tasks []string) ([]Moved, error) {
	rows, err := tx.Query(ctx, statement("ended_tasks"), tasks)
	if err != nil {
		return nil, fmt.Errorf("reading ended tasks: %w", err)
	}
	return pgx.CollectRows(rows, scanMoved)
}
