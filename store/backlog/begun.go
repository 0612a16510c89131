package backlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A database that was restored from a backup may have a task as waiting that began an attempt since, which runs. To end such a task,
// or to park it, would say what is not so. So before a word about it is carried out, its attempt is opened, as one of this instance's
// spoke, and the word is carried out on that: the spoke takes it over. So it is as soon as somebody tells of the attempt, and where the one
// before it ends. No claim could do that in time: it may have no slot, the task may wait out a backoff, and the connection may be frozen or
// have ended. An agent whose lease nobody renews is ended by its shim.

// begun is what this process knows of such attempts. Where the database was never restored it is empty.
type begun struct {
	restored atomic.Bool
	most     time.Duration  // how long one look takes; 0 = lookFor
	mu       sync.Mutex     // guards what follows
	last     map[string]int // the last attempt of a task, as this host has found it
	next     string         // the task that the next look at many begins with
	opened   map[string]int // the attempts of tasks that were opened, or are about to be, and that nobody has taken over yet
}

// Restored reports whether this database was ever restored from a backup, as far as is known.
func (b *Backlog) Restored() bool { return b.begun.restored.Load() }

const lookForRestore = `SELECT EXISTS (SELECT FROM recalled) OR EXISTS (SELECT FROM sequences WHERE base > 0)`

// LookForRestore finds out whether this database was ever restored from a backup.
func (b *Backlog) LookForRestore(ctx context.Context) error {
	var is bool
	err := b.db.Read(ctx, "looking for a restore", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, lookForRestore).Scan(&is)
	})
	if is {
		b.begun.restored.Store(true)
	}
	return err
}

// ErrUntold is a fault of this host that keeps what it has of one task from being told, and tells nothing of another.
var ErrUntold = errors.New("by a fault of this host")

// begunNow looks for attempts of tasks that had begun before a restore, on this host too, and returns the last one of each that has one and
// waits as far as is known, and why some cannot be told now. Few are asked for at once: it reads a directory for each. The transaction may
// be of a workspace.
func (b *Backlog) begunNow(ctx context.Context, tx *store.Tx, tasks []string) (last map[string]int, untold map[string]error, err error) {
	if !b.Restored() {
		var is bool
		if err := tx.QueryRow(ctx, lookForRestore).Scan(&is); err != nil || !is {
			return nil, nil, err
		}
		b.begun.restored.Store(true)
	}
	if b.Found != nil {
		conns, err := connsOf(ctx, tx, tasks)
		if err != nil {
			return nil, nil, err
		}
		if untold, err = b.lookHere(conns); err != nil {
			return nil, nil, err
		}
	}
	last, err = lastBegun(ctx, tx, tasks, b.begun.found(tasks))
	return last, untold, err
}

// lookFor is how long one transaction looks at a disk: what it holds waits for it.
const lookFor = 5 * time.Second

// errSlow is why a look has no time for some tasks: the next one begins with them.
var errSlow = fmt.Errorf("%w: its disk is too slow to look for all", ErrUntold)

// BegunHere returns the last attempts of tasks of conn that this host has found, now or before, and why some cannot be told now. It takes as
// long as one look.
func (b *Backlog) BegunHere(conn string, tasks []string) (last map[string]int, untold map[string]error, err error) {
	conns := map[string]string{}
	for _, task := range tasks {
		conns[task] = conn
	}
	if untold, err = b.lookHere(conns); err != nil {
		return nil, nil, err
	}
	last = map[string]int{}
	for i, n := range b.begun.found(tasks) {
		last[tasks[i]] = n
	}
	return last, untold, nil
}

// lookHere notes what this host has of tasks, whose connections are given, and returns why some cannot be told.
func (b *Backlog) lookHere(conns map[string]string) (untold map[string]error, err error) {
	untold = map[string]error{}
	tasks, began := b.begun.inTurn(conns), time.Now()
	for i, task := range tasks {
		if i > 0 && time.Since(began) > cmp.Or(b.begun.most, lookFor) {
			b.begun.stopAt(task)
			for _, late := range tasks[i:] {
				untold[late] = errSlow
			}
			break
		}
		last, err := b.Found(conns[task], task)
		switch {
		case errors.Is(err, ErrUntold):
			untold[task] = err
		case err != nil:
			return nil, err
		}
		b.NoteBegun(task, last)
	}
	return untold, nil
}

