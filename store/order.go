package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A SpawnOrder is a spawn that somebody asks this hub to send. Its task id was
// chosen by the caller, so an order that is given again is known.
type SpawnOrder struct {
	Conn           string            // of the spoke that was named
	Anywhere       bool              // no spoke was named: it goes to the least loaded of Among
	Among          []Candidate       // those that can run it now
	Nowhere        *commands.Refused // why no others can
	Spawn          *commands.Spawn
	Values         commands.Values // of its variables
	Life           time.Duration   // how long the spoke may still start it
	IdempotencyKey string          // "" for none
	Labels         commands.Labels // nil for none
	Schedule       string          // the name of the one that orders it; "" for none
	Actor          string
}

// An Ordered says what became of an order: the task and where it went, whether
// it was there already, or why it was refused.
type Ordered struct {
	Task     string
	Conn     string
	Spoke    string
	Existing bool
	Err      *commands.Refused
}

// digest identifies what is asked, apart from the task id and from where the hub
// puts it.
func (o SpawnOrder) digest() ([]byte, error) {
	s := *o.Spawn.WithoutBox()
	s.Task, s.Trace = "", "" // a repetition may belong to another trace
	if o.Anywhere {
		o.Conn = ""
	}
	raw, err := json.Marshal(struct {
		Conn   string
		Spawn  commands.Spawn
		Life   time.Duration
		Labels commands.Labels `json:",omitempty"`
	}{o.Conn, s, o.Life, o.Labels})
	sum := sha256.Sum256(raw)
	return sum[:], err
}

// OrderSpawns stores spawn orders: mirror, signed command and audit row of each
// in one transaction. When it returns they will reach their spokes, whatever
// happens to this process.
func (db *DB) OrderSpawns(ctx context.Context, orders []SpawnOrder) ([]Ordered, error) {
	var out []Ordered
	err := db.Tx(ctx, "ordering spawns", func(ctx context.Context, tx *Tx) (err error) {
		out, err = db.orderIn(ctx, tx, slices.Clone(orders)) // a second run places them anew
		return err
	})
	return out, err
}

// orderIn is OrderSpawns within a transaction. It changes orders.
func (db *DB) orderIn(ctx context.Context, tx *Tx, orders []SpawnOrder) ([]Ordered, error) {
	if err := db.markValues(orders); err != nil {
		return nil, err
	}
	inputs, err := holdInputs(ctx, tx, orders) // before anything else is held
	if err != nil {
		return nil, err
	}
	out := make([]Ordered, len(orders))
	refuseClosed(tx, orders, out)
	findOrdered(tx, orders, out)
	reserveNumbers(tx, orders)
	if err := tx.Flush(ctx); err != nil {
		return nil, err
	}
	if err := place(ctx, tx, orders, out); err != nil {
		return nil, err
	}
	refuseMissing(orders, out, inputs)
	return out, db.insertOrders(ctx, tx, orders, out)
}

// refuseClosed refuses orders over connections that take none. It holds the
// connections until the transaction ends: a revocation waits, and finds the
// orders.
func refuseClosed(tx *Tx, orders []SpawnOrder, out []Ordered) {
	var conns []string
	for _, o := range orders {
		if !o.Anywhere {
			conns = append(conns, o.Conn)
		}
	}
	if len(conns) == 0 {
		return
	}
	tx.Queue(`SELECT c.id::text, c.peer_name, c.state, coalesce(f.actor, ''), coalesce(f.reason, '') FROM connections c `+withFreeze+` WHERE c.id = ANY ($1::uuid[]) ORDER BY c.id FOR SHARE OF c`, conns).Query(func(rows pgx.Rows) error {
		open, c := map[string]target{}, target{}
		if _, err := pgx.ForEachRow(rows, []any{&c.ID, &c.Name, &c.State, &c.frozenBy, &c.why}, func() error { open[c.ID] = c; return nil }); err != nil {
			return fmt.Errorf("reading the connections of orders: %w", err)
		}
		for i, o := range orders {
			c, known := open[o.Conn]
			out[i].Conn, out[i].Spoke = c.ID, c.Name
			switch {
			case o.Anywhere:
			case !known:
				out[i].Err = commands.Refuse(commands.NotFound, "no such connection")
			default:
				out[i].Err = c.closed()
			}
		}
		return nil
	})
}

