package transport

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// A peer that leaves while its request to pull is on its way leaves one behind
	// that the server takes for alive until it expires: what comes meanwhile is
	// handed to nobody.
	pullExpiry    = 10 * time.Second
	pullHeartbeat = 4 * time.Second // two missed ones and the consumer is looked up again
	backoffMin    = 100 * time.Millisecond
	backoffMax    = 5 * time.Second
)

// A feed hands the messages of one durable consumer to a handler in batches.
//
// One goroutine pulls ahead while the handler works, so a batch is what came
// while the last one was handled: a slow commit makes larger batches, not a
// longer queue. A message pulled over a line that is gone is still handled,
// and acknowledged over the next.
type feed struct {
	lines    *latest[line]
	stream   string
	consumer string
	log      *slog.Logger
}

// run feeds handle until ctx ends, and then returns nil, or until the lines
// are closed for good. Nothing is acknowledged before handle returned nil.
func (f feed) run(ctx context.Context, most int, handle func(context.Context, []delivery) error) error {
	if most < 1 {
		return fmt.Errorf("reading %s: batches of at most %d messages are empty", f.consumer, most)
	}
	reading, stop := context.WithCancel(ctx)
	pulled := make(chan jetstream.Msg, most)
	var reader sync.WaitGroup
	var closed error
	reader.Go(func() {
		closed = f.read(reading, pulled)
		stop()
		close(pulled)
	})
	f.serve(reading, most, pulled, func(batch []delivery) error { return handle(ctx, batch) })
	stop()
	for m := range pulled {
		f.answer(m, "-NAK")
	}
	reader.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return closed
}

// serve handles what is pulled until ctx, under which it is pulled, ends.
func (f feed) serve(ctx context.Context, most int, pulled <-chan jetstream.Msg, handle func([]delivery) error) {
	for {
		batch := gather(ctx, most, pulled)
		if len(batch) == 0 {
			return
		}
		taken := f.insist(ctx, batch, handle)
		answer := "+ACK"
		if !taken {
			answer = "-NAK"
		}
		for _, d := range batch {
			f.answer(d.msg, answer)
		}
		if !taken {
			return
		}
	}
}

// insist hands over the same batch until it is taken, so that nothing
// overtakes it, and returns false when ctx ends before that.
func (f feed) insist(ctx context.Context, batch []delivery, handle func([]delivery) error) bool {
	for wait := backoffMin; ; wait = min(2*wait, backoffMax) {
		err := handle(batch)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		f.log.WarnContext(ctx, "a batch was not taken and comes again", "queue", f.consumer, "messages", len(batch), "in", wait, "err", err)
		for i := range batch {
			f.answer(batch[i].msg, "+WPI") // in progress: not to be handed to us once more meanwhile
			batch[i].count++
		}
		if !pause(ctx, wait) {
			return false
		}
	}
}

// gather waits for one message and adds what else is there. It returns
// nothing when ctx ended or pulled is closed.
func gather(ctx context.Context, most int, pulled <-chan jetstream.Msg) []delivery {
	var batch []delivery
	if ctx.Err() != nil {
		return nil
	}
	select {
	case m, ok := <-pulled:
		if !ok {
			return nil
		}
		batch = append(batch, delivered(m))
	case <-ctx.Done():
		return nil
	}
	for len(batch) < most {
		select {
		case m, ok := <-pulled:
			if !ok {
				return batch
			}
			batch = append(batch, delivered(m))
		default:
			return batch
		}
	}
	return batch
}

// read pulls from the consumer of one line after another until ctx ends.
func (f feed) read(ctx context.Context, pulled chan<- jetstream.Msg) error {
	for wait := backoffMin; ; wait = min(2*wait, backoffMax) {
		l, err := f.lines.await(ctx)
		if err != nil {
			return err
		}
		started := time.Now()
		err = f.pull(ctx, l, pulled)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(started) > backoffMax {
			wait = backoffMin
		}
		f.log.DebugContext(ctx, "reading a queue ended", "queue", f.consumer, "err", err)
		if !pause(ctx, wait) {
			return nil
		}
	}
}

// pull hands on what one line brings until the line or the consumer is lost.
func (f feed) pull(ctx context.Context, l *line, pulled chan<- jetstream.Msg) error {
	looking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	consumer, err := l.js.Consumer(looking, f.stream, f.consumer)
	if err != nil {
		return fmt.Errorf("finding the queue: %w", err)
	}
	messages, err := consumer.Messages(
		jetstream.PullMaxMessages(cap(pulled)),
		jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullHeartbeat),
	)
	if err != nil {
		return fmt.Errorf("pulling: %w", err)
	}
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if ctx.Err() != nil {
			if err == nil {
				f.answer(m, "-NAK")
			}
			f.giveBack(messages)
			return nil
		}
		if err != nil {
			messages.Stop()
			return fmt.Errorf("pulling: %w", err)
		}
		select {
		case pulled <- m:
		case <-ctx.Done():
			f.answer(m, "-NAK")
		}
	}
}

// giveBack refuses what was pulled ahead, so that it need not wait for the
// acknowledgement to time out before somebody else gets it.
func (f feed) giveBack(messages jetstream.MessagesContext) {
	messages.Drain()
	for {
		m, err := messages.Next(jetstream.NextMaxWait(time.Second))
		if err != nil {
			messages.Stop()
			return
		}
		f.answer(m, "-NAK")
	}
}

// answer is best effort: a message whose answer is lost comes again.
func (f feed) answer(m jetstream.Msg, what string) {
	l := f.lines.get()
	if l == nil {
		return
	}
	if err := l.nc.Publish(m.Reply(), []byte(what)); err != nil {
		f.log.Debug("an acknowledgement was not sent and the message comes again", "queue", f.consumer, "err", err)
	}
}

// A delivery is a message as it is handed over.
type delivery struct {
	msg   jetstream.Msg
	count int // how often it was handed over, this time included
}

func delivered(m jetstream.Msg) delivery {
	d := delivery{msg: m, count: 1}
	if meta, err := m.Metadata(); err == nil {
		d.count = int(min(meta.NumDelivered, 1<<30))
	}
	return d
}
