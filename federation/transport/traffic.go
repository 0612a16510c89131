package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Publish queues commands for their peers, connected or not, and returns one
// error per command: nil once its queue has it, ErrQuota, ErrUnavailable, or what
// is wrong with the command itself. All are sent in one go, neighbours for the
// same queue in packs. A command with the id of one that waits, or that was
// published within ten minutes, counts as stored and is not stored again.
func (h *Hub) Publish(ctx context.Context, list []Command) []error {
	return publish(ctx, h.main.get(), ErrUnavailable, list, func(c Command) (*nats.Msg, error) {
		m, err := commandMessage(c)
		if err == nil && c.Queue == commands.QueueRun && !h.fits(ctx, int64(len(c.Envelope))) {
			err = fmt.Errorf("%w: it leaves a sixteenth to what starts no work", ErrQuota)
		}
		return m, err
	})
}

func commandMessage(c Command) (*nats.Msg, error) {
	if err := errors.Join(checkID("peer", c.Conn), checkID("verb", c.Verb), checkMessage(c.ID, c.Envelope, MaxCommand)); err != nil {
		return nil, err
	}
	if !slices.Contains(commandQueues, c.Queue) {
		return nil, fmt.Errorf("command %s: there is no queue %q", c.ID, c.Queue)
	}
	return stamped(commandSubject(c.Conn, c.Queue, c.Verb), c.ID, c.Envelope), nil
}

func reportMessage(conn string) func(Report) (*nats.Msg, error) {
	return func(r Report) (*nats.Msg, error) {
		if err := checkReport(r); err != nil {
			return nil, err
		}
		return stamped(reportSubject(conn, r.Queue), r.ID, r.Envelope), nil
	}
}

func checkReport(r Report) error {
	if !slices.Contains(reportQueues, r.Queue) {
		return fmt.Errorf("report %s: there is no kind %q", r.ID, r.Queue)
	}
	return checkMessage(r.ID, r.Envelope, MaxReport)
}

func stamped(subject, id string, body []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: body, Header: nats.Header{jetstream.MsgIDHeader: {id}}}
}

// publish sends over l what can be sent. Without a connection everything that is
// well formed fails with down.
func publish[T any](ctx context.Context, l *natsConn, down error, items []T, encode func(T) (*nats.Msg, error)) []error {
	errs := make([]error, len(items))
	var msgs []*nats.Msg
	var at []int // where in items each message comes from
	for i, item := range items {
		m, err := encode(item)
		if err != nil {
			errs[i] = err
			continue
		}
		msgs, at = append(msgs, m), append(at, i)
	}
	packed, places := pack(msgs)
	var sent []error
	if l == nil {
		sent = slices.Repeat([]error{down}, len(packed))
	} else {
		sent = l.publish(ctx, packed)
	}
	for n, err := range sent {
		for _, j := range places[n] {
			errs[at[j]] = err
		}
	}
	return errs
}

// Reports hands the events and results of one peer to handle, at most most at a
// time, until ctx ends; it then returns nil. It may be called before the peer
// is admitted and goes on when it is cut; what waits is handed on then, too. A
// batch is acknowledged after handle returned nil. When handle returns an error
// the same reports come again after 0.1 to 5 seconds, and nothing overtakes
// them. A second call for a peer that is being read returns an error.
//
// All handlers of a Hub together have 64 MiB in their hands at most, without the
// first 0.6 MiB of each. When that is reached batches become small.
func (h *Hub) Reports(ctx context.Context, conn string, most Most, handle func(context.Context, []Report) error) error {
	return h.take(ctx, conn, groupReports, most, handle)
}

// Logs is Reports for logs. Neither holds up the other.
func (h *Hub) Logs(ctx context.Context, conn string, most Most, handle func(context.Context, []Report) error) error {
	return h.take(ctx, conn, groupLogs, most, handle)
}

func (h *Hub) take(ctx context.Context, conn string, from group, most Most, handle func(context.Context, []Report) error) error {
	h.prepare()
	if err := checkID("peer", conn); err != nil {
		return fmt.Errorf("reading %s: %w", from.name, err)
	}
	r := reader{conns: &h.main, stream: from.stream(conn), consumer: takeName, log: h.Log, room: h.room, gauge: h.gaugesOf(conn).of(from)}
	return r.run(ctx, most, func(ctx context.Context, batch []delivery) error {
		reports := make([]Report, 0, len(batch))
		for _, d := range batch {
			conn, queue, ok := parseReport(d.msg.Subject)
			if !ok {
				return fmt.Errorf("the queue holds a message that is not a report, on %s", d.msg.Subject)
			}
			id := d.msg.Header.Get(jetstream.MsgIDHeader)
			for _, body := range unpack(d.msg.Data) {
				reports = append(reports, Report{Conn: conn, Queue: queue, ID: id, Envelope: body, Deliveries: d.count})
			}
		}
		return inParts(ctx, most, reports, handle)
	})
}

// inParts hands over what a batch of packs holds, as many at a time as were
// asked for.
func inParts[T any](ctx context.Context, most Most, items []T, handle func(context.Context, []T) error) error {
	for part := range slices.Chunk(items, most.Messages) {
		if err := handle(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func probe(ctx context.Context, l *natsConn, stream, subject string) error {
	const tries = 2 * time.Second
	trying, cancel := context.WithTimeout(ctx, tries)
	defer cancel()
	if err := l.publish(trying, []*nats.Msg{nats.NewMsg(subject)})[0]; err != nil {
		return fmt.Errorf("storing a probe in %s: %w", stream, err)
	}
	s, err := l.js.Stream(ctx, stream)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(subject))
	}
	if err != nil {
		return fmt.Errorf("removing the probe from %s: %w: %w", stream, ErrUnavailable, err)
	}
	return nil
}
