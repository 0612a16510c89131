package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Fence is what a worker shows with every write to a task: the attempt it
// works for and the lease epoch it got. A write with any other changes nothing.
type Fence struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Epoch   int64  `json:"epoch"`
}

// A Claimed is a task that was just leased.
type Claimed struct {
	Fence      Fence           `json:"fence"`
	Type       string          `json:"type"` // initial, retry, reclaim, …
	Grant      string          `json:"grant"`
	Until      time.Time       `json:"lease_until"`
	Key        string          `json:"key,omitempty"`
	Title      string          `json:"title"`
	Body       string          `json:"body,omitempty"`
	Priority   int             `json:"priority"`
	Lane       string          `json:"lane"`
	Acceptance json.RawMessage `json:"acceptance,omitempty"`
	Asked      Asked           `json:"-"`
	Spec       commands.Spawn  `json:"-"` // of a task that the spoke runs

	class int
}

// Asked names the message that asked for a task; empty for the instance's own.
type Asked struct {
	Command string
	Digest  string // hex
}

// Limits of a claim.
const (
	DefaultLease = 900 * time.Second // for claimers that do not renew (seed 000)
	MaxLease     = 24 * time.Hour
	MaxBatch     = 1000
)

// ClaimTerms say who claims what.
type ClaimTerms struct {
	Owner        string
	Task         string        // only this one, by its key or id
	Kind         string        // "" = [CardKind]
	Lanes        []string      // none = all
	Capabilities []string      // tasks that need others stay out of sight
	Limit        int           // 0 = 1
	Lease        time.Duration // 0 = [DefaultLease]
}

func (t *ClaimTerms) complete() error {
	if t.Kind == "" {
		t.Kind = CardKind
	}
	if t.Limit == 0 {
		t.Limit = 1
	}
	if t.Capabilities == nil {
		t.Capabilities = []string{}
	}
	switch {
	case t.Owner == "":
		return commands.Refuse(commands.Validation, "a claim names its owner")
	case t.Limit < 1 || t.Limit > MaxBatch:
		return commands.Refuse(commands.Validation, "a batch of %d tasks is outside 1..%d", t.Limit, MaxBatch)
	}
	if err := checkText("the owner", t.Owner, MaxKey, true); err != nil {
		return err
	}
	if err := checkCapabilities(t.Capabilities); err != nil {
		return err
	}
	var err error
	t.Lease, err = leaseOf(t.Lease)
	return err
}

// leaseOf checks how long a claim may last; 0 means the default.
func leaseOf(d time.Duration) (time.Duration, error) {
	if d == 0 {
		return DefaultLease, nil
	}
	if d < time.Second || d > MaxLease {
		return 0, commands.Refuse(commands.Validation, "a lease of %s is outside 1s..24h", d).Hinting("renew it while the work goes on: spawnmesh backlog renew --fence F --ttl 15m")
	}
	return d, nil
}

// Claim leases up to Limit tasks that stand ready and that every stage of the
// admission lets this claimer have, by lane weight, priority and then age. Two
// claimers never get the same task: picking, reserving, opening the attempt and
// taking the lease are one statement. The answer is empty when nothing is
// admissible; for a named task it is a refusal that says why.
func (b *Backlog) Claim(ctx context.Context, t ClaimTerms) ([]Claimed, error) {
	if err := t.complete(); err != nil {
		return nil, err
	}
	claim, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	if t.Task != "" {
		task, err := b.Show(ctx, t.Task)
		if err != nil {
			return nil, err
		}
		t.Task, t.Kind = task.ID, task.Kind
	}
	var list []Claimed
	tries := 0
	err = b.work(ctx, "claiming tasks", func(ctx context.Context, w *work) error {
		tries++
		// After a commit whose answer was lost, the leases are already ours.
		if tries > 1 {
			if list, err = b.claimedBy(ctx, w, claim.String()); err != nil || len(list) > 0 {
				return err
			}
		}
		list, err = b.pick(ctx, w, claim.String(), t)
		return err
	})
	if err == nil && len(list) == 0 && t.Task != "" {
		return nil, b.whyNot(ctx, t)
	}
	return list, err
}

// Claim leases tasks of the main workspace that the spoke runs itself.
func (db *DB) Claim(ctx context.Context, t ClaimTerms) ([]Claimed, error) {
	b := Backlog{db, MainWorkspace, t.Owner}
	t.Kind = AgentKind
	return b.Claim(ctx, t)
}

