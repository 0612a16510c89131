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
// meanwhile has no effect. maxLeft bounds those of a connection that are left at once, maxKept what is remembered of it, and leftFor for how
// long: its orders come again before.
const (
	leaveFor = time.Minute
	maxLeft  = 1024
	maxKept  = 8 * maxLeft
	leftFor  = 10 * time.Minute
)

// comesAgain is the longest pause of a hub that sends an order again. What has not come since is not known to be left.
const comesAgain = 5 * time.Minute

// left remembers the orders that this host could not judge. After a restart it begins anew.
type left struct {
	most  time.Duration                   // how long one is left; 0 = leaveFor
	mu    sync.Mutex                      // guards since
	since map[string]map[string]leftOrder // by connection and order
}

// A leftOrder is an order that is left, or was: one that is refused comes again where its answer was lost.
type leftOrder struct {
	task string
	at   time.Time // when it was left first
	over bool      // it was refused
}

// patience is how long an order is left.
func (l *left) patience() time.Duration { return cmp.Or(l.most, leaveFor) }

// leave reports whether an order that cannot be judged now is left once more. Where a connection has too many of them it is not.
func (l *left) leave(conn, order, task string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since == nil {
		l.since = map[string]map[string]leftOrder{}
	}
	if l.since[conn] == nil {
		l.since[conn] = map[string]leftOrder{}
	}
	orders := l.since[conn]
	if first, ok := orders[order]; ok {
		return now.Sub(first.at) < l.patience()
	}
	if len(orders) >= maxLeft {
		maps.DeleteFunc(orders, func(_ string, first leftOrder) bool { return now.Sub(first.at) > leftFor })
	}
	if len(orders) >= maxKept || l.waiting(orders, now) >= maxLeft {
		return false
	}
	orders[order] = leftOrder{task: task, at: now}
	return true
}

// waiting counts those of orders that are left still. One that was refused is remembered: it may come again.
func (l *left) waiting(orders map[string]leftOrder, now time.Time) (n int) {
	for _, o := range orders {
		if !o.over && now.Sub(o.at) < l.patience() {
			n++
		}
	}
	return n
}

// judged forgets an order that is judged, or needs no judging: its task is known, or killed.
func (l *left) judged(conn, order string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since[conn], order)
}

// end notes that an order is left no more, though it is not judged.
func (l *left) end(conn, order string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o, ok := l.since[conn][order]; ok {
		o.over = true
		l.since[conn][order] = o
	}
}

// why says why the order of a task is left; nil where none is.
func (l *left) why(conn, task string) []commands.WhyReason {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.since[conn] {
		if o.task == task && !o.over && time.Since(o.at) < l.patience()+comesAgain {
			until := o.at.Add(l.patience())
			return []commands.WhyReason{{Code: commands.CauseHost, Since: &o.at, Until: &until, Fix: "mended on its host, whose log says what it is",
				Text: policy.Unopened().Why + "; it comes again, and is refused where that lasts"}}
		}
	}
	return nil
}

// unjudged says what becomes of an order that a fault of this host keeps from being judged. It is left for a while, and refused then in
// words that are the same whatever there is at its paths. One that expires before is refused at once: another spoke may be in time for it.
// One that its hub has killed is left no more: it is answered so. No policy has decided.
func (s *Spoke) unjudged(ctx context.Context, m *store.Incoming, named *policy.Named) *commands.Refused {
	fault, now := withoutPath(named.Fault), time.Now()
	m.Policy = ""
	if killed, err := s.backlog.Killed(ctx, m.Conn, m.Task()); err == nil && killed {
		s.left.judged(m.Conn, m.Header.ID)
		return nil
	}
	if now.Add(s.left.patience()).Before(time.UnixMilli(m.Header.Exp)) && s.left.leave(m.Conn, m.Header.ID, m.Task(), now) {
		m.Later = errors.New(fault)
	} else {
		s.left.end(m.Conn, m.Header.ID)
	}
	m.Aside = fault
	r := policy.Unopened()
	r.Code = commands.Capability // which every hub takes for a lack of this spoke, and for no word of its policy
	return r
}
