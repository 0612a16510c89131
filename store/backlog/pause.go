package backlog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Pause is the word of a connection, or of this host, whether an agent is to stand still.
type Pause struct {
	Conn    string // whose task it has to be; "" = this host says so
	Task    string
	Number  int64 // of two words that with the higher one counts; 0 = this host's, the next one
	Paused  bool
	Reason  string
	Actor   string
	Expires time.Time // so long it waits for a task that is not here yet
}

// What is told to who asked for a task is bounded.
const (
	maxPauses = 100 // of a task, each of which is told
	maxRetold = 100 // words about one that change nothing and are answered all the same
)

// A PauseRun is a pause whose task an attempt holds: its agent is to stand still, or to go on.
type PauseRun struct {
	Fence  Fence
	Paused bool
}

// Pause notes p and does what can be done at once: what waits is not claimed from then on, or may be again. What runs
// the caller stops or lets go on, by the answer, and tells with [Backlog.MarkPaused]. A word that is older than one
// that is known changes nothing, and neither does one about a task that has ended. It returns how the task stands then.
func (b *Backlog) Pause(ctx context.Context, tx *store.Tx, p Pause) (state commands.State, run *PauseRun, err error) {
	conn, leased, state, err := b.pausable(ctx, tx, p)
	if err != nil || state.Terminal() {
		return state, nil, err
	}
	if !leased && state != "" {
		opened, err := b.openBegun(ctx, tx, []string{p.Task})
		if err != nil {
			return "", nil, err
		}
		if leased = len(opened) > 0; leased {
			state = commands.Claimed
		}
	}
	fresh, err := notePause(ctx, tx, p, conn, state == "")
	switch {
	case err != nil || !fresh:
		return state, nil, err
	case state == "":
		return "", nil, nil
	case leased:
		run, known, err := pauseLease(ctx, tx, p)
		switch {
		case err != nil:
		case known == already:
			err = b.tellAgain(ctx, tx, p.Task, conn)
		case known == doubtful: // else a resume that follows before it is proven would find nothing to tell
			state, err = b.tellStanding(ctx, tx, p.Task)
		}
		return state, run, err
	case p.Paused == (state == commands.Paused):
		return state, nil, b.tellAgain(ctx, tx, p.Task, conn)
	}
	if err := b.pauseWaiting(ctx, tx, p); err != nil {
		return "", nil, err
	}
	state, err = b.tellStanding(ctx, tx, p.Task)
	return state, nil, err
}

// What is known of an agent that is to stand still, or to go on.
const (
	unproven = iota // it does not, as far as is known
	already         // it does
	doubtful        // it stood still, was let go on without a proof, and is to stand still again
)

// pauseLease notes what the agent of an attempt is to do, and says what is known of that.
func pauseLease(ctx context.Context, tx *store.Tx, p Pause) (run *PauseRun, known int, err error) {
	run = &PauseRun{Fence: Fence{Task: p.Task}, Paused: p.Paused}
	does, doubts := false, false
	err = tx.QueryRow(ctx, statement("pause_lease"), p.Task, p.Paused).Scan(&run.Fence.Attempt, &run.Fence.Epoch, &does, &doubts)
	switch {
	case err != nil:
		return nil, unproven, fmt.Errorf("recording what the agent of task %s is to do: %w", p.Task, err)
	case does:
		known = already
	case doubts:
		known = doubtful
	}
	return run, known, nil
}

