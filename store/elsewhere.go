package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Refusal is a spoke's no to an order, as its signed word says it.
type Refusal struct {
	Conn   string        `json:"conn"`
	Spoke  string        `json:"spoke"`
	Code   commands.Code `json:"code"`
	Why    string        `json:"why,omitempty"` // as Hint, not for everybody who sees the rest
	Hint   string        `json:"hint,omitempty"`
	Policy string        `json:"policy,omitempty"` // version of the spoke's policy that decided
	At     time.Time     `json:"at"`
}

// String names who refused, why where the caller was told, and the code.
func (r Refusal) String() string {
	if r.Why == "" {
		return fmt.Sprintf("by %s (%s)", r.Spoke, r.Code)
	}
	return fmt.Sprintf("by %s: %s (%s)", r.Spoke, r.Why, r.Code)
}

// othersMay are the refusals that another spoke may not share.
var othersMay = []commands.Code{commands.Policy, commands.Grant, commands.Capability, commands.BadPath, commands.InputTooLarge}

// A reorder is an order that one spoke refused and another one gets.
type reorder struct {
	fold    *fold
	to      string // connection
	spawn   *commands.Spawn
	values  commands.Values
	life    time.Duration
	refusal Refusal
}

// Elsewhere is the effect of a refusal of an order that went to another spoke for it.
type Elsewhere struct{ Task, Conn string }

// MoveMirrors applies reports to mirrors, in one statement. A mirror follows the
// newest report by sequence; once terminal it stays, and what comes after that is
// kept as evidence in the inbox only. Answers to questions that were
// not asked are refused, and so are more than maxAnswers to one.
//
// What a spoke refuses and the hub had placed is ordered again: elsewhere returns the
// spokes that can run a spawn now, those that refused it included. It is given the
// refusal, and asked at most once for each spawn, inside the transaction; of one that was ordered from a spoke by its
// name it only learns.
func MoveMirrors(elsewhere func(*commands.Spawn, Refusal) []Candidate) func(context.Context, *Tx, Standing, []*Incoming) error {
	return func(ctx context.Context, tx *Tx, from Standing, batch []*Incoming) error {
		for _, m := range batch { // this may be a second run
			m.Effect = nil
		}
		f := foldAll(batch)
		again, err := f.refused(ctx, tx, from, elsewhere)
		if err == nil && len(again) > 0 {
			again, err = placeAgain(ctx, tx, again, elsewhere)
		}
		if err == nil && len(again) > 0 {
			err = dropOutput(ctx, tx, again)
		}
		if err == nil {
			err = pauseElsewhere(ctx, tx, again)
		}
		if err != nil {
			return err
		}
		for _, r := range again {
			f.order = slices.DeleteFunc(f.order, func(x *fold) bool { return x == r.fold })
		}
		if len(again) > 0 {
			tx.last = append(tx.last, func(ctx context.Context) error { return orderAgain(ctx, tx, from, again) })
		}
		if err := f.move(ctx, tx, from); err != nil {
			return err
		}
		if err := keepPauses(ctx, tx, from, batch); err != nil {
			return err
		}
		if err := keepKills(ctx, tx, from, batch); err != nil {
			return err
		}
		if err := keepReviews(ctx, tx, from, batch); err != nil {
			return err
		}
		if err := keepWork(ctx, tx, from, batch); err != nil {
			return err
		}
		return keepInquiries(ctx, tx, from, batch)
	}
}

// Orders are found by their ids: where these were planned for few mirrors, the planner would else take all of a connection, or all that have
// no end, for less.
const (
	holdFolds     = `SELECT FROM mirrors WHERE command = ANY ($1::uuid[]) AND (conn = $2) IS TRUE ORDER BY task FOR UPDATE`
	refusedOrders = `SELECT m.command::text, m.task::text, m.spec, m.expires_at, m.anywhere, coalesce((SELECT box FROM order_values WHERE task = m.task), '') FROM unnest($2::uuid[], $3::text[]) AS u (command, digest)
		JOIN mirrors m ON m.command = u.command AND (m.conn = $1) IS TRUE AND encode(m.command_digest, 'hex') = u.digest
		WHERE NOT is_terminal(m.state) AND m.accepted_at IS NULL AND m.kill IS NULL ORDER BY m.task`
)