// pick takes what the terms let it have. The commit travels with the picking
// unless a limit may make it look again.
func (b *Backlog) pick(ctx context.Context, w *work, claim string, t ClaimTerms) ([]Claimed, error) {
	var batch pgx.Batch
	if b.db.claimers.due(b.workspace, t) {
		batch.Queue(noteClaimer, b.workspace, t.Owner, t.Kind, t.Capabilities, t.Lanes)
	}
	limits, gates := 0, 0
	batch.Queue(lockLimits, b.workspace).QueryRow(func(row pgx.Row) error { return row.Scan(&limits, &gates) })
	if err := w.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("asking for limits: %w", err)
	}
	key, err := b.db.grantKeys.current(ctx, w)
	if err != nil {
		return nil, err
	}
	args := []any{claim, t.Owner, t.Limit, t.Capabilities, t.Lease, b.workspace, t.Kind, t.Lanes}
	sql := pickMany
	switch {
	case t.Task != "":
		sql, args = pickOne, append(args, t.Task)
	case limits == 0 && gates == 0:
		sql = pickFree
	}
	var list []Claimed
	for {
		n := 0
		batch := &pgx.Batch{}
		batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
			more, err := pgx.CollectRows(rows, scanClaimed)
			n, list = len(more), append(list, more...)
			return err
		})
		if err := w.SendBatch(ctx, batch).Close(); err != nil {
			return nil, fmt.Errorf("picking tasks: %w", err)
		}
		// A task that a limit has no room for also counts against the ones behind
		// it in the same look; the next look is without it.
		if n == 0 || limits == 0 || len(list) >= t.Limit || t.Task != "" {
			return list, b.hand(ctx, w, key, list)
		}
		args[2] = t.Limit - len(list)
	}
}

// hand signs what the claimer gets, and names the lanes.
func (b *Backlog) hand(ctx context.Context, tx pgx.Tx, key grantKey, list []Claimed) (err error) {
	for i := range list {
		list[i].Grant = key.sign(b.workspace, list[i].Fence, list[i].Until)
		if list[i].Lane, err = b.db.lanes.of(ctx, tx, list[i].class); err != nil {
			return err
		}
	}
	return nil
}

// laneNames remembers the lane of each class; a class never changes.
type laneNames struct{ byClass sync.Map }

func (l *laneNames) of(ctx context.Context, tx pgx.Tx, class int) (string, error) {
	if name, known := l.byClass.Load(class); known {
		return name.(string), nil
	}
	var name string
	if err := tx.QueryRow(ctx, `SELECT lane FROM classes WHERE id = $1`, class).Scan(&name); err != nil {
		return "", fmt.Errorf("reading the lane of a class: %w", err)
	}
	l.byClass.Store(class, name)
	return name, nil
}

const claimedColumns = `m.id::text, m.attempt, m.epoch, m.type, m.until, coalesce(m.key, ''), m.title, m.priority, m.class,
	coalesce(m.command::text, ''), coalesce(encode(m.command_digest, 'hex'), ''), coalesce(x.body, ''), x.acceptance, x.spec`

func scanClaimed(row pgx.CollectableRow) (Claimed, error) {
	var c Claimed
	var acceptance, spec []byte
	err := row.Scan(&c.Fence.Task, &c.Fence.Attempt, &c.Fence.Epoch, &c.Type, &c.Until, &c.Key, &c.Title, &c.Priority, &c.class,
		&c.Asked.Command, &c.Asked.Digest, &c.Body, &acceptance, &spec)
	if err != nil || spec == nil {
		c.Acceptance = acceptance
		return c, err
	}
	return c, json.Unmarshal(spec, &c.Spec)
}

// claimedBy finds what an earlier try of the same claim took.
func (b *Backlog) claimedBy(ctx context.Context, tx pgx.Tx, claim string) ([]Claimed, error) {
	key, err := b.db.grantKeys.current(ctx, tx)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `SELECT `+claimedColumns+` FROM (
			SELECT t.id, l.attempt, l.epoch, l.type, l.until, t.key, t.title, t.priority, t.class, t.command, t.command_digest, t.seq
			FROM leases l JOIN tasks t ON t.id = l.task AND t.epoch = l.epoch WHERE l.claim = $1) AS m
		LEFT JOIN task_bodies x ON x.task = m.id ORDER BY m.priority DESC, m.seq`, claim)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, scanClaimed)
	if err != nil {
		return nil, err
	}
	return list, b.hand(ctx, tx, key, list)
}