// pausable holds the task of p as it stands and says so: the state is empty where it is not here yet.
func (b *Backlog) pausable(ctx context.Context, tx *store.Tx, p Pause) (conn string, leased bool, state commands.State, err error) {
	hold := func() error { return holdStanding(ctx, tx, []string{p.Task}) }
	if p.Conn != "" {
		hold = func() error { return b.HoldKills(ctx, tx, p.Conn, []string{p.Task}) }
	}
	if err := hold(); err != nil {
		return "", false, "", err
	}
	times, ends := 0, false
	err = tx.QueryRow(ctx, statement("pausable"), p.Task).Scan(&state, &conn, &leased, &ends, &times)
	switch {
	case err == pgx.ErrNoRows && p.Conn != "":
		return p.Conn, false, "", nil
	case err == pgx.ErrNoRows, err == nil && (conn == "" || p.Conn != "" && p.Conn != conn):
		return "", false, "", unknownTask(p.Task)
	case err != nil:
		return "", false, "", fmt.Errorf("looking up task %s: %w", p.Task, err)
	case p.Paused && ends && !state.Terminal():
		return "", false, "", commands.Refuse(commands.Conflict, "agent %s was killed or cancelled and cannot be paused", commands.ShortID(p.Task)).Hinting("see").Running("status", commands.ShortID(p.Task))
	case p.Paused && times >= maxPauses && !state.Terminal() && state != commands.Paused:
		return "", false, "", commands.Refuse(commands.TooMany, "agent %s was paused %d times, which is the limit", commands.ShortID(p.Task), times)
	case p.Paused && !state.Terminal() && state != commands.Paused && state != commands.Claimed && !commands.May(state, commands.Paused, commands.ByPause):
		return "", false, "", commands.Refuse(commands.Conflict, "agent %s is %s and cannot be paused", commands.ShortID(p.Task), state).Hinting("pause it once it is queued or running")
	}
	return conn, leased, state, nil
}

// notePause reports whether nothing newer is known. Early is a word about a task that is not here yet.
func notePause(ctx context.Context, tx *store.Tx, p Pause, conn string, early bool) (fresh bool, err error) {
	var number *int64
	var until *time.Time
	if p.Number > 0 {
		number = &p.Number
	}
	if early {
		until = &p.Expires
	}
	tag, err := tx.Exec(ctx, statement("note_pause"), p.Task, conn, number, p.Paused, p.Reason, p.Actor, until)
	if err != nil {
		return false, fmt.Errorf("recording the pause of task %s: %w", p.Task, err)
	}
	return tag.RowsAffected() > 0, nil
}

// pauseWaiting moves a task that no attempt holds.
func (b *Backlog) pauseWaiting(ctx context.Context, tx *store.Tx, p Pause) error {
	tasks := []string{p.Task}
	had, err := pull(ctx, tx, tasks)
	if err == nil && len(had) == 0 {
		err = store.ErrRaced
	}
	if err != nil {
		return err
	}
	if p.Paused {
		return parkPaused(ctx, tx, tasks, p.Actor)
	}
	if _, err := tx.Exec(ctx, statement("unpark"), tasks, MainWorkspace, p.Actor, "task.resumed", p.Reason, commands.From(commands.ByResume)); err != nil {
		return fmt.Errorf("letting task %s go on: %w", p.Task, err)
	}
	return place(ctx, tx, tasks)
}

// parkPaused pauses tasks that stand nowhere.
func parkPaused(ctx context.Context, tx *store.Tx, tasks []string, actor string) error {
	if _, err := tx.Exec(ctx, statement("pause_waiting"), tasks, actor); err != nil {
		return fmt.Errorf("pausing tasks: %w", err)
	}
	return park(ctx, tx, tasks, string(commands.Paused))
}

// earlyPauses queues the question which of the list's tasks are to be paused since before they came.
func earlyPauses(tx *store.Tx, list []Request, early map[string]bool) {
	tasks, conns := askedFor(list)
	tx.Queue(statement("early_pauses"), tasks, conns).Query(func(rows pgx.Rows) error {
		var task string
		_, err := pgx.ForEachRow(rows, []any{&task}, func() error { early[task] = true; return nil })
		return err
	})
}

