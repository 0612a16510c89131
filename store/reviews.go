package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// An OrderedReview is the last word of this hub on what an agent has delivered, and what its spoke has said to it.
type OrderedReview struct {
	Command string        `json:"command"`
	Attempt int           `json:"attempt"`
	Verdict string        `json:"verdict"`
	Message string        `json:"message,omitempty"`
	By      string        `json:"by"`
	At      time.Time     `json:"at"`
	State   string        `json:"state"` // sent, taken or refused, as [PauseSent]
	Code    commands.Code `json:"code,omitempty"`
	Why     string        `json:"why,omitempty"`   // it was refused
	Again   int           `json:"again,omitempty"` // how often it was sent again after a refusal
}

// ReadReview reads the review of a mirror; nil = there is none.
func ReadReview(raw json.RawMessage) (o *OrderedReview) {
	_ = json.Unmarshal(raw, &o) // this program wrote it
	return o
}

// Stands reports whether o decides about an attempt: its spoke has it, or can have it yet.
func (o *OrderedReview) Stands(attempt int) bool {
	return o != nil && o.Attempt == attempt && (o.State == PauseTaken || o.State == PauseSent && time.Since(o.At) < reviewLife+signing.Skew)
}

// reviewLife is how long a review may take to come to its spoke. Behind it somebody may decide again.
const reviewLife = 7 * 24 * time.Hour

// OrderReview stores what somebody has decided about what an agent has delivered, and sends it. The first word on an attempt counts: a later one
// that says the same is the first, and another one a CONFLICT. It returns the word that stands, and whether it stood before.
func (db *DB) OrderReview(ctx context.Context, v commands.Review) (o *OrderedReview, before bool, err error) {
	err = db.Tx(ctx, "reviewing task "+v.Task, func(ctx context.Context, tx *Tx) error {
		if _, err := tx.Exec(ctx, `SELECT FROM connections WHERE id = (SELECT conn FROM mirrors WHERE task = $1) FOR SHARE`, v.Task); err != nil {
			return err
		}
		found, err := holdMirrors(ctx, tx, []string{v.Task})
		if err != nil {
			return err
		}
		m, known := found[v.Task]
		if !known {
			return commands.Refuse(commands.NotFound, "no agent %s", v.Task)
		}
		var last *OrderedReview
		var attempt int
		if err := tx.QueryRow(ctx, `SELECT review, attempt FROM mirrors WHERE task = $1`, v.Task).Scan(&last, &attempt); err != nil {
			return fmt.Errorf("looking for reviews: %w", err)
		}
		if before = last.Stands(v.Attempt) && v.Repeats(last.Verdict, last.Message); before {
			o = last
			return nil
		}
		if err := reviewable(v, m.state, attempt, last); err != nil {
			return err
		}
		o, err = sendReview(ctx, tx, m.conn, v, 0)
		return err
	})
	return o, before, err
}

// reviewable refuses what the spoke would refuse by what is known here.
func reviewable(v commands.Review, s commands.State, attempt int, last *OrderedReview) error {
	short := commands.ShortID(v.Task)
	merges := v.Verdict == commands.Merged || v.Verdict == commands.Conflicts
	switch {
	case last.Stands(v.Attempt) && !(last.Verdict == commands.Approve && merges):
		return commands.Refuse(commands.Conflict, "attempt %d of agent %s was reviewed before: %s by %s at %s", v.Attempt, short, last.Verdict, last.By, last.At.UTC().Format(time.RFC3339)).Hinting("see").Running("status", short)
	case s != commands.InReview && s != commands.Approved:
		return commands.Refuse(commands.Conflict, "agent %s is %s: there is nothing to review", short, s).Hinting("see").Running("status", short)
	case v.Attempt != attempt:
		return commands.Refuse(commands.Conflict, "the review is of attempt %d of agent %s, and attempt %d waits for one", v.Attempt, short, attempt).Hinting("look at what that has delivered").Running("review", "show", short)
	case merges && s != commands.Approved:
		return commands.Refuse(commands.Conflict, "agent %s is not approved", short).Hinting("approve it before it is merged").Running("review", "approve", short)
	}
	return nil
}

// sendReview sends a review of a task whose mirror is held. What is approved here is so before its spoke has said it: if that says anything
// else, the newest word counts.
func sendReview(ctx context.Context, tx *Tx, conn string, v commands.Review, again int) (*OrderedReview, error) {
	o := OrderedReview{Attempt: v.Attempt, Verdict: v.Verdict, Message: v.Message, By: v.By, State: PauseSent, Again: again}
	if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&o.At); err != nil {
		return nil, err
	}
	o.Command = tx.Send(Draft{Conn: conn, Body: &v, Life: reviewLife})
	tx.Audit(AuditRow{Actor: v.By, Action: "task.review_" + v.Verdict + "_ordered", Object: v.Task, Why: fmt.Sprintf("attempt %d", v.Attempt), Conn: conn})
	_, err := tx.Exec(ctx, `UPDATE mirrors SET review = $2, updated_at = clock_timestamp(), state = CASE WHEN $3 AND state = 'in_review' THEN 'approved' ELSE state END WHERE task = $1`,
		v.Task, o, v.Verdict == commands.Approve)
	if err != nil {
		return nil, fmt.Errorf("recording a review: %w", err)
	}
	return &o, nil
}

