package hub

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
)

// A hub that was restored from a backup has less of its agents' output than their
// spokes have sent. It does not know of which. So with each start, and when results
// come after a spoke was asked what it knows, it looks through what has ended, the
// newest first, a page at a time, and asks the spokes for what is not here. What a
// spoke does not have either it says to be lost.

const (
	// askAgain is how long the rest of an agent's output may take before its spoke is
	// told again what is here.
	askAgain = 5 * time.Second
	// askMost is how often that is done while nothing comes.
	askMost = 3
	// lateResults is how long after a restore results come that were sent before.
	lateResults = 10 * time.Minute
)

// lacking is which connections are to be looked through, and how far that is.
type lacking struct {
	news wait.Signal // sent when a connection is due

	mu       sync.Mutex // guards due and recalled
	due      map[string]time.Time
	recalled map[string]time.Time

	// Of the goroutine that looks:
	conns []string // that are looked through now; none between two rounds
	at    string   // the task before which it goes on
	asked []store.Lack
	when  time.Time // asked was
	times int       // that nothing had come meanwhile
}

// add has a connection looked through soon.
func (l *lacking) add(conn string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due == nil {
		l.due, l.recalled = map[string]time.Time{}, map[string]time.Time{}
	}
	l.due[conn] = at
	l.news.Send()
}

// nothing reports whether no connection is looked through, or due to be.
func (l *lacking) nothing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.due) == 0 && len(l.conns) == 0
}

// restored notes that a spoke has told this hub what it had ordered.
func (l *lacking) restored(conn string) {
	l.add(conn, time.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recalled[conn] = time.Now()
}

// ended has those connections looked through whose results may be older than this
// hub's memory.
func (l *lacking) ended(batch []*store.Incoming) {
	for _, m := range batch {
		if m.Header.Kind != string(commands.ResultKind) {
			continue
		}
		l.mu.Lock()
		late := time.Since(l.recalled[m.Conn]) < lateResults
		l.mu.Unlock()
		if late {
			l.add(m.Conn, time.Now().Add(askAgain))
		}
	}
}

// begin takes up the connections that are due and can be asked.
func (l *lacking) begin(linked func(conn string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn, at := range l.due {
		if time.Now().After(at) && linked(conn) {
			l.conns = append(l.conns, conn)
			delete(l.due, conn)
		}
	}
}

// askForAllOutput looks as long as there is something to look through.
func (h *Hub) askForAllOutput(ctx context.Context) error {
	for ctx.Err() == nil {
		h.askForOutput(ctx)
		if h.lacking.nothing() {
			select {
			case <-ctx.Done():
			case <-h.lacking.news:
			}
			continue
		}
		_ = wait.For(ctx, time.Second)
	}
	return nil
}

// askForOutput goes on looking, a bounded number of pages at a time.
func (h *Hub) askForOutput(ctx context.Context) {
	l := &h.lacking
	if len(l.conns) == 0 {
		l.at, l.asked, l.times = "", nil, 0
		l.begin(h.agrees)
	}
	for pages := 0; len(l.conns) > 0 && pages < 10 && ctx.Err() == nil; pages++ {
		list, next, err := h.DB.LacksOutput(ctx, l.conns, l.at)
		if err != nil {
			h.Log.DebugContext(ctx, "looking for output that is not here; it is tried again", "err", err)
			return
		}
		if len(list) > 0 && !l.enough(list) {
			if time.Since(l.when) >= askAgain || l.asked == nil {
				h.askFor(ctx, list)
				l.asked, l.when = list, time.Now()
			}
			return
		}
		l.at, l.asked, l.times = next, nil, 0
		if next == "" {
			l.conns = nil
		}
	}
}

// enough reports whether list was asked for as often as makes sense.
func (l *lacking) enough(list []store.Lack) bool {
	if l.asked == nil || time.Since(l.when) < askAgain {
		return false
	}
	if !slices.Equal(list, l.asked) {
		l.times = 0
		return false
	}
	l.times++
	return l.times >= askMost
}

// agrees reports whether messages can go to the peer of a connection now.
func (h *Hub) agrees(conn string) bool {
	x := h.board.Exchange(conn)
	return x != nil && x.AgreedLink() != 0
}

// askFor tells spokes how much is here of what they have said.
func (h *Hub) askFor(ctx context.Context, list []store.Lack) {
	byConn := map[string][]commands.StoredStream{}
	for _, s := range list {
		byConn[s.Conn] = append(byConn[s.Conn], commands.StoredStream{Task: s.Task, Attempt: s.Attempt, Stream: s.Stream, Through: s.Through})
	}
	for conn, streams := range byConn {
		h.sendStored(ctx, conn, streams)
	}
}
