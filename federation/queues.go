package federation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/federation/transport"
)

// stillFor is how long something may wait in a queue while nothing is taken. A
// queue that is read and empty is seen empty every 30 seconds.
const stillFor = 45 * time.Second

// A Waiting is a queue of a connection, from which messages are taken in here.
type Waiting struct {
	Queue    string     `json:"queue"`
	Messages int        `json:"messages"`              // that wait or are being handled
	Bytes    int64      `json:"bytes,omitempty"`       // of them; not known where they wait at a hub
	Still    *time.Time `json:"still_since,omitempty"` // since when nothing is taken of what waits, where that is too long
	Problem  string     `json:"problem,omitempty"`     // the same in words, and what to do
}

// Queues returns the queues that are to be read here, by connection. Of a peer
// that we dial they are at its side: without a link there are none.
func (b *Board) Queues(ctx context.Context) map[string][]Waiting {
	all := map[string][]Waiting{}
	if b.Server != nil {
		for _, q := range b.Server.Queues() {
			if x := b.Exchange(q.Conn); x != nil {
				all[x.id] = append(all[x.id], b.waiting(x, q))
			}
		}
	}
	for _, x := range b.Exchanges() {
		d, ok := x.way.(dialled)
		if !ok || d.link() == 0 {
			continue
		}
		asking, done := x.brief(ctx)
		list, err := d.Queues(asking)
		done()
		if err != nil {
			x.log.DebugContext(ctx, "asking what waits", "err", err)
		}
		for _, q := range list {
			if up := d.State().Since; q.Progress.Before(up) { // when the first one came is not told
				q.Progress = up
			}
			all[x.id] = append(all[x.id], b.waiting(x, q))
		}
	}
	return all
}

// waiting judges one queue. One that is not to be read now is no problem.
func (b *Board) waiting(x *Exchange, q transport.Queue) Waiting {
	w := Waiting{Queue: q.Name, Messages: q.Messages, Bytes: q.Bytes}
	still := q.Still(time.Now())
	if wanted, _ := x.reads(q.Name); !wanted || still <= cmp.Or(b.StillFor, stillFor) {
		return w
	}
	since := time.Now().Add(-still)
	w.Still = &since
	why := "nobody reads them; restart this instance"
	if q.Read {
		why = "their reader does not take them; its log says why, or else see whether its database answers"
	}
	w.Problem = fmt.Sprintf("%d messages wait, and none was taken since %s: %s", q.Messages, since.Format(time.DateTime), why)
	return w
}

// An Unread is a queue that stands still.
type Unread struct {
	Name    string // of the queue and the peer
	Problem string
}

// Unread returns the queues that stand still, by name.
func (b *Board) Unread(ctx context.Context) (list []Unread) {
	for conn, queues := range b.Queues(ctx) {
		s, _ := b.Status(conn)
		for _, q := range queues {
			if q.Problem != "" {
				list = append(list, Unread{fmt.Sprintf("%s of %s", q.Queue, s.Name), q.Problem})
			}
		}
	}
	slices.SortFunc(list, func(x, y Unread) int { return cmp.Compare(x.Name, y.Name) })
	return list
}
