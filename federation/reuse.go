package federation

import (
	"context"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/store"
)

// A reuse is a number that the peer has used twice: one of the sides was restored
// from a backup without noticing it. This side then sends its digest with every
// heartbeat, and the reuse is over when the peer has compared the digest and says
// that the histories agree. The peer may have to change its numbers first.
type reuse struct {
	number int64     // 0: there is none
	told   bool      // a heartbeat with the digest was sent
	since  time.Time // when the first of raised was
	raised int       // reuses within an hour
}

// maxReuses is how many reuses an hour may have: a restore raises one or two.
const maxReuses = 5

func (d reuse) why() string {
	return fmt.Sprintf("the peer used number %d twice; it is asked to compare", d.number)
}

// raise notes that a number was used twice, and reports whether that was too often within an hour. Numbers that are used twice
// until the sides have compared are one reuse.
func (d *reuse) raise(number int64, now time.Time) (many bool) {
	if d.number == 0 {
		if now.Sub(d.since) > time.Hour {
			d.since, d.raised = now, 0
		}
		d.raised++
	}
	d.number, d.told = number, false
	return d.raised > maxReuses
}

// byNumbers is who suspends a connection whose peer uses numbers twice again and
// again.
const byNumbers = "numbers"

// numberReused stops what goes out until the histories were compared once more. A peer
// that gives rise to it again and again is suspended.
func (x *Exchange) numberReused(ctx context.Context, p *Peer, number int64) error {
	x.mu.Lock()
	many := x.history.reuse.raise(number, time.Now())
	x.history.link, x.history.differs = 0, x.history.reuse.why()
	x.broadcast()
	x.mu.Unlock()
	if many && p.State == store.Active {
		return x.board.changeBySelf(ctx, p, store.Suspended, fmt.Sprintf("number %d was used twice, as others before: does another instance run with the key of %s?", number, p.Name), byNumbers)
	}
	return nil
}
