package federation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/store"
)

// stillFor is how long something may wait in a queue while nothing is taken. A
// queue that is read and empty is seen empty every 30 seconds.
const stillFor = 45 * time.Second

// A QueueView is a queue of a connection, from which messages are taken in here.
type QueueView struct {
	Queue    string     `json:"queue"`
	Messages int        `json:"messages"`              // that wait or are being handled
	Bytes    int64      `json:"bytes,omitempty"`       // of them; not known where they wait at a hub
	Still    *time.Time `json:"still_since,omitempty"` // since when nothing is taken of what waits, where that is too long
	Problem  string     `json:"problem,omitempty"`     // the same in words, and what to do
}

// Queues returns the queues that are to be read here, by connection: those of the
// connections of one authority. Each peer that is obeyed is asked for its own.
func (b *Board) Queues(ctx context.Context, of store.Authority) map[string][]QueueView {
	all := map[string][]QueueView{}
	if of == store.Obeys {
		for _, x := range b.Exchanges() {
			all[x.id] = b.askQueues(ctx, x)
		}
		return all
	}
	if b.Server != nil {
		for _, q := range b.Server.Queues() {
			if x := b.Exchange(q.Conn); x != nil {
				all[x.id] = append(all[x.id], b.judgeQueue(x, q))
			}
		}
	}
	return all
}

// QueuesOf returns those of one connection, and asks nobody but its peer.
func (b *Board) QueuesOf(ctx context.Context, c store.Connection) []QueueView {
	if c.Authority == store.Commands {
		return b.Queues(ctx, store.Commands)[c.ID]
	}
	if x := b.Exchange(c.ID); x != nil {
		return b.askQueues(ctx, x)
	}
	return nil
}

// askQueues asks a peer that we dial what waits at its side. Without a link there is
// nothing.
func (b *Board) askQueues(ctx context.Context, x *Exchange) (views []QueueView) {
	d, ok := x.way.(dialled)
	if !ok || d.link() == 0 {
		return nil
	}
	ctx, done := x.brief(ctx)
	defer done()
	list, err := d.Queues(ctx)
	if err != nil {
		x.log.DebugContext(ctx, "asking what waits", "err", err)
	}
	for _, q := range list {
		if up := d.State().Since; q.Progress.Before(up) { // when the first one came is not told
			q.Progress = up
		}
		views = append(views, b.judgeQueue(x, q))
	}
	return views
}

// judgeQueue judges one queue. One that is not to be read now is no problem.
func (b *Board) judgeQueue(x *Exchange, q transport.Queue) QueueView {
	w := QueueView{Queue: q.Name, Messages: q.Messages, Bytes: q.Bytes}
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
	for _, of := range []store.Authority{store.Commands, store.Obeys} {
		for conn, queues := range b.Queues(ctx, of) {
			s, _ := b.Status(conn)
			for _, q := range queues {
				if q.Problem != "" {
					list = append(list, Unread{fmt.Sprintf("%s of %s", q.Queue, s.Name), q.Problem})
				}
			}
		}
	}
	slices.SortFunc(list, func(x, y Unread) int { return cmp.Compare(x.Name, y.Name) })
	return list
}
