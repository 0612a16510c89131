// Package refusals keeps the audit short, whoever is refused at a door that is open to everybody, and
// however often: the first refusal of its kind is a row at once; the later ones of the same minute
// become one row at its end.
package refusals

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
)

// Bounds of what refusals leave in the audit.
const (
	window   = time.Minute
	maxKinds = 64 // different ones at a time
)

// A Counter counts refusals by the row that each would be.
type Counter struct {
	news wait.Signal
	many store.AuditRow

	mu    sync.Mutex // guards kinds
	kinds map[store.AuditRow]*count
}

// A count is of one kind since the last row about it.
type count struct {
	since time.Time
	said  bool // the row of the first one was made
	more  int
}

// New makes a counter. The row many stands for kinds that are too many to keep each.
func New(many store.AuditRow) *Counter {
	return &Counter{news: wait.NewSignal(), many: many, kinds: map[store.AuditRow]*count{}}
}

// Note counts a refusal. It waits for nothing.
func (c *Counter) Note(kind store.AuditRow) { c.note(kind, time.Now()) }

func (c *Counter) note(kind store.AuditRow, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds[kind] == nil && len(c.kinds) >= maxKinds {
		kind = c.many
	}
	if t := c.kinds[kind]; t != nil {
		t.more++
		return
	}
	c.kinds[kind] = &count{since: now}
	c.news.Send()
}

// due returns the rows to write now; at the end, also those of minutes that are
// not over.
func (c *Counter) due(now time.Time, end bool) (rows []store.AuditRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind, t := range c.kinds {
		if !t.said {
			t.said = true
			rows = append(rows, kind)
		}
		if now.Sub(t.since) < window && !end {
			continue
		}
		if t.more == 0 {
			delete(c.kinds, kind)
			continue
		}
		row := kind
		row.Why = fmt.Sprintf("%s (%d more since %s)", kind.Why, t.more, t.since.UTC().Format(time.RFC3339))
		rows = append(rows, row)
		t.since, t.more = now, 0
	}
	return rows
}

// some reports whether any are counted.
func (c *Counter) some() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.kinds) > 0
}

// Write writes what is counted until ctx ends, and then the rest of it.
func (c *Counter) Write(ctx context.Context, db *store.DB, log *slog.Logger) error {
	for ctx.Err() == nil {
		var again <-chan time.Time
		if c.some() {
			again = time.After(window / 12)
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-c.news:
		}
		c.write(ctx, db, log, c.due(time.Now(), ctx.Err() != nil))
	}
	return nil
}

func (c *Counter) write(ctx context.Context, db *store.DB, log *slog.Logger, rows []store.AuditRow) {
	if len(rows) == 0 {
		return
	}
	// What was refused just before a stop is written, too.
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	if err := db.Audit(ctx, rows...); err != nil {
		log.ErrorContext(ctx, "auditing refusals", "action", c.many.Action, "rows", len(rows), "err", err)
	}
}
