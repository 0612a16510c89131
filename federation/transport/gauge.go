package transport

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Queue is what is known of messages that wait to be read.
type Queue struct {
	Conn     string    // id of the connection
	Name     string    // "reports" or "logs" at a hub, "run" or "ctl" at a link
	Messages int       // that wait or are being handled; packs count once
	Bytes    int64     // of them in the hub's memory; 0 at a link, which is not told
	Oldest   time.Time // when the first of them was stored; zero when there is none, and at a link
	Read     bool      // somebody reads it
	Progress time.Time // when some were last taken or it was last seen empty; zero: never
}

// Still is how long something has waited while nothing was taken. A queue that
// is read and empty is seen empty every 30 seconds.
func (q Queue) Still(now time.Time) time.Duration {
	since := q.Progress
	if q.Oldest.After(since) {
		since = q.Oldest
	}
	if q.Messages == 0 || since.IsZero() {
		return 0
	}
	return now.Sub(since)
}

// A gauge is what a reader shows of itself.
type gauge struct {
	readers  atomic.Int32
	held     atomic.Int32 // messages that it has in its hands, also from a server that is gone
	progress atomic.Int64 // in nanoseconds since 1970; 0: none
}

func (g *gauge) moved() { g.progress.Store(time.Now().UnixNano()) }

func (g *gauge) describe(q Queue) Queue {
	q.Read = g.readers.Load() > 0
	if at := g.progress.Load(); at != 0 {
		q.Progress = time.Unix(0, at)
	}
	return q
}

// gauges are those of one peer.
type gauges struct{ reports, logs gauge }

func (g *gauges) of(from group) *gauge {
	if from.name == groupLogs.name {
		return &g.logs
	}
	return &g.reports
}

func (h *Hub) gaugesOf(conn string) *gauges {
	g, ok := h.gauges.Load(conn)
	if !ok {
		g, _ = h.gauges.LoadOrStore(conn, &gauges{})
	}
	return g.(*gauges)
}

// Queues lists the queues of all peers that were admitted and not forgotten, by
// peer and name. While the server is stopped there are none.
func (h *Hub) Queues() []Queue {
	h.prepare()
	srv := h.gate.server()
	if srv == nil {
		return nil
	}
	account, err := srv.JszAccount(&server.JSzOptions{Account: accountHub, Streams: true})
	if err != nil {
		return nil // it is being stopped
	}
	var all []Queue
	for _, s := range account.Streams {
		if conn, from, ok := parseStream(s.Name); ok {
			q := Queue{Conn: conn, Name: from.name, Messages: int(s.State.Msgs), Bytes: int64(s.State.Bytes)}
			if q.Messages > 0 {
				q.Oldest = s.State.FirstTime
			}
			all = append(all, h.gaugesOf(conn).of(from).describe(q))
		}
	}
	slices.SortFunc(all, func(a, b Queue) int { return cmp.Or(cmp.Compare(a.Conn, b.Conn), cmp.Compare(a.Name, b.Name)) })
	return all
}

// Healthy tells whether messages can be stored now, by storing one and taking it
// away again. Whether they are read is seen by their queues. Without a deadline in
// ctx it takes five seconds at most.
func (h *Hub) Healthy(ctx context.Context) error {
	l := h.main.get()
	if l == nil {
		return fmt.Errorf("the message server does not run: %w", ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return probe(ctx, l, streamCommands, commandSubject(probeToken, commands.QueueControl, "probe"))
}

// WaitingReports counts the reports of a peer that wait or are being handled, packs
// once.
func (h *Hub) WaitingReports(ctx context.Context, conn string) (int, error) {
	l := h.main.get()
	if l == nil {
		return 0, fmt.Errorf("the message server does not run: %w", ErrUnavailable)
	}
	s, err := l.js.Stream(ctx, groupReports.stream(conn))
	if err != nil {
		return 0, fmt.Errorf("asking what waits: %w: %w", ErrUnavailable, err)
	}
	return int(s.CachedInfo().State.Msgs), nil
}

// Queues asks the hub what waits for this spoke, queue by queue.
func (k *Link) Queues(ctx context.Context) ([]Queue, error) {
	l := k.conns.get()
	if l == nil {
		return nil, k.down()
	}
	all := make([]Queue, 0, len(commandQueues))
	for i, queue := range commandQueues {
		c, err := l.js.Consumer(ctx, streamCommands, consumerName(k.ID, queue))
		if err != nil {
			return nil, fmt.Errorf("asking the hub what waits: %w: %w", ErrUnavailable, err)
		}
		info := c.CachedInfo()
		all = append(all, k.gauges[i].describe(Queue{Conn: k.ID, Name: queue, Messages: max(int(info.NumPending)+info.NumAckPending, int(k.gauges[i].held.Load()))}))
	}
	return all, nil
}

// WaitingCommands counts the commands of one queue that a peer has not acknowledged yet,
// packs once.
func (h *Hub) WaitingCommands(ctx context.Context, conn, queue string) (int, error) {
	l := h.main.get()
	if l == nil {
		return 0, fmt.Errorf("the message server does not run: %w", ErrUnavailable)
	}
	c, err := l.js.Consumer(ctx, streamCommands, consumerName(conn, queue))
	if err != nil {
		return 0, fmt.Errorf("asking what waits: %w: %w", ErrUnavailable, err)
	}
	info := c.CachedInfo()
	return int(info.NumPending) + info.NumAckPending, nil
}
