package backlog

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Reviewed is what came of the review of an attempt.
type Reviewed struct {
	Attempt int       `json:"attempt"`
	Verdict string    `json:"verdict"`
	Message string    `json:"message,omitempty"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
}

// A reviewing is a task as it stands when the word of its reviewer comes, held until the commit.
type reviewing struct {
	task      string
	state     commands.State
	attempt   int
	epoch     int64
	conn      string
	asked     Asked
	started   *time.Time
	reworks   *int // null = it is not reviewed
	last      *Reviewed
	delivered *commands.Result
}

// Review carries out what the reviewer of a task of connection conn has decided, and returns how the task stands then. The first word on an
// attempt counts: it may come again, and another one is a CONFLICT that says what stands. Who asked for the task is told how it stands, also
// where nothing changes: it may know it otherwise, since one of the two was restored from a backup.
func (b *Backlog) Review(ctx context.Context, tx *store.Tx, conn, actor string, v commands.Review) (commands.State, error) {
	if err := b.HoldKills(ctx, tx, conn, []string{v.Task}); err != nil {
		return "", err
	}
	r, err := readReviewing(ctx, tx, v.Task)
	if err == nil && r.conn != conn {
		err = unknownTask(v.Task)
	}
	if err != nil {
		return "", err
	}
	if b.Restored() && r.goesOn(v) {
		if err := r.note(ctx, tx, actor, v); err != nil {
			return "", err
		}
		return r.state, b.retell(ctx, tx, r)
	}
	refused := r.refuses(v)
	switch {
	case refused != nil && r.reworks != nil || r.stands(v):
		if err := b.retell(ctx, tx, r); err != nil {
			return "", err
		}
		if refused != nil {
			return "", refused
		}
		return r.state, nil
	case refused != nil:
		return "", refused
	}
	return b.reviewed(ctx, tx, r, actor, v)
}

func readReviewing(ctx context.Context, tx *store.Tx, task string) (r reviewing, err error) {
	var digest []byte
	r.task = task
	err = tx.QueryRow(ctx, statement("reviewing"), task).Scan(&r.state, &r.attempt, &r.epoch, &r.conn, &r.asked.Command, &digest, &r.started, &r.reworks, &r.last, &r.delivered)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, unknownTask(task)
	}
	if err != nil {
		return r, fmt.Errorf("looking up the review of task %s: %w", task, err)
	}
	r.asked.Digest = hex.EncodeToString(digest)
	return r, nil
}

// decided reports whether there is a word on an attempt.
func (r reviewing) decided(attempt int) bool { return r.last != nil && r.last.Attempt == attempt }

// stands reports whether v says what was said before.
func (r reviewing) stands(v commands.Review) bool {
	return r.decided(v.Attempt) && v.Repeats(r.last.Verdict, r.last.Message)
}

// goesOn reports whether a later attempt is under way and nothing is known of what sent it back: a database that was restored to before v
// has taken over the rework that v began. A retry of that is told what is to be changed.
func (r reviewing) goesOn(v commands.Review) bool {
	return r.reworks != nil && *r.reworks < commands.MaxReworks && v.Reworks() && v.Attempt < r.attempt && (r.last == nil || r.last.Attempt < v.Attempt) &&
		!r.state.Terminal() && !reviewed(r.state)
}

// refuses says why v is not carried out; nil where it is, or was.
func (r reviewing) refuses(v commands.Review) error {
	short := commands.ShortID(r.task)
	switch {
	case r.stands(v):
		return nil
	case r.decided(v.Attempt) && !(r.last.Verdict == commands.Approve && r.state == commands.Approved && v.Verdict != commands.RequestChanges):
		return commands.Refuse(commands.Conflict, "attempt %d of agent %s was reviewed before: %s by %s at %s", v.Attempt, short, r.last.Verdict, r.last.By, r.last.At.UTC().Format(time.RFC3339))
	case r.state != commands.InReview && r.state != commands.Approved:
		return commands.Refuse(commands.Conflict, "agent %s is %s: there is nothing to review", short, r.state)
	case r.attempt != v.Attempt:
		return commands.Refuse(commands.Conflict, "the review is of attempt %d of agent %s, and attempt %d waits for one", v.Attempt, short, r.attempt)
	case v.Reworks() && *r.reworks >= commands.MaxReworks:
		return commands.Refuse(commands.TooMany, "agent %s was sent back by reviews %d times, which is the limit", short, *r.reworks).Hinting("approve it, or kill it and order it anew")
	}
	return nil
}

// reviewed moves a task by what its reviewer has decided.
func (b *Backlog) reviewed(ctx context.Context, tx *store.Tx, r reviewing, actor string, v commands.Review) (commands.State, error) {
	if _, err := pull(ctx, tx, []string{r.task}); err != nil {
		return "", err
	}
	if err := r.note(ctx, tx, actor, v); err != nil {
		return "", err
	}
	if v.Verdict != commands.RequestChanges && r.state == commands.InReview {
		if err := r.move(ctx, tx, commands.Approved, commands.ByApproval, ""); err != nil {
			return "", err
		}
	}
	switch {
	case v.Verdict == commands.RequestChanges:
		return r.rework(ctx, tx, b, commands.ByChanges, "")
	case v.Verdict == commands.Conflicts:
		return r.rework(ctx, tx, b, commands.ByConflict, commands.MergeConflict)
	case v.Verdict == commands.Approve && r.delivered != nil && r.delivered.Bundle != nil:
		if err := park(ctx, tx, []string{r.task}, string(commands.Approved)); err != nil {
			return "", err
		}
		return b.tellStanding(ctx, tx, r.task)
	}
	return r.complete(ctx, tx, b)
}

// note records what the reviewer of a task has decided.
func (r *reviewing) note(ctx context.Context, tx *store.Tx, actor string, v commands.Review) error {
	last := Reviewed{Attempt: v.Attempt, Verdict: v.Verdict, Message: v.Message, By: v.By}
	if err := tx.QueryRow(ctx, statement("note_review"), r.task, last, v.Reworks()).Scan(&last.At); err != nil {
		return fmt.Errorf("recording the review of task %s: %w", r.task, err)
	}
	r.last = &last
	tx.Audit(store.AuditRow{Actor: actor, Action: "task.review_" + v.Verdict, Object: r.task, Why: fmt.Sprintf("attempt %d, by %s", v.Attempt, v.By), Conn: r.conn})
	return nil
}

// move moves a task that stands nowhere.
func (r *reviewing) move(ctx context.Context, tx *store.Tx, to commands.State, by commands.Trigger, why commands.Reason) error {
	if !commands.May(r.state, to, by) {
		return fmt.Errorf("task %s is %s, and no review makes it %s", r.task, r.state, to)
	}
	if _, err := tx.Exec(ctx, statement("move_reviewed"), r.task, string(to), string(why)); err != nil {
		return fmt.Errorf("moving task %s by its review: %w", r.task, err)
	}
	r.state = to
	return nil
}

// rework queues the next attempt, which goes on with what is to be changed. It spends no retry.
func (r *reviewing) rework(ctx context.Context, tx *store.Tx, b *Backlog, by commands.Trigger, why commands.Reason) (commands.State, error) {
	if err := r.move(ctx, tx, commands.Queued, by, why); err != nil {
		return "", err
	}
	if err := place(ctx, tx, []string{r.task}); err != nil {
		return "", err
	}
	return b.tellStanding(ctx, tx, r.task)
}

// complete ends a task with what it has delivered.
func (r *reviewing) complete(ctx context.Context, tx *store.Tx, b *Backlog) (commands.State, error) {
	if _, err := tx.Exec(ctx, statement("complete_reviewed"), r.task, commands.From(commands.ByMerge)); err != nil {
		return "", fmt.Errorf("completing task %s: %w", r.task, err)
	}
	if err := resolveNow(ctx, tx, []string{r.task}); err != nil {
		return "", err
	}
	ends, err := endedTasks(ctx, tx, []string{r.task})
	if err != nil || len(ends) == 0 {
		return "", errors.Join(err, errors.New("a task that was reviewed is gone"))
	}
	m := ends[0]
	m.told = r.result(m)
	return m.State, b.report(ctx, tx, []Moved{m})
}

// result is what was delivered as the end of its task.
func (r *reviewing) result(m Moved) *commands.Result {
	if r.delivered == nil {
		return m.Result()
	}
	end := *r.delivered
	end.State, end.Reason, end.EndedAt, end.Kill = m.State, m.Reason, m.At, m.kill
	end.Summary = end.Sentence()
	if m.killer != nil && m.State == commands.Cancelled {
		end.Summary += " " + *m.killer
	}
	return &end
}

// reviewed reports whether what a task has delivered is, or was, reviewed: nothing of it runs.
func reviewed(s commands.State) bool { return s == commands.InReview || s == commands.Approved }

// keepDelivered lets the ends of tasks that end in their review tell what they have delivered: that stays to be fetched.
func keepDelivered(ctx context.Context, tx *store.Tx, ends []Moved) error {
	at, asked := map[string]int{}, []string(nil)
	for i, m := range ends {
		if m.Conn != "" {
			at[m.Task], asked = i, append(asked, m.Task)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, statement("delivered"), asked)
	if err != nil {
		return fmt.Errorf("reading what tasks have delivered: %w", err)
	}
	var r reviewing
	if _, err := pgx.ForEachRow(rows, []any{&r.task, &r.delivered}, func() error {
		m := &ends[at[r.task]]
		m.told = r.result(*m)
		r.delivered = nil
		return nil
	}); err != nil {
		return fmt.Errorf("reading what tasks have delivered: %w", err)
	}
	return nil
}

// retell tells who asked for a task how it stands, or has ended.
func (b *Backlog) retell(ctx context.Context, tx *store.Tx, r reviewing) error {
	if !r.state.Terminal() {
		_, err := b.tellStanding(ctx, tx, r.task)
		return err
	}
	if r.delivered == nil || !r.delivered.State.Terminal() {
		return nil
	}
	m := Moved{Task: r.task, Conn: r.conn, Asked: r.asked, State: r.state, Attempt: r.delivered.Attempt, Epoch: r.epoch, told: r.delivered}
	return b.moved(ctx, tx, []Moved{m})
}

// LastReview is the last word of a reviewer on a task; nil = there is none.
func (b *Backlog) LastReview(ctx context.Context, task string) (last *Reviewed, err error) {
	err = b.db.Read(ctx, "looking for the review of task "+task, func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, statement("last_review"), task).Scan(&last)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return last, err
}