// pauseEarly pauses those of the list's new tasks that are to be since before they came. What had begun before a restore stands still
// when it is taken over.
func (b *Backlog) pauseEarly(ctx context.Context, tx *store.Tx, list []Request, out []Requested, early map[string]bool) error {
	var tasks []string
	for i, r := range list {
		if early[r.Spawn.Task] && out[i].State == commands.Queued && !out[i].Known {
			out[i].State, tasks = commands.Paused, append(tasks, r.Spawn.Task)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, `UPDATE pauses SET early = NULL WHERE task = ANY ($1::uuid[])`, tasks); err != nil {
		return fmt.Errorf("pausing tasks: %w", err)
	}
	opened, err := b.openBegun(ctx, tx, tasks)
	if err != nil {
		return err
	}
	if tasks = without(tasks, opened); len(tasks) == 0 {
		return nil
	}
	if _, err := pull(ctx, tx, tasks); err != nil {
		return err
	}
	return parkPaused(ctx, tx, tasks, "self")
}

// tellAgain tells who asked for a task how it stands, although a word about it changed nothing: who asked may know it
// otherwise, by what this host said after the backup that it was restored from. It is no pause, and leaves all of those that are allowed.
func (b *Backlog) tellAgain(ctx context.Context, tx *store.Tx, task, conn string) error {
	tag, err := tx.Exec(ctx, `UPDATE pauses SET again = again + 1 WHERE task = $1 AND conn = $2 AND again < $3`, task, conn, maxRetold)
	if err != nil {
		return fmt.Errorf("counting what is told of the pauses of task %s: %w", task, err)
	}
	if tag.RowsAffected() > 0 {
		_, err = b.tellStanding(ctx, tx, task)
	}
	return err
}

// tellStanding tells who asked for a task how it stands now, which it returns, and until when it waits for its next attempt.
func (b *Backlog) tellStanding(ctx context.Context, tx *store.Tx, task string) (commands.State, error) {
	m := Moved{Task: task, Stands: true}
	var next *time.Time
	err := tx.QueryRow(ctx, statement("told_standing"), task).Scan(&m.State, &m.Reason, &m.Attempt, &m.Epoch, &m.Conn, &m.Asked.Command, &m.Asked.Digest, &m.At, &next)
	if err != nil {
		return "", fmt.Errorf("looking up task %s: %w", task, err)
	}
	if m.Next = millis(next); m.Conn == "" {
		return m.State, nil
	}
	return m.State, b.moved(ctx, tx, []Moved{m})
}

// PauseHere pauses an agent by the word of its host, or lets it go on, and who asked for it is told. What the host says
// is newer than what its hub has said so far. The run is the caller's to carry out; nil where nothing runs.
func (b *Backlog) PauseHere(ctx context.Context, p Pause) (run *PauseRun, err error) {
	p.Conn, p.Number = "", 0
	act := commands.Pause{Task: p.Task, Number: 1, Paused: p.Paused, Reason: p.Reason}
	if err := act.Validate(); err != nil {
		return nil, err
	}
	err = b.db.Tx(ctx, "pausing task "+p.Task, func(ctx context.Context, tx *store.Tx) error {
		tx.Audit(store.AuditRow{Actor: p.Actor, Action: "task." + act.Word(), Object: p.Task, Why: p.Reason})
		_, run, err = b.Pause(ctx, tx, p)
		return err
	})
	return run, err
}

// MarkPaused records that the agent of an attempt stands still, or goes on, and tells who asked for it. Held is false
// where that is not what it is to do any more, or is recorded already; an attempt that has ended is nothing to record.
func (b *Backlog) MarkPaused(ctx context.Context, r PauseRun) (held bool, err error) {
	err = b.db.Tx(ctx, "recording the pause of task "+r.Fence.Task, func(ctx context.Context, tx *store.Tx) error {
		var workspace string
		held = false
		err := tx.QueryRow(ctx, statement("mark_paused"), r.Fence.Task, r.Fence.Attempt, r.Fence.Epoch, r.Paused).Scan(&workspace)
		if err == pgx.ErrNoRows {
			return nil
		}
		if err != nil {
			return err
		}
		held = true
		action := "task.resumed"
		if r.Paused {
			action = "task.paused"
		}
		tx.Audit(store.AuditRow{Actor: "self", Action: action, Object: r.Fence.Task})
		_, err = b.tellStanding(ctx, tx, r.Fence.Task)
		return err
	})
	return held, err
}

// ToPause returns the attempts of owner whose agents are to stand still, and those that are to go on and are not known to.
func (b *Backlog) ToPause(ctx context.Context, owner string) (list []PauseRun, err error) {
	err = b.db.Read(ctx, "looking for agents that are paused", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, statement("to_pause"), owner)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r PauseRun, err error) {
			return r, row.Scan(&r.Fence.Task, &r.Fence.Attempt, &r.Fence.Epoch, &r.Paused)
		})
		return err
	})
	return list, err
}