// refused returns the refusals of orders that may go to another spoke. Where there
// are some it locks the mirrors of all folds: those that move later come in the
// order of tasks with the others.
func (f *folds) refused(ctx context.Context, tx *Tx, from Standing, elsewhere func(*commands.Spawn, Refusal) []Candidate) ([]reorder, error) {
	byCommand := map[string]*fold{}
	for _, x := range f.order {
		if x.refusal != nil && !x.accepted && slices.Contains(othersMay, x.refusal.Code) {
			byCommand[x.command] = x
		}
	}
	if len(byCommand) == 0 {
		return nil, nil
	}
	var ids, digests []string
	for id, x := range byCommand {
		ids, digests = append(ids, id), append(digests, x.digest)
	}
	asked := make([]string, len(f.order))
	for i, x := range f.order {
		asked[i] = x.command
	}
	if _, err := tx.Exec(ctx, holdFolds, asked, from.ID); err != nil {
		return nil, fmt.Errorf("locking the mirrors of a batch: %w", err)
	}
	// An order that was to be killed is given to nobody any more, also where that was refused.
	rows, err := tx.Query(ctx, refusedOrders, from.ID, ids, digests)
	if err != nil {
		return nil, fmt.Errorf("reading refused orders: %w", err)
	}
	var list []reorder
	var command, task string
	var spawn *commands.Spawn
	var expires time.Time
	var anywhere bool
	var box []byte
	_, err = pgx.ForEachRow(rows, []any{&command, &task, &spawn, &expires, &anywhere, &box}, func() error {
		x := byCommand[command]
		if !anywhere {
			elsewhere(spawn, x.refusedBy(from)) // which notes it: its spoke was named, so nobody else gets it
			spawn = nil
			return nil
		}
		if life := expires.Sub(from.Now); life >= time.Second && (x.task == "" || x.task == task) {
			x.task, spawn.Task = task, task
			values, err := tx.db.keptValues(spawn, box)
			if err != nil { // then nobody else can have it, and the refusal stands
				tx.Audit(AuditRow{Actor: "self", Action: "task.values_lost", Object: task, Code: string(commands.CodeOf(err)), Why: err.Error(), Conn: from.ID})
				spawn = nil
				return nil
			}
			list = append(list, reorder{fold: x, spawn: spawn, values: values, life: life, refusal: x.refusedBy(from)})
		}
		spawn = nil
		return nil
	})
	return list, err
}

// refusedBy is the refusal of a fold by the spoke that it came from.
func (x *fold) refusedBy(from Standing) Refusal {
	b := x.refusal
	return Refusal{Conn: from.ID, Spoke: from.Name, Code: b.Code, Why: b.Why, Hint: b.Hint, Policy: b.Policy, At: from.Now}
}

// placeAgain chooses who gets what was refused, and leaves out what nobody is
// left for.
func placeAgain(ctx context.Context, tx *Tx, list []reorder, elsewhere func(*commands.Spawn, Refusal) []Candidate) ([]reorder, error) {
	tasks := make([]string, len(list))
	among, all := make([][]Candidate, len(list)), []Candidate{}
	for i, r := range list {
		tasks[i], among[i] = r.spawn.Task, elsewhere(r.spawn, r.refusal)
		all = append(all, among[i]...)
	}
	refused, err := refusedBy(ctx, tx, tasks)
	if err != nil {
		return nil, err
	}
	p, err := newPlacement(ctx, tx, all)
	if err != nil {
		return nil, err
	}
	var placed []reorder
	for i, r := range list {
		refused[r.spawn.Task][r.refusal.Conn] = true
		if r.to = p.pick(among[i], refused[r.spawn.Task]); r.to != "" {
			placed = append(placed, r)
		}
	}
	return placed, nil
}