// inTurn are the tasks of conns, from where the last look that had no time for all has stopped.
func (g *begun) inTurn(conns map[string]string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	tasks := slices.Sorted(maps.Keys(conns))
	at, _ := slices.BinarySearch(tasks, g.next)
	return slices.Concat(tasks[at:], tasks[:at])
}

// stopAt notes that a look has had no time for a task, and for those after it.
func (g *begun) stopAt(task string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next = task
}

// connsOf returns the connections that those of tasks are of which any has asked for.
func connsOf(ctx context.Context, tx *store.Tx, tasks []string) (map[string]string, error) {
	rows, err := tx.Query(ctx, `SELECT id::text, conn::text FROM tasks WHERE id = ANY ($1::uuid[]) AND conn IS NOT NULL`, tasks)
	if err != nil {
		return nil, fmt.Errorf("looking who asked for tasks: %w", err)
	}
	conns, task, conn := map[string]string{}, "", ""
	_, err = pgx.ForEachRow(rows, []any{&task, &conn}, func() error { conns[task] = conn; return nil })
	if err != nil {
		return nil, fmt.Errorf("looking who asked for tasks: %w", err)
	}
	return conns, nil
}

// NoteBegun notes the last attempt of a task of which this host has found something; 0 = there is nothing.
func (b *Backlog) NoteBegun(task string, attempt int) {
	if attempt == 0 {
		return
	}
	b.begun.mu.Lock()
	defer b.begun.mu.Unlock()
	if b.begun.last == nil {
		b.begun.last = map[string]int{}
	}
	b.begun.last[task] = max(attempt, b.begun.last[task])
}

// A WaitingAgent is an agent that no attempt holds, as far as is known here.
type WaitingAgent struct {
	Task    string
	Attempt int // its last one; 0 = none
}

// WaitingAgents returns those that conn asked for, 1000 at most, with ids above after; "" = from the first one on.
func (b *Backlog) WaitingAgents(ctx context.Context, conn, after string) (list []WaitingAgent, err error) {
	err = b.db.Read(ctx, "looking for agents that wait", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, statement("waiting_agents"), conn, after)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[WaitingAgent])
		return err
	})
	return list, err
}

// Opened reports whether attempts may be open that nobody has taken over yet. It is so before the commit that opens them.
func (b *Backlog) Opened() bool {
	if !b.Restored() {
		return false
	}
	b.begun.mu.Lock()
	defer b.begun.mu.Unlock()
	return len(b.begun.opened) > 0
}

// TakenOver notes that somebody follows an attempt of a task.
func (b *Backlog) TakenOver(task string, attempt int) {
	b.begun.mu.Lock()
	defer b.begun.mu.Unlock()
	if b.begun.opened[task] <= attempt {
		delete(b.begun.opened, task)
	}
	if b.begun.last[task] <= attempt {
		delete(b.begun.last, task)
	}
}

// found are the attempts that were noted of tasks.
func (g *begun) found(tasks []string) []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]int, len(tasks))
	for i, task := range tasks {
		list[i] = g.last[task]
	}
	return list
}

func (g *begun) open(tasks []string, last map[string]int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = map[string]int{}
	}
	for _, task := range tasks {
		g.opened[task] = last[task]
	}
}

// aside are the states of a task that waits for a word; [commands.Queued] is that of all others that wait.
var aside = []commands.State{commands.Paused, commands.AwaitingInput, commands.Blocked, commands.InReview, commands.Approved}

