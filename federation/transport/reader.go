package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

const (
	// pullExpiry is how long one request waits for messages. A queue where
	// nothing happens costs one request and its answer in that time.
	pullExpiry = 30 * time.Second
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// A reader hands the messages of one durable consumer to a handler in batches.
//
// It asks for the next batch when the last one was handled, so a batch is what
// came meanwhile: a slow commit makes larger batches, not a longer queue. A
// message that came over a connection that is gone is still handled, and acknowledged
// over the next one to the same server.
type reader struct {
	conns    *latest[natsConn]
	stream   string
	consumer string
	log      *slog.Logger

	// room bounds what all readers of a process hold. A reader with a room first waits
	// for the server's notice that messages wait, without pulling them. Nil: no bound.
	room *room

	gauge *gauge
}

// A room bounds what the readers over one connection hold at a time.
type room struct {
	// pulling lets one reader pull at a time. The server closes a connection that has
	// more than maxPending bytes to be written, and counts a pull until its last byte
	// is written. One pull after another keeps that below two pulls.
	pulling *semaphore.Weighted

	// held counts the bytes that were pulled and are not handled yet. The first
	// leastBytes of each reader are not counted: a reader can always pull a small batch,
	// however much the others hold.
	held *semaphore.Weighted
}

const (
	pullMost = 6 << 20 // bytes of one pull; two and a bit fit maxPending
	heldMost = 64 << 20
)

func newRoom() *room {
	return &room{pulling: semaphore.NewWeighted(1), held: semaphore.NewWeighted(heldMost)}
}

// A handler takes a batch, or returns why it did not.
type handler func(context.Context, []delivery) error

// run hands batches to handle until ctx ends, and then returns nil, or until the connections
// are closed for good or somebody else is found to read the same. Nothing is acknowledged before handle returned nil.
func (r reader) run(ctx context.Context, most Most, handle handler) error {
	most, err := most.check()
	if err != nil {
		return fmt.Errorf("reading queue %s of stream %s: %w", r.consumer, r.stream, err)
	}
	r.gauge.readers.Add(1)
	defer r.gauge.readers.Add(-1)
	for delay := backoffMin; ; delay = min(2*delay, backoffMax) {
		l, err := r.conns.await(ctx)
		if err == nil {
			started := time.Now()
			err = r.read(ctx, l, most, handle)
			if time.Since(started) > backoffMax {
				delay = backoffMin
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, ErrClosed) || errors.Is(err, errTaken) {
			return fmt.Errorf("reading queue %s of stream %s: %w", r.consumer, r.stream, err)
		}
		r.log.DebugContext(ctx, "reading a queue ended", "queue", r.consumer, "stream", r.stream, "err", err)
		if wait.For(ctx, delay) != nil {
			return nil
		}
	}
}

// read hands on what one connection brings until the connection, the consumer or ctx ends.
func (r reader) read(ctx context.Context, l *natsConn, most Most, handle handler) error {
	q, err := l.open(r.stream, r.consumer, most.Messages)
	if err != nil {
		return err
	}
	defer q.close()
	for delay := backoffMin; ; {
		taken, err := r.next(ctx, q, most, handle)
		if err != nil {
			return err
		}
		if taken {
			delay = backoffMin
			continue
		}
		if wait.For(ctx, delay) != nil {
			return context.Cause(ctx)
		}
		delay = min(2*delay, backoffMax)
	}
}

// next waits for one batch and hands it over. It returns false when the batch
// was not taken: it is in front of its queue again then.
func (r reader) next(ctx context.Context, q *queue, most Most, handle handler) (taken bool, err error) {
	got, leave, err := r.wait(ctx, q, most)
	r.gauge.held.Store(int32(len(got)))
	defer r.gauge.held.Store(0)
	defer leave()
	switch {
	case ctx.Err() != nil:
		r.answer(q, got, "-NAK")
		return false, context.Cause(ctx)
	case len(got) == 0 && err != nil:
		return false, err
	case len(got) == 0:
		r.gauge.moved()
		return true, nil
	}
	if cause := handle(ctx, got); cause != nil {
		r.answer(q, got, "-NAK")
		r.log.WarnContext(ctx, "a batch was not taken and comes again", "stream", r.stream, "queue", r.consumer, "messages", len(got), "err", cause)
		return false, err
	}
	r.answer(q, got, "+ACK")
	r.gauge.moved()
	return true, err
}

// wait waits for one batch, as large as there is room for. leave gives the room
// back.
func (r reader) wait(ctx context.Context, q *queue, most Most) (got []delivery, leave func(), err error) {
	leave = func() {}
	if r.room == nil {
		got, _, err = q.pull(ctx, most, pullExpiry)
		return got, leave, err
	}
	if some, err := q.arrived(ctx, pullExpiry); err != nil || !some {
		return nil, leave, err
	}
	if err := r.room.pulling.Acquire(ctx, 1); err != nil {
		return nil, leave, err
	}
	defer r.room.pulling.Release(1)
	if !r.room.held.TryAcquire(int64(most.Bytes - leastBytes)) {
		most.Bytes = leastBytes
	}
	got, _, err = q.pull(ctx, most, 0)
	held := min(max(size(got), leastBytes), most.Bytes)
	r.room.held.Release(int64(most.Bytes - held))
	return got, func() { r.room.held.Release(int64(held - leastBytes)) }, err
}

// answer is best effort: a message whose answer is lost comes again. Another server than
// the one that q is at could take the answer for one to a message of its own.
func (r reader) answer(q *queue, got []delivery, what string) {
	l := r.conns.get()
	if l == nil || l.server != q.conn.server {
		return
	}
	for _, d := range got {
		if err := l.nc.Publish(d.msg.Reply, []byte(what)); err != nil {
			r.log.Debug("an acknowledgement was not sent and the message comes again", "stream", r.stream, "queue", r.consumer, "err", err)
			return
		}
	}
}

// A delivery is a message as it is handed over.
type delivery struct {
	msg   *nats.Msg
	count int // how often it was handed over, this time included
}

func delivered(m *nats.Msg) delivery {
	d := delivery{msg: m, count: 1}
	if meta, err := m.Metadata(); err == nil {
		d.count = int(min(meta.NumDelivered, 1<<30))
	}
	return d
}

// size is what a batch takes of Most.Bytes.
func size(batch []delivery) (bytes int) {
	for _, d := range batch {
		bytes += d.msg.Size()
	}
	return bytes
}
