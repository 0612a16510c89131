package backlog

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Request is a task that a connection asks for, to be run by the instance's
// own spoke.
type Request struct {
	Conn    string
	Asked   Asked
	Spawn   *commands.Spawn
	Expires time.Time // its last moment to be started
	Account string    // whose limits it meets; "" = nobody's
}

// A Requested says what became of a request.
type Requested struct {
	State   commands.State
	Known   bool              // it was here already, with the same content
	Attempt int               // its last one
	Started int64             // when the first one started, in ms since 1970; 0 = none has
	Result  *commands.Result  // how it had ended before; nil = it has not
	Epoch   int64             // of that end
	Refusal *commands.Refused // why it is not taken; nil = it is here
}

// Request adds tasks, with places where they can be claimed. One that is here
// already keeps its state and may be started until the later end, and what is told of
// it answers the new request from then on: who asks again knows nothing of the first
// one. One that was killed before it
// arrived is refused with TOMBSTONE, one whose id another task has with TASK_CONFLICT.
func (b *Backlog) Request(ctx context.Context, tx *store.Tx, list []Request) ([]Requested, error) {
	refused, err := b.overfull(ctx, tx, list)
	if err != nil {
		return nil, err
	}
	var rest []Request
	for i, r := range list {
		if refused[i] == nil {
			rest = append(rest, r)
		}
	}
	taken, err := b.request(ctx, tx, rest)
	if err != nil {
		return nil, err
	}
	out := make([]Requested, len(list))
	for i := range list {
		if refused[i] != nil {
			out[i].Refusal = refused[i]
			continue
		}
		out[i], taken = taken[0], taken[1:]
	}
	return out, nil
}

// request is Request of what is not too much.
func (b *Backlog) request(ctx context.Context, tx *store.Tx, list []Request) ([]Requested, error) {
	out := make([]Requested, len(list))
	if len(list) == 0 {
		return out, nil
	}
	buried, fresh, early := map[string]string{}, map[string]bool{}, map[string]bool{}
	tombstones(tx, list, buried)
	earlyPauses(tx, list, early)
	if err := b.insertRequests(ctx, tx, list, false, fresh); err != nil {
		return nil, err
	}
	if err := tx.Flush(ctx); err != nil {
		return nil, err
	}
	if err := b.unbury(ctx, tx, list, buried, fresh, early); err != nil {
		return nil, err
	}
	var again []int
	var came []string
	for i, r := range list {
		why, dead := buried[r.Spawn.Task]
		switch {
		case fresh[r.Spawn.Task]:
			delete(fresh, r.Spawn.Task) // a second one in the same list is a repeat
			out[i].State = commands.Queued
			came = append(came, r.Spawn.Task)
		case dead:
			out[i].Refusal = commands.Refuse(commands.Tombstone, "the task was killed before it arrived: %s", why)
		default:
			again = append(again, i)
		}
	}
	if err := b.awaitInputs(ctx, tx, list, came); err != nil {
		return nil, err
	}
	if err := b.pauseEarly(ctx, tx, list, out, early); err != nil {
		return nil, err
	}
	if _, err := b.openBegun(ctx, tx, came); err != nil {
		return nil, err
	}
	return out, requestAgain(ctx, tx, list, again, out)
}

// requestAgain answers those of the list's requests whose tasks are here already.
func requestAgain(ctx context.Context, tx *store.Tx, list []Request, which []int, out []Requested) (err error) {
	tasks := make([]string, len(which))
	for n, i := range which {
		tasks[n] = list[i].Spawn.Task
	}
	if err := holdMore(ctx, tx, tasks); err != nil {
		return err
	}
	for _, i := range which {
		if out[i], err = known(ctx, tx, list[i]); err != nil {
			return err
		}
	}
	return nil
}

// askedFor are the tasks of requests, and whose they are.
func askedFor(list []Request) (tasks, conns []string) {
	for _, r := range list {
		tasks, conns = append(tasks, r.Spawn.Task), append(conns, r.Conn)
	}
	return tasks, conns
}

// tombstones queues the question why those of the list's tasks that are not here yet
// were killed.
func tombstones(tx *store.Tx, list []Request, buried map[string]string) {
	tasks, conns := askedFor(list)
	// A statement of its own, so that the next ones see every kill that was first.
	tx.Queue(`SELECT pg_advisory_xact_lock_shared(hashtextextended('kill ' || c, 0)) FROM (SELECT DISTINCT c FROM unnest($1::text[]) AS c ORDER BY c) AS conns`, conns)
	tx.Queue(statement("tombstones"), tasks, conns).Query(func(rows pgx.Rows) error {
		var task, reason string
		if _, err := pgx.ForEachRow(rows, []any{&task, &reason}, func() error { buried[task] = reason; return nil }); err != nil {
			return fmt.Errorf("looking for tombstones: %w", err)
		}
		return nil
	})
}

