package federation

import (
	"context"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/store"
)

// A doubt is raised when a peer uses a number twice: one of the sides was restored
// from a backup without noticing it. It is told with the next heartbeat, by a
// digest, and over when the peer has compared that and agrees, if need be after it
// went on with other numbers.
type doubt struct {
	number int64 // 0: there is none
	told   bool
	since  time.Time // when the first of raised was
	raised int       // doubts within an hour
}

// maxDoubts is how many doubts an hour may have: a restore raises one or two.
const maxDoubts = 5

func (d doubt) why() string {
	return fmt.Sprintf("the peer used number %d twice; it is asked to compare", d.number)
}

// byNumbers is who suspends a connection whose peer uses numbers twice again and
// again.
const byNumbers = "numbers"

// doubt stops what goes out until the histories were compared once more. A peer
// that gives rise to it again and again is suspended.
func (x *Exchange) doubt(ctx context.Context, p *Peer, number int64) error {
	x.mu.Lock()
	d := &x.accord.doubt
	if d.number == 0 {
		if time.Since(d.since) > time.Hour {
			d.since, d.raised = time.Now(), 0
		}
		d.raised++
	}
	d.number, d.told = number, false
	x.accord.link, x.accord.differs = 0, d.why()
	many := d.raised > maxDoubts
	x.tell()
	x.mu.Unlock()
	if many && p.State == store.Active {
		return x.board.changeBySelf(ctx, p, store.Suspended, fmt.Sprintf("number %d was used twice, as others before: does another instance run with the key of %s?", number, p.Name), byNumbers)
	}
	return nil
}
