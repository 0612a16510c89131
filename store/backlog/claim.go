package backlog

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
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
	Conn       string          `json:"-"` // who asked for it; "" = this instance
	Asked      Asked           `json:"-"`
	Spec       commands.Spawn  `json:"-"` // of a task that the spoke runs

	class int
}

// Limits of a claim.
const (
	DefaultLease = 900 * time.Second // for claimers that do not renew
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
		return 0, commands.Refuse(commands.Validation, "a lease of %s is outside 1s..1d", commands.Lasting(d)).Hinting("renew it while the work goes on").Running("backlog", "renew", "--fence", "F", "--ttl", "15m")
	}
	return d, nil
}

// Claim leases up to Limit tasks that stand ready and that every stage of the
// admission lets this claimer have, by lane weight, priority and then age. Two
// claimers never get the same task: picking, reserving, opening the attempt and
// taking the lease are one transaction, sent at once. The answer is empty when nothing is
// admissible; for a named task it is a refusal that says why. With an error comes what was
// claimed before it.
func (ws *Workspace) Claim(ctx context.Context, t ClaimTerms) ([]Claimed, error) {
	if err := t.complete(); err != nil {
		return nil, err
	}
	claim, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	if t.Task != "" {
		task, err := ws.Show(ctx, t.Task)
		if err != nil {
			return nil, err
		}
		if task.Kind == AgentKind {
			return nil, ofSpoke(task)
		}
		t.Task, t.Kind = task.ID, task.Kind
	}
	list, err := ws.tries(ctx, claim.String(), t)
	if err == nil && len(list) == 0 && t.Task != "" {
		return nil, ws.whyNot(ctx, t)
	}
	return list, errors.Join(err, ws.nameLanes(ctx, list))
}

// Claim leases tasks of the main workspace that the spoke runs itself.
func (b *Backlog) Claim(ctx context.Context, t ClaimTerms) ([]Claimed, error) {
	t.Kind = AgentKind
	return (&Workspace{b, MainWorkspace, t.Owner, false}).Claim(ctx, t)
}

// nameLanes says of each task in which lane it is, and who asked for it.
func (ws *Workspace) nameLanes(ctx context.Context, list []Claimed) error {
	for i := range list {
		c, err := ws.backlog.lanes.of(ctx, ws, list[i].class)
		if err != nil {
			return err
		}
		list[i].Lane, list[i].Conn = c.lane, c.conn
	}
	return nil
}

// laneNames remembers lane and connection of each class; a class never changes.
type laneNames struct{ byClass sync.Map }

type laneName struct{ lane, conn string }

func (l *laneNames) of(ctx context.Context, ws *Workspace, class int) (c laneName, err error) {
	if name, known := l.byClass.Load(class); known {
		return name.(laneName), nil
	}
	err = ws.read(ctx, "reading the lane of a class", func(ctx context.Context, tx *store.Tx) error {
		return tx.QueryRow(ctx, `SELECT lane, coalesce(conn::text, '') FROM classes WHERE id = $1`, class).Scan(&c.lane, &c.conn)
	})
	if err == nil {
		l.byClass.Store(class, c)
	}
	return c, err
}
