package backlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Kill is the word of a connection that a task of its own is to end.
type Kill struct {
	Conn    string
	Asked   Asked // the message that says so
	Task    string
	Reason  string
	Grace   time.Duration
	Expires time.Time // of the message: so long it forbids a task that is not here yet
	Actor   string
	Cancel  string // see [commands.Kill]

	host bool // the host's own word, not the connection's
}

// reason is what a task that k ends says of itself.
func (k Kill) reason() commands.Reason {
	switch {
	case k.Cancel != "":
		return commands.CancelRequested
	case k.host:
		return commands.Operator
	}
	return commands.KillRequested
}

// A KillRun is a kill whose task runs: the lease is revoked already, Fence is
// the killer's.
type KillRun struct {
	Fence  Fence
	Grace  time.Duration
	Cancel bool // it is a cancel: what ends well meanwhile has completed
	Goes   bool // it is no kill: the agent goes on, and may finish
}

// Why is what the record of an agent's end says of k.
func (k KillRun) Why() string {
	if k.Cancel {
		return "cancelled by order"
	}
	return "killed by order"
}

// HoldKills holds the tasks of several kills, of which [Backlog.NoteKill] notes
// one after the other.
func (b *Backlog) HoldKills(ctx context.Context, tx *store.Tx, conn string, tasks []string) error {
	if err := awaitRequests(ctx, tx, conn); err != nil {
		return err
	}
	return holdStanding(ctx, tx, tasks)
}

