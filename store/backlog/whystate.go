package backlog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// whyState says what the state of a task keeps from being claimed.
func (ws *Workspace) whyState(ctx context.Context, tx *store.Tx, w *Why) error {
	t := w.Task
	switch {
	case t.State == commands.Queued:
	case t.State.Terminal():
		return ws.whyEnded(ctx, tx, w)
	case t.State == commands.Blocked:
		return ws.whyParked(ctx, tx, w, "unblock")
	case t.State == commands.Paused && t.Kind == AgentKind:
		return ws.whyPausedAgent(ctx, tx, w)
	case t.State == commands.Paused:
		return ws.whyParked(ctx, tx, w, "resume")
	case t.State == commands.InReview:
		w.add(commands.CauseReview, "", &t.UpdatedAt, nil, "it is delivered, and waits for its review")
	case t.State == commands.Approved:
		w.add(commands.CauseReview, "", &t.UpdatedAt, nil, "its review has passed, and it waits for its merge")
	case t.State == commands.AwaitingInput:
		w.add(commands.CauseQuestion, commands.Line("inbox"), &t.UpdatedAt, nil, "it waits for the answer to a question")
	case t.Owner != "":
		return ws.whyClaimed(ctx, tx, w)
	default:
		w.add(commands.CauseState, "", &t.UpdatedAt, nil, "it is %s", t.State)
	}
	return nil
}

// whyClaimed says who holds a task, or that a claim of it has run out: whoever claims next has the task then. What the
// instance's own spoke runs it keeps, also with a claim that has run out.
func (ws *Workspace) whyClaimed(ctx context.Context, tx *store.Tx, w *Why) error {
	t := w.Task
	err := tx.QueryRow(ctx, `SELECT until <= statement_timestamp() AND owner <> $2 FROM leases WHERE task = $1`, t.ID, string(ws.backlog.db.Self())).Scan(&w.lapsed)
	switch {
	case err != nil && err != pgx.ErrNoRows:
		return fmt.Errorf("reading until when a claim lasts: %w", err)
	case w.lapsed:
		w.add(commands.CauseLease, commands.Line("backlog", "reclaim", "--id", t.Name()), t.LeaseUntil, nil, "the claim of %s ran out; the next claim takes it", t.Owner)
	default:
		w.add(commands.CauseLease, "", t.ClaimedAt, t.LeaseUntil, "%s holds it with attempt %d", t.Owner, t.Attempts)
	}
	return nil
}

// whyParked says who has paused or blocked a task, and with which words; verb lets it go on.
func (ws *Workspace) whyParked(ctx context.Context, tx *store.Tx, w *Why, verb string) error {
	t := w.Task
	by, words, err := lastWord(ctx, tx, t)
	if err != nil {
		return err
	}
	w.words = words
	w.add(commands.CauseState, commands.Line("backlog", verb, t.Name()), &t.UpdatedAt, nil, "it is %s%s until somebody %ss it%s", t.State, by, verb, because(commands.OneLine(words)))
	return nil
}

// whyPausedAgent says who has paused an agent of a hub, and with which words: its hub or this host, whose word was the newest.
func (ws *Workspace) whyPausedAgent(ctx context.Context, tx *store.Tx, w *Why) error {
	t, by, since := w.Task, "", w.Task.UpdatedAt
	err := tx.QueryRow(ctx, `SELECT ' by ' || CASE p.actor WHEN c.peer THEN c.peer_name ELSE p.actor END, p.reason, p.at
		FROM tasks t JOIN pauses p ON p.task = t.id AND p.conn = t.conn JOIN connections c ON c.id = p.conn WHERE t.id = $1 AND p.paused`, t.ID).Scan(&by, &w.words, &since)
	if err != nil && err != pgx.ErrNoRows {
		return fmt.Errorf("reading who has paused task %s: %w", t.ID, err)
	}
	w.add(commands.CauseState, commands.Line("resume", commands.ShortID(t.ID)), &since, nil, "it is paused%s until somebody resumes it%s", by, because(commands.OneLine(w.words)))
	return nil
}

// maxEndRows is how many of the newest audit rows of a task are looked at for how it came into its state: what is done to it
// later leaves few.
const maxEndRows = 20

// lastWord finds in the audit by whom, as in " by ann", and with which words a task came into its state; both are empty where
// the audit does not have it any more.
func lastWord(ctx context.Context, tx *store.Tx, t Task) (by, words string, err error) {
	rows, err := store.AuditHere(ctx, tx, t.ID, 0, maxEndRows)
	for _, r := range slices.Backward(rows) {
		who, done, _ := strings.Cut(r.Action, ".")
		if done != string(t.State) || !slices.Contains([]string{"operator", "worker", "task"}, who) {
			continue
		}
		if who != "task" {
			words = r.Why
		}
		return " by " + r.Actor, words, err
	}
	return "", "", err
}

// whyEnded says how a task has ended, by whom, and with which words.
func (ws *Workspace) whyEnded(ctx context.Context, tx *store.Tx, w *Why) error {
	t, fix := w.Task, ""
	if t.State != commands.Completed && t.Kind != AgentKind {
		fix = commands.Line("backlog", "retry", t.Name())
	}
	by, words, err := lastWord(ctx, tx, t)
	if err != nil {
		return err
	}
	w.words = words
	if w.words == "" && t.State == commands.Failed && t.LastError != nil {
		w.words = t.LastError.Text
	}
	said := string(t.State) + by
	if t.Reason != "" && t.Reason != commands.Operator && t.Reason != commands.CancelRequested {
		said += " (" + string(t.Reason) + ")"
	}
	w.add(commands.CauseEnded, fix, t.EndedAt, nil, "it has ended: %s%s", said, because(commands.OneLine(w.words)))
	return nil
}

// WithoutWords is w without what somebody has said of the end of the task, or why it is to wait, for who may not see what tasks are about.
func (w Why) WithoutWords() Why {
	w.Reasons = slices.Clone(w.Reasons)
	for i, r := range w.Reasons {
		if r.Code == commands.CauseEnded || r.Code == commands.CauseState {
			w.Reasons[i].Text = strings.TrimSuffix(r.Text, because(commands.OneLine(w.words)))
		}
	}
	return w
}
