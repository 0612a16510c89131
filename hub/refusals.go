package hub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
)

// Bounds of what refused joins leave in the audit.
const (
	refusalWindow = time.Minute
	maxRefusals   = 64 // different ones at a time
)

// A joinRefusal is why somebody was not let in.
type joinRefusal struct {
	invite string // proven to be held, or ""
	name   string // that the invite is for
	code   commands.Code
	why    string
}

// manyRefusals stands for what exceeds maxRefusals.
var manyRefusals = joinRefusal{code: "JOIN_REFUSED", why: "joins were refused for too many different reasons to keep each"}

// joinRefusals keeps the audit short, whoever logs in and however often: the first
// refusal of its kind is a row at once; the later ones of the same minute become
// one row at its end.
type joinRefusals struct {
	news wait.Signal

	mu    sync.Mutex // guards kinds
	kinds map[joinRefusal]*joinCount
}

// A joinCount counts one kind of refusal since the last row about it.
type joinCount struct {
	since time.Time
	said  bool // the row of the first one was made
	more  int
}

func (r *joinRefusals) start() {
	r.news, r.kinds = wait.NewSignal(), map[joinRefusal]*joinCount{}
}

// note counts a refusal. It waits for nothing.
func (r *joinRefusals) note(kind joinRefusal, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds[kind] == nil && len(r.kinds) >= maxRefusals {
		kind = manyRefusals
	}
	if t := r.kinds[kind]; t != nil {
		t.more++
		return
	}
	r.kinds[kind] = &joinCount{since: now}
	r.news.Send()
}

// due returns the rows to write now; at the end, also those of minutes that are
// not over.
func (r *joinRefusals) due(now time.Time, end bool) (rows []store.AuditRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind, t := range r.kinds {
		row := store.AuditRow{Actor: "joining", Action: "join.refused", Object: kind.name, Code: string(kind.code), Why: kind.why}
		if !t.said {
			t.said = true
			rows = append(rows, row)
		}
		if now.Sub(t.since) < refusalWindow && !end {
			continue
		}
		if t.more == 0 {
			delete(r.kinds, kind)
			continue
		}
		row.Why = fmt.Sprintf("%s (%d more since %s)", kind.why, t.more, t.since.UTC().Format(time.RFC3339))
		rows = append(rows, row)
		t.since, t.more = now, 0
	}
	return rows
}

// some reports whether any are counted.
func (r *joinRefusals) some() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.kinds) > 0
}

// auditRefusedJoins writes what [joinRefusals] collects until ctx ends, and then the
// rest of it.
func (h *Hub) auditRefusedJoins(ctx context.Context) error {
	for ctx.Err() == nil {
		var again <-chan time.Time
		if h.join.refused.some() {
			again = time.After(refusalWindow / 12)
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-h.join.refused.news:
		}
		h.writeRefusals(ctx, h.join.refused.due(time.Now(), ctx.Err() != nil))
	}
	return nil
}

func (h *Hub) writeRefusals(ctx context.Context, rows []store.AuditRow) {
	if len(rows) == 0 {
		return
	}
	// What was refused just before a stop is written, too.
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	if err := h.DB.Audit(ctx, rows...); err != nil {
		h.Log.ErrorContext(ctx, "auditing refused joins", "rows", len(rows), "err", err)
	}
}
