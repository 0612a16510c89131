package backlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/store"
)

// maxMeetings bounds how often a claim looks again because others had locked
// what it wanted. They hold it for one commit.
const maxMeetings = 20

// looks claims until the batch is full or nothing more is admissible. A task
// that a limit has no room for also counts against the ones behind it in the
// same look; the next look is without it.
func (ws *Workspace) looks(ctx context.Context, claim string, t ClaimTerms) (list []Claimed, err error) {
	want, meetings := t.Limit, 0
	last := ws.backlog.lastLooks.of(ws.name)
	for {
		known := last.limited
		t.one = t.Limit == 1 || last.quiet
		l, err := ws.lookHarder(ctx, claim, t, known)
		if err != nil {
			return nil, err
		}
		if l.whole {
			list = nil
		}
		list = append(list, l.list...)
		last.limited = l.limited
		if want > 1 {
			last.quiet = len(list) <= 1 && !(t.one && l.skipped)
		}
		ws.backlog.lastLooks.set(ws.name, last)
		again := l.skipped || len(l.list) == 0 && l.limited > known
		if !again || t.Task != "" || len(list) >= want {
			return list, nil
		}
		if l.skipped && len(l.list) == 0 {
			if meetings++; meetings > maxMeetings || len(list) > 0 {
				return list, nil
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Duration(meetings) * time.Millisecond):
			}
		}
		t.Limit = want - len(list)
	}
}

// lookHarder looks, and holds more of the limits each time that what it held
// before does not reach.
func (ws *Workspace) lookHarder(ctx context.Context, claim string, t ClaimTerms, limited int) (l look, err error) {
	if t.Task != "" {
		limited = withQuotas
	}
	for ; ; limited++ {
		if l, err = ws.look(ctx, claim, t, limited); !overshot(err) || limited == withQuotas {
			return l, err
		}
	}
}

// A look is one transaction of a claim.
type look struct {
	list    []Claimed
	whole   bool // list is all that the claim has, from earlier looks too
	skipped bool // something was passed over, for want of room or because somebody else has it
	limited int  // what the workspace has
}

// What a workspace may have that decides about claims; the database answers
// with these numbers. Each is right about everything before it.
const (
	noLimits     = iota
	gatesOnly    // lanes that were set, freezes
	withBudgets  // and no quotas
	tightBudgets // no room for advances
	withQuotas
)

// look takes what the terms let it have, in one round trip: limits are held for
// no longer than the statement and its commit take.
func (ws *Workspace) look(ctx context.Context, claim string, t ClaimTerms, limited int) (l look, err error) {
	tries := 0
	err = ws.tx(ctx, "claiming tasks", func(ctx context.Context, tx *store.Tx) error {
		tries++
		l = look{limited: limited}
		key, err := ws.backlog.grantKeys.current(ctx, tx)
		if err != nil {
			return err
		}
		// After a commit whose answer was lost, the leases are already ours.
		if tries > 1 {
			if err = l.claimedBefore(ctx, tx, claim); err != nil || len(l.list) > 0 {
				l.whole = true
				ws.sign(key, l.list)
				return err
			}
		}
		var batch pgx.Batch
		note := ws.backlog.claimers.due(ws.name, t)
		if note {
			batch.Queue(statement("note_claimer"), ws.name, t.Owner, t.Kind, t.Capabilities, t.Lanes)
		}
		sql, args := ws.queueHolds(&batch, claim, t, limited)
		batch.Queue(sql, args...).Query(func(rows pgx.Rows) error { return l.read(rows) })
		if err := tx.SendLast(ctx, &batch); err != nil {
			return fmt.Errorf("picking tasks: %w", err)
		}
		if note {
			ws.backlog.claimers.noted(ws.name, t)
		}
		ws.sign(key, l.list)
		return nil
	})
	return l, err
}

// queueHolds queues what is to be held before the statement that picks, and
// returns that one.
func (ws *Workspace) queueHolds(batch *pgx.Batch, claim string, t ClaimTerms, limited int) (sql string, args []any) {
	if limited == withQuotas {
		batch.Queue(holdQuotas, ws.name)
	}
	if limited >= tightBudgets {
		batch.Queue(holdBudgets, ws.name)
	}
	if limited == withQuotas {
		batch.Queue(statement("hold_slots"), ws.name)
		batch.Queue(statement("recall_all"), ws.name) // a statement of its own: it sees the advances given until the budgets were held
	}
	args = []any{ws.name, t.Owner, t.Limit, t.Capabilities, t.Lease, claim, t.Kind, t.Lanes}
	switch {
	case t.Task != "":
		return statement("claim_named"), append(args, t.Task)
	case limited == withQuotas:
		return statement("claim_held"), args
	case limited == tightBudgets:
		return statement("claim_draw"), args
	case t.one:
		return statement("claim_next"), []any{claim, t.Owner, t.Capabilities, t.Lease, ws.name, t.Kind, t.Lanes, t.Limit > 1}
	case limited == noLimits:
		return statement("claim_free"), args
	}
	return statement("claim_far"), args
}

// overshot reports whether a claim failed because what it held has too little room.
func overshot(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "SM001"
}

// sign makes the grants of what was claimed.
func (ws *Workspace) sign(key grantKey, list []Claimed) {
	for i := range list {
		list[i].Grant = key.sign(ws.name, list[i].Fence, list[i].Until)
	}
}

// A lastLook is what a process remembers of its last claim in a workspace.
type lastLook struct {
	limited int
	quiet   bool // hardly anything stands ready, so one task at a time is faster
}

// lastLooks keep them by workspace. A wrong one costs a look, never a wrong claim.
type lastLooks struct{ known sync.Map }

func (n *lastLooks) of(workspace string) lastLook {
	if last, known := n.known.Load(workspace); known {
		return last.(lastLook)
	}
	return lastLook{limited: withBudgets}
}

func (n *lastLooks) set(workspace string, last lastLook) { n.known.Store(workspace, last) }

// read reads what a look took. A look that took nothing answers with one row
// without a task. A limited below 0 means that nobody asked.
func (l *look) read(rows pgx.Rows) (err error) {
	limited := l.limited
	l.list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Claimed, err error) {
		var acceptance, spec []byte
		var passed int64
		err = row.Scan(&c.Fence.Task, &c.Fence.Attempt, &c.Fence.Epoch, &c.Type, &c.Until, &c.Key, &c.Title, &c.Priority, &c.class,
			&c.Asked.Command, &c.Asked.Digest, &c.Body, &acceptance, &spec, &passed, &limited)
		l.skipped = passed > 0
		if err != nil || spec == nil {
			c.Acceptance = acceptance
			return c, err
		}
		return c, json.Unmarshal(spec, &c.Spec)
	})
	if len(l.list) > 0 && l.list[0].Fence.Task == "" {
		l.list = l.list[:0]
	}
	if limited >= 0 {
		l.limited = limited
	}
	return err
}

// claimedBefore finds what an earlier try of the same claim took.
func (l *look) claimedBefore(ctx context.Context, tx *store.Tx, claim string) error {
	rows, err := tx.Query(ctx, statement("claimed_before"), claim)
	if err != nil {
		return err
	}
	return l.read(rows)
}