// insertRequests queues the insertion of tasks that were not killed before they
// arrived, or of all, their bodies and their places in ready, and says which were new.
func (b *Backlog) insertRequests(ctx context.Context, tx *store.Tx, list []Request, all bool, fresh map[string]bool) error {
	var id, conn, title, command []string
	var classes, priority, retries, losses []int
	var backoff []int64
	var digest, spec [][]byte
	var expires []time.Time
	for _, r := range list {
		s := r.Spawn
		class, err := b.classes.of(ctx, tx, MainWorkspace, r.class())
		if err != nil {
			return err
		}
		raw, err := json.Marshal(s)
		if err != nil {
			return err
		}
		sum, err := hex.DecodeString(r.Asked.Digest)
		if err != nil {
			return err
		}
		id, conn, title = append(id, s.Task), append(conn, r.Conn), append(title, s.Title)
		command, digest = append(command, r.Asked.Command), append(digest, sum)
		classes, priority, retries = append(classes, class), append(priority, s.Priority), append(retries, s.MaxRetries)
		losses, backoff = append(losses, s.Losses()), append(backoff, s.BackoffMS)
		spec, expires = append(spec, raw), append(expires, r.Expires)
	}
	tx.Queue(statement("request_tasks"), id, conn, title, command, digest, classes, priority, retries, spec, expires, losses, DefaultLane, MainWorkspace, backoff, all).Query(func(rows pgx.Rows) error {
		task := ""
		if _, err := pgx.ForEachRow(rows, []any{&task}, func() error { fresh[task] = true; return nil }); err != nil {
			return fmt.Errorf("filling the backlog: %w", err)
		}
		return nil
	})
	return nil
}

// class is what the request shares with others that the same claimers may have.
func (r Request) class() classSpec {
	list := slices.Compact(slices.Sorted(slices.Values(r.Spawn.Capabilities)))
	if list == nil {
		list = []string{}
	}
	return classSpec{lane: DefaultLane, kind: AgentKind, capabilities: list, account: r.Account, conn: r.Conn, sizes: sizes{}}
}

// known answers a request whose task is in the backlog already, and is held.
func known(ctx context.Context, tx *store.Tx, r Request) (Requested, error) {
	raw, err := json.Marshal(r.Spawn)
	if err != nil {
		return Requested{}, err
	}
	out := Requested{Known: true}
	var same bool
	err = tx.QueryRow(ctx, statement("request_again"), r.Spawn.Task, r.Conn, raw, r.Asked.Command, r.Asked.Digest, r.Expires).Scan(&out.State, &out.Attempt, &out.Started, &out.Epoch, &out.Result, &same)
	if err != nil {
		return out, fmt.Errorf("looking up task %s: %w", r.Spawn.Task, err)
	}
	if !same {
		return Requested{Refusal: Conflicts(r.Spawn.Task)}, nil
	}
	return out, nil
}

// Conflicts refuses a request whose id another task has.
func Conflicts(task string) *commands.Refused {
	return commands.Refuse(commands.TaskConflict, "task %s is here already with other content", task)
}

// Known reports whether a task that conn asked for is here.
func (b *Backlog) Known(ctx context.Context, conn, task string) (known bool, err error) {
	err = b.db.Read(ctx, "looking up task "+task, func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, isKnown, task, conn).Scan(&known)
	})
	return known, err
}

// KnownIn is Known inside a transaction.
func KnownIn(ctx context.Context, tx *store.Tx, conn, task string) (known bool, err error) {
	if err = tx.QueryRow(ctx, isKnown, task, conn).Scan(&known); err != nil {
		return false, fmt.Errorf("looking up task %s: %w", task, err)
	}
	return known, nil
}

// Killed reports whether conn has killed a task that is not here.
func (b *Backlog) Killed(ctx context.Context, conn, task string) (killed bool, err error) {
	err = b.db.Read(ctx, "looking for a kill of task "+task, func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM kills WHERE task = $1 AND conn = $2) AND NOT EXISTS (SELECT FROM tasks WHERE id = $1)`, task, conn).Scan(&killed)
	})
	return killed, err
}

const isKnown = `SELECT EXISTS (SELECT FROM tasks WHERE id = $1 AND conn = $2)`

// Standing returns how a task that conn asked for stands now. One that is not
// here, or is somebody else's, is UNKNOWN_TASK.
func (b *Backlog) Standing(ctx context.Context, tx *store.Tx, conn, task string) (Moved, error) {
	m := Moved{Task: task, Conn: conn}
	err := tx.QueryRow(ctx, `SELECT state, reason, attempt, epoch, (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM standing WHERE id = $1 AND conn = $2`,
		task, conn).Scan(&m.State, &m.Reason, &m.Attempt, &m.Epoch, &m.At)
	if err == pgx.ErrNoRows {
		return m, unknownTask(task)
	}
	if err != nil {
		return m, fmt.Errorf("looking up task %s: %w", task, err)
	}
	return m, nil
}
