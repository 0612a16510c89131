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

// maxContention bounds how often a claim that got nothing tries again because
// others had locked what it wanted. They hold it for one commit.
const maxContention = 20

// tries claims until the batch is full or nothing more is admissible. A task
// that a limit has no room for also counts against the ones behind it in the
// same try; the next one is without it. What was claimed before a try that failed is returned
// with the error: it is leased.
func (ws *Workspace) tries(ctx context.Context, claim string, t ClaimTerms) (list []Claimed, err error) {
	want := t.Limit
	for contention := 0; ; {
		got, err := ws.try(ctx, claim, t)
		if err != nil && !overshot(err) {
			return list, err
		}
		if got.whole {
			list = nil
		}
		list = append(list, got.list...)
		if err == nil && !got.contended || t.Task != "" || len(list) >= want {
			return list, nil
		}
		t.Limit = want - len(list)
		if len(got.list) > 0 {
			continue
		}
		if contention++; contention > maxContention || len(list) > 0 {
			return list, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(contention) * time.Millisecond):
		}
	}
}

// A try is one transaction of a claim.
type try struct {
	list      []Claimed
	whole     bool // list is all that the claim has, from earlier tries too
	contended bool // there is more: others had locked it, or the try did not reach it
	next      int  // the class where the next claim starts
}

// try takes what the terms let it have, in one round trip: limits are held for
// no longer than the statement and its commit take.
func (ws *Workspace) try(ctx context.Context, claim string, t ClaimTerms) (got try, err error) {
	tries := 0
	err = ws.tx(ctx, "claiming tasks", func(ctx context.Context, tx *store.Tx) error {
		tries++
		got = try{}
		key, err := ws.backlog.grantKeys.current(ctx, tx)
		if err != nil {
			return err
		}
		// After a commit whose answer was lost, the leases are already ours.
		if tries > 1 {
			if err = got.claimedBefore(ctx, tx, claim); err != nil || len(got.list) > 0 {
				got.whole = true
				ws.sign(key, got.list)
				return err
			}
		}
		var batch pgx.Batch
		note := ws.backlog.claimers.due(ws.name, t)
		if note {
			batch.Queue(statement("note_claimer"), ws.name, t.Owner, t.Kind, t.Capabilities, t.Lanes)
		}
		batch.Queue(statement("claim"), claim, ws.name, t.Owner, t.Kind, t.Capabilities, t.Lanes, t.Lease, t.Limit, ws.backlog.starts.of(ws.name), t.Task, ws.actor).
			Query(func(rows pgx.Rows) error { return got.read(rows) })
		if err := tx.SendLast(ctx, &batch); err != nil {
			return fmt.Errorf("picking tasks: %w", err)
		}
		if len(got.list) == 0 {
			tx.TellNobody()
		}
		if note {
			ws.backlog.claimers.noted(ws.name, t)
		}
		ws.backlog.starts.set(ws.name, got.next)
		ws.sign(key, got.list)
		return nil
	})
	return got, err
}

// overshot reports whether a claim failed because somebody else reserved since it
// looked.
func overshot(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "SM001"
}

// sign makes the grants of what was claimed.
func (ws *Workspace) sign(key *grantKey, list []Claimed) {
	for i := range list {
		list[i].Grant = key.sign(ws.name, list[i].Fence, list[i].Until)
	}
}

// starts remember by workspace the class where a process's next claim starts: where
// many classes have ready tasks, a claim looks at some of them, and each has its turn.
type starts struct{ known sync.Map }

func (s *starts) of(workspace string) *int {
	if class, known := s.known.Load(workspace); known {
		return class.(*int)
	}
	return nil
}

func (s *starts) set(workspace string, class int) { s.known.Store(workspace, &class) }

// read reads what a try took. One that took nothing answers with one row without a
// task.
func (l *try) read(rows pgx.Rows) (err error) {
	l.list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Claimed, err error) {
		var acceptance, spec []byte
		err = row.Scan(&c.Fence.Task, &c.Fence.Attempt, &c.Fence.Epoch, &c.Type, &c.Until, &c.Key, &c.Title, &c.Priority, &c.class,
			&c.Asked.Command, &c.Asked.Digest, &c.Body, &acceptance, &spec, &l.contended, &l.next)
		if err != nil || spec == nil {
			c.Acceptance = acceptance
			return c, err
		}
		return c, json.Unmarshal(spec, &c.Spec)
	})
	if len(l.list) > 0 && l.list[0].Fence.Task == "" {
		l.list = l.list[:0]
	}
	return err
}

// claimedBefore finds what an earlier try of the same claim took.
func (l *try) claimedBefore(ctx context.Context, tx *store.Tx, claim string) error {
	rows, err := tx.Query(ctx, statement("claimed_before"), claim)
	if err != nil {
		return err
	}
	return l.read(rows)
}