// dropOutput forgets output of those that have refused the work: they had none to tell. Logs come before
// numbers in the order of locks.
func dropOutput(ctx context.Context, tx *Tx, list []reorder) error {
	tasks := make([]string, len(list))
	for i, r := range list {
		tasks[i] = r.spawn.Task
	}
	var b pgx.Batch
	b.Queue(holdLogs, tasks)
	b.Queue(`DELETE FROM logs WHERE task = ANY($1::uuid[])`, tasks)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("forgetting output of refused tasks: %w", err)
	}
	return nil
}

// refusedBy returns which connections have refused each task before.
func refusedBy(ctx context.Context, tx *Tx, tasks []string) (map[string]map[string]bool, error) {
	by := map[string]map[string]bool{}
	for _, task := range tasks {
		by[task] = map[string]bool{}
	}
	rows, err := tx.Query(ctx, `SELECT task::text, r->>'conn' FROM mirrors, jsonb_array_elements(refusals) AS r WHERE task = ANY ($1::uuid[])`, tasks)
	if err != nil {
		return nil, fmt.Errorf("reading earlier refusals: %w", err)
	}
	var task, conn string
	_, err = pgx.ForEachRow(rows, []any{&task, &conn}, func() error { by[task][conn] = true; return nil })
	return by, err
}

// orderAgain signs a new command for each refused order, whose mirror is held. It runs after everything
// that locks other rows: it locks the numbers of all its connections, the one
// that the refusals came over too, in the order of their ids.
func orderAgain(ctx context.Context, tx *Tx, from Standing, list []reorder) error {
	conns, drafts := []string{from.ID}, make([]Draft, len(list))
	var values []valued
	for i, r := range list {
		conns = append(conns, r.to)
		drafts[i] = Draft{Conn: r.to, Body: r.spawn, Life: r.life}
		if len(r.values) > 0 {
			values = append(values, valued{&drafts[i], r.values})
		}
	}
	if _, err := tx.Exec(ctx, `SELECT FROM sequences WHERE conn = ANY ($1::uuid[]) ORDER BY conn FOR UPDATE`, conns); err != nil {
		return fmt.Errorf("locking the numbers of connections: %w", err)
	}
	if err := sealValues(ctx, tx, values); err != nil {
		return err
	}
	sealed, err := tx.SendNow(ctx, drafts...)
	if err != nil {
		return err
	}
	var task, conn, command []string
	var digest [][]byte
	var expires []time.Time
	var refusals []Refusal
	for i, s := range sealed {
		r := list[i]
		task, conn, command = append(task, r.spawn.Task), append(conn, r.to), append(command, s.ID)
		digest, expires, refusals = append(digest, s.Body[:]), append(expires, s.Exp), append(refusals, r.refusal)
		r.fold.message.Effect = &Elsewhere{Task: r.spawn.Task, Conn: r.to}
		tx.Audit(AuditRow{Actor: string(from.Peer), Action: "task.refused", Object: r.spawn.Task, Code: string(r.refusal.Code), Why: r.refusal.Why, Conn: from.ID, Message: r.fold.message.Header.ID},
			AuditRow{Actor: "self", Action: "task.ordered", Object: r.spawn.Task, Why: "refused by " + from.Name, Conn: r.to, Message: s.ID})
	}
	_, err = tx.Exec(ctx, `
		UPDATE mirrors m SET conn = u.conn, command = u.command, command_digest = u.digest, expires_at = u.expires, refusals = m.refusals || u.refusal,
			last_seq = 0, policy = '', updated_at = clock_timestamp()
		FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bytea[], $5::timestamptz[], $6::jsonb[]) AS u (task, conn, command, digest, expires, refusal)
		WHERE m.task = u.task`, task, conn, command, digest, expires, refusals)
	if err != nil {
		return fmt.Errorf("ordering refused tasks elsewhere: %w", err)
	}
	return nil
}