// keepReviews notes what spokes say to reviews, after the mirrors were moved, and sends those again that a spoke has lost: it was restored from
// a backup, and says that what was reviewed waits for that.
func keepReviews(ctx context.Context, tx *Tx, from Standing, batch []*Incoming) error {
	var orders, waiting, approved []string
	var said []map[string]any
	var seqs []int64
	for _, m := range batch {
		_, order := m.Effect.(commands.Kind)
		switch {
		case m.Effect == commands.ReviewKind:
			orders, seqs = append(orders, m.Header.Re.ID), append(seqs, m.Header.Seq)
			if b, refused := m.Body.(*commands.RefusedBody); refused {
				said = append(said, noteRefused(b))
			} else {
				said = append(said, map[string]any{"state": PauseTaken})
			}
		case !order && m.Code == "" && waitsForReview(m.Body):
			waiting = append(waiting, m.Task())
		case !order && m.Code == "" && waitsForMerge(m.Body):
			approved = append(approved, m.Task())
		}
	}
	if len(orders) > 0 {
		rows, err := tx.Query(ctx, answerReviews, orders, said, from.ID, string(from.Peer), seqs, behind)
		if err != nil {
			return fmt.Errorf("keeping what became of reviews: %w", err)
		}
		known, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("keeping what became of reviews: %w", err)
		}
		waiting = append(waiting, known...)
	}
	return reviewAgain(ctx, tx, from, waiting, approved)
}

func waitsForReview(b commands.Body) bool {
	switch b := b.(type) {
	case *commands.Result:
		return b.Delivered()
	case *commands.TaskState:
		return b.State == commands.InReview
	}
	return false
}

func waitsForMerge(b commands.Body) bool {
	s, is := b.(*commands.TaskState)
	return is && s.State == commands.Approved
}

// answerReviews takes answers by column. What was approved here waits for its review again where its spoke has refused that. The mirrors are held in the order of their tasks, as everywhere.
// It returns the tasks whose spokes were behind when the review came, and have delivered since: a later report came before the refusal.
const answerReviews = `
	WITH held AS MATERIALIZED (
		SELECT m.task, m.review || u.said AS review, u.said, m.state = 'in_review' AND m.last_seq > u.seq AND u.said->>'code' = ANY ($6) AS known
		FROM unnest($1::uuid[], $2::jsonb[], $5::bigint[]) AS u (command, said, seq) JOIN outbox o ON o.id = u.command AND (o.conn = $3) IS TRUE
		JOIN mirrors m ON m.task = o.task AND (m.conn = o.conn) IS TRUE AND m.review->>'command' = u.command::text ORDER BY m.task FOR UPDATE OF m
	), audited AS (
		INSERT INTO audit (actor, action, object, code, why, conn) SELECT $4, 'task.review_refused', task::text, said->>'code', said->>'why', $3::uuid FROM held WHERE said->>'state' = 'refused'
	), noted AS (
		UPDATE mirrors m SET review = h.review, updated_at = clock_timestamp(),
			state = CASE WHEN m.state = 'approved' AND h.said->>'state' = 'refused' AND h.review->>'verdict' = 'approve' THEN 'in_review' ELSE m.state END FROM held h WHERE m.task = h.task
	)
	SELECT task::text FROM held WHERE known`

// behind are the refusals of a spoke that was restored and does not know yet what it had delivered. A review is sent again after them at most
// mostAgain times: a spoke that has fallen behind for good refuses it each time.
var behind = []commands.Code{commands.UnknownTask, commands.Conflict}

const mostAgain = 3

// reviewAgain sends the reviews again that spokes had taken, or were behind for, of tasks that they say to wait for them: of those that are
// approved, what became of the merge.
func reviewAgain(ctx context.Context, tx *Tx, from Standing, waiting, approved []string) error {
	if len(waiting)+len(approved) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `SELECT task::text, review FROM mirrors WHERE (task = ANY ($1::uuid[]) OR task = ANY ($4::uuid[]) AND review->>'verdict' IN ('merged', 'conflict')) AND (conn = $2) IS TRUE AND NOT is_terminal(state) AND (review->>'state' = $3 OR review->>'code' = ANY ($5) AND coalesce((review->>'again')::int, 0) < $6) AND (review->>'attempt')::int = attempt ORDER BY task FOR UPDATE`,
		waiting, from.ID, PauseTaken, approved, behind, mostAgain)
	if err != nil {
		return fmt.Errorf("looking for reviews that were lost: %w", err)
	}
	var task string
	var o OrderedReview
	var again []commands.Review
	var times []int
	if _, err := pgx.ForEachRow(rows, []any{&task, &o}, func() error {
		again = append(again, commands.Review{Task: task, Attempt: o.Attempt, Verdict: o.Verdict, Message: o.Message, By: o.By})
		if o.State == PauseRefused {
			o.Again++
		}
		times = append(times, o.Again)
		o = OrderedReview{}
		return nil
	}); err != nil {
		return fmt.Errorf("looking for reviews that were lost: %w", err)
	}
	for n, v := range again {
		if _, err := sendReview(ctx, tx, from.ID, v, times[n]); err != nil {
			return err
		}
	}
	return nil
}
