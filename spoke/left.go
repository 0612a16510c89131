package spoke

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
)

// leaveFor is how long an order is left that this host cannot judge: its hub may have another spoke for it, and what it says of that order
// meanwhile has no effect. maxLeft bounds what is remembered of a connection, and leftFor for how long: its orders come again before.
const (
	leaveFor = time.Minute
	maxLeft  = 1024
	leftFor  = 10 * time.Minute
)

// left remembers the orders that this host could not judge. After a restart it begins anew.
type left struct {
	most  time.Duration // how long one is left; 0 = leaveFor
	mu    sync.Mutex    // guards since
	since map[string]map[string]time.Time
}

// leave reports whether an order that cannot be judged now is left once more. Where a connection has too many of them it is not.
func (l *left) leave(conn, order string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since == nil {
		l.since = map[string]map[string]time.Time{}
	}
	if l.since[conn] == nil {
		l.since[conn] = map[string]time.Time{}
	}
	orders := l.since[conn]
	if first, ok := orders[order]; ok {
		return now.Sub(first) < cmp.Or(l.most, leaveFor)
	}
	if len(orders) >= maxLeft {
		maps.DeleteFunc(orders, func(_ string, first time.Time) bool { return now.Sub(first) > leftFor })
	}
	if len(orders) >= maxLeft {
		return false
	}
	orders[order] = now
	return true
}

// judged forgets an order that is judged: it counts no more among those that are left.
func (l *left) judged(conn, order string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since[conn], order)
}

// unjudged says what becomes of an order that a fault of this host keeps from being judged. It is left for a while, and refused then in
// words that are the same whatever there is at its paths. One that expires before is refused at once: another spoke may be in time for it.
// One that its hub has killed is left no more: it is answered so. No policy has decided.
func (s *Spoke) unjudged(ctx context.Context, m *store.Incoming, named *policy.Named) *commands.Refused {
	fault, now := withoutPath(named.Fault), time.Now()
	m.Policy = ""
	if killed, err := s.backlog.Killed(ctx, m.Conn, m.Task()); err == nil && killed {
		return nil
	}
	if now.Add(leaveFor).Before(time.UnixMilli(m.Header.Exp)) && s.left.leave(m.Conn, m.Header.ID, now) {
		m.Later = errors.New(fault)
	}
	m.Aside = fault
	r := policy.Unopened()
	r.Code = commands.Capability // which every hub takes for a lack of this spoke, and for no word of its policy
	return r
}
