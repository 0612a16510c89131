package webhook

import (
	"context"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/store"
)

// A lane has the deliveries of one webhook that this process has claimed. A few of them are tried at a time, and the
// others wait; when one fails, those that wait are given back: what the webhook gets next is decided by the database.
type lane struct {
	turn chan struct{} // holds one for each try

	left  int // of those that were claimed, guarded by the mutex of all lanes
	stops int // how often those that waited were given back, guarded by it
}

// lanes are those of all webhooks that are being told.
type lanes struct {
	mu sync.Mutex // guards of
	of map[string]*lane
}

// A place is that of a delivery in its lane.
type place struct {
	*lane
	all   *lanes
	id    string // of the webhook
	stops int    // of the lane when it was claimed
	until time.Time
}

// enter takes a place for a delivery that was claimed, to be tried until then.
func (l *lanes) enter(webhook string, until time.Time) place {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.of[webhook]
	if at == nil {
		if l.of == nil {
			l.of = map[string]*lane{}
		}
		at = &lane{turn: make(chan struct{}, store.AtOnce)}
		l.of[webhook] = at
	}
	at.left++
	return place{lane: at, all: l, id: webhook, stops: at.stops, until: until}
}

// wait waits until the delivery may be tried. It is false where it is to be given back.
func (p place) wait(ctx context.Context) bool {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	if p.lane.stops == p.stops && ctx.Err() == nil && time.Now().Before(p.until) {
		return true
	}
	<-p.turn
	return false
}

// tried ends the turn of a delivery that was tried.
func (p place) tried(failed bool) {
	if failed { // before another one may have its turn
		p.all.giveBack(p.id)
	}
	<-p.turn
}

// giveBack has those of a webhook given back that wait.
func (l *lanes) giveBack(webhook string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.of[webhook]; at != nil {
		at.stops++
	}
}

// leave gives the place up, and says whether so few others are left that more may be claimed.
func (p place) leave() (few bool) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	if p.left--; p.left == 0 {
		delete(p.all.of, p.id)
	}
	return p.left <= store.AtOnce
}