// awaitRequests lets requests of a connection come before, with their tasks, or
// after, when they see its kills.
func awaitRequests(ctx context.Context, tx *store.Tx, conn string) error {
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('kill ' || $1, 0))`, conn)
	if err != nil {
		return fmt.Errorf("waiting for requests of the connection: %w", err)
	}
	return nil
}

// NoteKill records a kill and holds its task as it is until the commit. The
// state is empty when the task is not here yet: a request for it is refused from
// now on. A task of somebody else is UNKNOWN_TASK.
func (b *Backlog) NoteKill(ctx context.Context, tx *store.Tx, k Kill) (commands.State, error) {
	if err := b.HoldKills(ctx, tx, k.Conn, []string{k.Task}); err != nil {
		return "", err
	}
	var state commands.State
	var foreign bool
	err := tx.QueryRow(ctx, `SELECT state, conn IS DISTINCT FROM $2 FROM standing WHERE id = $1`, k.Task, k.Conn).Scan(&state, &foreign)
	tombstone := err == pgx.ErrNoRows
	switch {
	case err != nil && !tombstone:
		return "", fmt.Errorf("looking up task %s: %w", k.Task, err)
	case foreign:
		return "", unknownTask(k.Task)
	}
	_, err = tx.Exec(ctx, `INSERT INTO kills (conn, command, digest, task, reason, grace, exp, tombstone, cancel) VALUES ($1, $2, decode($3, 'hex'), $4, $5, $6, $7, $8, $9)`,
		k.Conn, k.Asked.Command, k.Asked.Digest, k.Task, k.Reason, k.Grace, k.Expires, tombstone, k.Cancel)
	if err != nil {
		return "", fmt.Errorf("recording the kill of task %s: %w", k.Task, err)
	}
	return state, nil
}

func unknownTask(task string) error {
	return commands.Refuse(commands.UnknownTask, "no task %s of yours here", task)
}

// Kill does what can be done at once about a task that NoteKill found in state:
// one that has ended is told once more, one that does not run is cancelled, and
// one that runs loses its lease, so that nothing its worker writes counts any
// more. That one the caller ends, by the answer. So does one whose last attempt had begun before a restore, where it waits or
// an earlier attempt is open.
func (b *Backlog) Kill(ctx context.Context, tx *store.Tx, k Kill, state commands.State) (*KillRun, error) {
	waits := commands.May(state, commands.Cancelled, commands.ByCancel) || reviewed(state)
	if state == commands.AwaitingInput || state == commands.Paused {
		leased, err := isLeased(ctx, tx, k.Task)
		if err != nil {
			return nil, err
		}
		waits = !leased
	}
	if !state.Terminal() {
		opened, err := b.takeBegun(ctx, tx, []string{k.Task})
		if err != nil {
			return nil, err
		}
		waits = waits && len(opened) == 0
	}
	switch {
	case state.Terminal():
		return nil, b.reportKills(ctx, tx, k.Task)
	case waits:
		done, err := b.cancelWaiting(ctx, tx, k.Actor, []string{k.Task}, k.reason())
		if err != nil {
			return nil, err
		}
		return nil, b.failDependents(ctx, tx, done)
	case k.Cancel == commands.CancelAfter:
		return b.letFinish(ctx, tx, k)
	}
	return revokeLease(ctx, tx, k)
}

// letFinish makes the attempt of a task the last one. An agent that stands still goes on, else it would never end. Who asked for the task
// is told with the first such word that it is cancelled: a hub that is restored may not know that it has said so.
func (b *Backlog) letFinish(ctx context.Context, tx *store.Tx, k Kill) (*KillRun, error) {
	var paused, first bool
	var conn string
	err := tx.QueryRow(ctx, statement("last_attempt"), k.Task).Scan(&paused, &conn, &first)
	if err != nil {
		return nil, fmt.Errorf("making the attempt of task %s the last one: %w", k.Task, err)
	}
	if !paused {
		if first && conn != "" {
			_, err = b.tellStanding(ctx, tx, k.Task)
		}
		return nil, err
	}
	p := Pause{Task: k.Task, Reason: "it was cancelled", Actor: k.Actor}
	if _, err := notePause(ctx, tx, p, conn, false); err != nil {
		return nil, err
	}
	run, _, err := pauseLease(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	return &KillRun{Fence: run.Fence, Goes: true}, nil
}

// reportKills answers kills of a task that had ended before they came.
func (b *Backlog) reportKills(ctx context.Context, tx *store.Tx, task string) error {
	facts, err := endedTasks(ctx, tx, []string{task})
	if err != nil {
		return err
	}
	for i := range facts {
		facts[i].Before, facts[i].killed = true, true
	}
	if err := b.findKills(ctx, tx, facts); err != nil {
		return err
	}
	return b.moved(ctx, tx, facts)
}

// revokeLease takes a running task from its worker. The killer's fence is the
// new epoch.
func revokeLease(ctx context.Context, tx *store.Tx, k Kill) (*KillRun, error) {
	run := &KillRun{Fence: Fence{Task: k.Task}, Grace: k.Grace}
	err := tx.QueryRow(ctx, statement("revoke_lease"), k.Task).Scan(&run.Fence.Attempt, &run.Fence.Epoch, &run.Cancel)
	if err != nil {
		return nil, fmt.Errorf("revoking the lease of task %s: %w", k.Task, err)
	}
	return run, nil
}

// PendingKill returns the kill that was asked for a task whose lease it took,
// with the fence that ends it. ok is false when there is none.
func (b *Backlog) PendingKill(ctx context.Context, task string) (k KillRun, ok bool, err error) {
	err = b.db.Read(ctx, "looking for kills of task "+task, func(ctx context.Context, conn *pgxpool.Conn) error {
		k = KillRun{Fence: Fence{Task: task}}
		return conn.QueryRow(ctx, statement("pending_kill"), task).
			Scan(&k.Fence.Attempt, &k.Fence.Epoch, &k.Grace, &k.Cancel)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return k, false, nil
	}
	return k, err == nil, err
}

// RevokeWork ends what connection conn asked for, in the transaction that ends
// the connection: what waits is cancelled, what was claimed loses its lease and is
// found by [Backlog.RevokedRuns]. What had begun before a restore runs. Without kill what runs keeps it, and is not tried
// again after its end. Results are kept and not sent.
func (b *Backlog) RevokeWork(ctx context.Context, tx *store.Tx, conn string, kill bool) error {
	held, err := collect[string](tx.Query(ctx, `SELECT task::text FROM leases WHERE conn = $1 ORDER BY task FOR UPDATE`, conn))
	if err != nil {
		return fmt.Errorf("looking for the attempts of a revoked connection: %w", err)
	}
	waiting, err := collect[string](tx.Query(ctx, `
		SELECT t.id::text FROM agents a JOIN tasks t ON t.id = a.id WHERE a.conn = $1 AND NOT a.over AND NOT is_terminal(t.state) AND NOT t.id = ANY ($2::uuid[]) ORDER BY a.id FOR NO KEY UPDATE OF t`, conn, held))
	if err != nil {
		return fmt.Errorf("looking for the work of a revoked connection: %w", err)
	}
	begun, err := b.takeBegun(ctx, tx, slices.Concat(waiting, held))
	if err != nil {
		return err
	}
	if waiting = without(waiting, begun); len(waiting) > 0 {
		done, err := b.cancelWaiting(ctx, tx, "self", waiting, commands.LinkRevoked)
		if err != nil {
			return err
		}
		if len(done) < len(waiting) { // a claim was faster: its leases are there now, and out of turn
			rest := without(waiting, done)
			if err := holdMore(ctx, tx, rest); err != nil {
				return err
			}
			held = append(held, rest...)
		}
		if err := b.failDependents(ctx, tx, done); err != nil {
			return err
		}
	}
	if held = append(without(held, begun), begun...); !kill {
		if _, err := tx.Exec(ctx, statement("last_attempts"), held, begun); err != nil {
			return fmt.Errorf("making the attempts of a connection the last ones: %w", err)
		}
	}
	if _, err = tx.Exec(ctx, statement("revoke_leases"), held, kill, begun); err != nil {
		return fmt.Errorf("revoking the leases of a connection: %w", err)
	}
	if _, err = tx.Exec(ctx, statement("left_revoked"), conn); err != nil {
		return fmt.Errorf("keeping here what was to be brought to a revoked connection: %w", err)
	}
	return nil
}

// without returns those of all that are not in some.
func without(all, some []string) []string {
	leave := make(map[string]bool, len(some))
	for _, s := range some {
		leave[s] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return leave[s] })
}

func collect[T any](rows pgx.Rows, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

// RevokedRuns returns what runs for conn and has lost its lease to its end.
func (b *Backlog) RevokedRuns(ctx context.Context, conn string) ([]KillRun, error) {
	var list []KillRun
	err := b.db.Read(ctx, "looking for the runs of a revoked connection", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, `SELECT task::text, attempt, epoch FROM leases WHERE conn = $1 AND is_kill(reason)`, conn)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (KillRun, error) {
			k := KillRun{Grace: 10 * time.Second}
			return k, row.Scan(&k.Fence.Task, &k.Fence.Attempt, &k.Fence.Epoch)
		})
		return err
	})
	return list, err
}