// openBegun opens the attempts of those of tasks that have begun one before a restore and wait as far as is known, and returns these
// tasks. The caller holds all of them.
func (b *Backlog) openBegun(ctx context.Context, tx *store.Tx, tasks []string) ([]string, error) {
	if !b.Restored() || len(tasks) == 0 {
		return nil, nil
	}
	last, err := lastBegun(ctx, tx, tasks, b.begun.found(tasks))
	if err != nil || len(last) == 0 {
		return nil, err
	}
	list := slices.Sorted(maps.Keys(last))
	if list, err = pull(ctx, tx, list); err != nil || len(list) == 0 {
		return nil, err
	}
	before := attemptsBefore(list, last)
	b.begun.open(list, last)
	tx.Queue(statement("unpark"), list, MainWorkspace, "self", "task.resumed", wentOn, aside)
	tx.Queue(statement("bring_forward"), list, before)
	tx.Queue(statement("open_begun"), list, DefaultLease)
	if err := tx.Flush(ctx); err != nil {
		return nil, fmt.Errorf("opening attempts that had begun: %w", err)
	}
	return list, nil
}

// attemptsBefore are the attempts before the last ones of tasks.
func attemptsBefore(tasks []string, last map[string]int) []int {
	before := make([]int, len(tasks))
	for i, task := range tasks {
		before[i] = last[task] - 1
	}
	return before
}

// lastBegun returns the last attempts of those of tasks that have begun one that is not known here.
func lastBegun(ctx context.Context, tx *store.Tx, tasks []string, found []int) (map[string]int, error) {
	rows, err := tx.Query(ctx, statement("begun"), tasks, found)
	if err != nil {
		return nil, fmt.Errorf("looking for attempts that had begun: %w", err)
	}
	last, task, attempt := map[string]int{}, "", 0
	_, err = pgx.ForEachRow(rows, []any{&task, &attempt}, func() error { last[task] = attempt; return nil })
	if err != nil {
		return nil, fmt.Errorf("looking for attempts that had begun: %w", err)
	}
	return last, nil
}

// unbury takes in those of the list's tasks that were killed before they arrived, and that had begun before a restore: where they were
// refused, their agents would run on. They are fresh then, and neither buried nor to be paused.
func (b *Backlog) unbury(ctx context.Context, tx *store.Tx, list []Request, buried map[string]string, fresh, early map[string]bool) error {
	if !b.Restored() || len(buried) == 0 {
		return nil
	}
	list = slices.DeleteFunc(slices.Clone(list), func(r Request) bool { _, dead := buried[r.Spawn.Task]; return !dead })
	tasks, conns := askedFor(list)
	begun, err := collect[string](tx.Query(ctx, statement("begun_elsewhere"), tasks, b.begun.found(tasks), conns))
	if err != nil || len(begun) == 0 {
		return err
	}
	list = slices.DeleteFunc(list, func(r Request) bool { return !slices.Contains(begun, r.Spawn.Task) })
	if err := b.insertRequests(ctx, tx, list, true, fresh); err != nil {
		return err
	}
	if err := tx.Flush(ctx); err != nil {
		return err
	}
	if err := b.awaitInputs(ctx, tx, list, begun); err != nil {
		return err
	}
	for _, task := range begun {
		delete(buried, task)
		delete(early, task)
	}
	opened, err := b.openBegun(ctx, tx, begun)
	if err == nil && len(opened) < len(begun) {
		err = store.ErrRaced
	}
	if err != nil {
		return err
	}
	return b.endUnburied(ctx, tx, begun)
}

// endUnburied carries out the kills of tasks that came before them.
func (b *Backlog) endUnburied(ctx context.Context, tx *store.Tx, tasks []string) error {
	rows, err := tx.Query(ctx, statement("unbury"), tasks)
	if err != nil {
		return fmt.Errorf("looking for kills of tasks that had begun: %w", err)
	}
	kills, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k Kill, err error) {
		finishes := false
		k.Actor = "peer"
		if err = row.Scan(&k.Task, &finishes); finishes {
			k.Cancel = commands.CancelAfter
		}
		return k, err
	})
	if err != nil {
		return fmt.Errorf("looking for kills of tasks that had begun: %w", err)
	}
	for _, k := range kills {
		if _, err := b.Kill(ctx, tx, k, commands.Claimed); err != nil {
			return err
		}
	}
	return nil
}