// withFreeze joins what is frozen over a connection c that is commanded, if anything is.
var withFreeze = `LEFT JOIN LATERAL (SELECT * FROM freezes x WHERE x.target IN ('', c.id::text) AND ` + freezesOrders("x") + ` ORDER BY x.id LIMIT 1) AS f ON true`

// A target is a connection that something is ordered over, and who has frozen what is, and why.
type target struct {
	Connection
	frozenBy, why string
}

// closed returns why nothing is ordered over c; nil when it takes orders.
func (c target) closed() *commands.Refused {
	if r := closedTo(c.Name, c.State); r != nil || c.frozenBy == "" {
		return r
	}
	return commands.Refuse(commands.FrozenThere, "what is ordered on %s is frozen by %s: %s", c.Name, c.frozenBy, c.why).Hinting("see").Running("freeze", "list")
}

// closedTo returns why nothing is ordered over a connection; nil when it takes
// orders.
func closedTo(name string, s ConnState) *commands.Refused {
	if s == Active || s == Suspended {
		return nil
	}
	return commands.Refuse(signing.ConnState, "the connection with %s is %s", name, s).Hinting("what to do about it").Running("why", name)
}

// findOrdered finds orders that were given before, by task or idempotency key.
func findOrdered(tx *Tx, orders []SpawnOrder, out []Ordered) {
	tasks, keys := make([]string, len(orders)), make([]string, len(orders))
	for i, o := range orders {
		tasks[i], keys[i] = o.Spawn.Task, o.IdempotencyKey
	}
	tx.Queue(`SELECT u.n, m.task::text, m.request_digest, m.created_by = '`+Adopted+`', c.id::text, c.peer_name FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS u (task, key, n), LATERAL (
			SELECT task, conn, request_digest, created_by FROM mirrors WHERE task = u.task
			UNION SELECT task, conn, request_digest, created_by FROM mirrors WHERE u.key <> '' AND idempotency_key = u.key
		) AS m JOIN connections c ON c.id = m.conn`, tasks, keys).Query(func(rows pgx.Rows) error {
		var n int
		var task, conn, spoke string
		var was []byte
		var restored bool
		_, err := pgx.ForEachRow(rows, []any{&n, &task, &was, &restored, &conn, &spoke}, func() error {
			o := orders[n-1]
			if restored { // its labels were not in the message that it was made of again
				o.Labels = nil
			}
			is, err := o.digest()
			if err != nil {
				return err
			}
			out[n-1] = Ordered{Task: task, Conn: conn, Spoke: spoke, Existing: true, Err: out[n-1].Err}
			if r := out[n-1].Err; r != nil && r.Code == commands.FrozenThere {
				out[n-1].Err = nil // nothing new is ordered
			}
			if !bytes.Equal(is, was) {
				out[n-1].Err = commands.Refuse(commands.Idempotency, "the idempotency key or task id was used with other content (task %s)", task)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("looking for earlier orders: %w", err)
		}
		return nil
	})
}

// reserveNumbers numbers the orders of which it is known where they go, unless they are
// refused or were given before.
func reserveNumbers(tx *Tx, orders []SpawnOrder) {
	if slices.ContainsFunc(orders, func(o SpawnOrder) bool { return o.Anywhere }) {
		return // placing holds connections: numbers come after it
	}
	for _, o := range orders {
		tx.Reserve(o.Conn, 1)
	}
}

func (db *DB) insertOrders(ctx context.Context, tx *Tx, orders []SpawnOrder, out []Ordered) error {
	var drafts []Draft
	var which []int
	var values []valued
	byKey, byTask := map[string]int{}, map[string]int{}
	for i, o := range orders {
		if out[i].Err != nil || out[i].Existing {
			continue
		}
		first, twice := byTask[o.Spawn.Task]
		if !twice && o.IdempotencyKey != "" {
			first, twice = byKey[o.IdempotencyKey]
		}
		if twice {
			out[i] = sameOrder(orders[first], o)
			out[i].Conn, out[i].Spoke = out[first].Conn, out[first].Spoke
			continue
		}
		byKey[o.IdempotencyKey], byTask[o.Spawn.Task] = i, i
		out[i].Task = o.Spawn.Task
		which = append(which, i)
		drafts = append(drafts, Draft{Conn: o.Conn, Body: o.Spawn, Life: o.Life})
	}
	for n, i := range which {
		if len(orders[i].Values) > 0 {
			values = append(values, valued{&drafts[n], orders[i].Values})
		}
	}
	if err := sealValues(ctx, tx, values); err != nil {
		return err
	}
	sealed, err := tx.SendNow(ctx, drafts...)
	if err != nil || len(sealed) == 0 {
		return err
	}
	if err := insertMirrors(tx, orders, which, sealed); err != nil {
		return err
	}
	noteInputs(tx, orders, which)
	return db.keepValues(tx, orders, which)
}

// sameOrder answers an order whose task or key another order of the same batch used.
func sameOrder(first, second SpawnOrder) Ordered {
	a, errA := first.digest()
	b, errB := second.digest()
	o := Ordered{Task: first.Spawn.Task, Existing: true}
	if errors.Join(errA, errB) != nil || !bytes.Equal(a, b) {
		o.Err = commands.Refuse(commands.Idempotency, "the idempotency key or task id was used with other content (task %s)", o.Task)
	}
	return o
}

func insertMirrors(tx *Tx, orders []SpawnOrder, which []int, sealed []signing.Sealed) error {
	var task, conn, title, command, key, actor, schedule []string
	var priority []int
	var anywhere []bool
	var digest, request [][]byte
	var spec []*commands.Spawn
	var labels []*commands.Labels // nil for none
	var expires []time.Time
	var audit []AuditRow
	for n, i := range which {
		o, s := orders[i], sealed[n]
		is, err := o.digest()
		if err != nil {
			return err
		}
		task, conn, title = append(task, o.Spawn.Task), append(conn, o.Conn), append(title, o.Spawn.Title)
		command, digest, key = append(command, s.ID), append(digest, s.Body[:]), append(key, o.IdempotencyKey)
		actor, priority, request = append(actor, o.Actor), append(priority, o.Spawn.Priority), append(request, is)
		spec, expires, anywhere = append(spec, o.Spawn), append(expires, s.Exp), append(anywhere, o.Anywhere)
		labels, schedule = append(labels, nil), append(schedule, o.Schedule)
		if len(o.Labels) > 0 {
			labels[n] = &orders[i].Labels
		}
		audit = append(audit, AuditRow{Actor: o.Actor, Action: "task.ordered", Object: o.Spawn.Task, Conn: o.Conn, Message: s.ID})
	}
	tx.Queue(`
		INSERT INTO mirrors (task, conn, title, priority, command, command_digest, idempotency_key, request_digest, created_by, spec, expires_at, anywhere, labels, schedule)
		SELECT a, b, c, d, e, f, nullif(g, ''), h, i, j, k, l, m, nullif(n, '')
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::uuid[], $6::bytea[], $7::text[], $8::bytea[], $9::text[], $10::jsonb[], $11::timestamptz[], $12::bool[], $13::jsonb[], $14::text[])
			AS u (a, b, c, d, e, f, g, h, i, j, k, l, m, n) ORDER BY g, a`,
		task, conn, title, priority, command, digest, key, request, actor, spec, expires, anywhere, labels, schedule)
	tx.Audit(audit...)
	return nil
}

// OrderStatus asks the spoke of a task how it stands, and returns the id of the
// question: the answer names it.
func (db *DB) OrderStatus(ctx context.Context, task string, life time.Duration, actor string) (id string, err error) {
	err = db.Tx(ctx, "asking for the state of task "+task, func(ctx context.Context, tx *Tx) error {
		var conn, name string
		var state ConnState
		err := tx.QueryRow(ctx, `SELECT c.id::text, c.peer_name, c.state FROM mirrors m JOIN connections c ON c.id = m.conn WHERE task = $1 FOR SHARE OF c`, task).Scan(&conn, &name, &state)
		if err == pgx.ErrNoRows {
			return commands.Refuse(commands.NotFound, "no agent %s", task)
		}
		if err != nil {
			return err
		}
		if r := closedTo(name, state); r != nil {
			return r
		}
		id = tx.Send(Draft{Conn: conn, Body: &commands.Status{Task: task}, Life: life})
		tx.Audit(AuditRow{Actor: actor, Action: "task.status_ordered", Object: task, Conn: conn, Message: id})
		return nil
	})
	return id, err
}
