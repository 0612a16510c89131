package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Publish queues commands for their peers, connected or not, and returns one
// error per command: nil once it is on disk, ErrQuota, ErrUnavailable, or what
// is wrong with the command itself. All are sent in one go, neighbours for the
// same queue in packs. A command with the id of one that waits, or that was
// published within ten minutes, counts as stored and is not stored again.
func (h *Hub) Publish(ctx context.Context, commands []Command) []error {
	return publish(ctx, h.main.get(), ErrUnavailable, commands, commandMessage)
}

func commandMessage(c Command) (*nats.Msg, error) {
	if err := errors.Join(checkID("peer", c.Peer), checkID("verb", c.Verb), checkMessage(c.ID, c.Body, MaxCommand)); err != nil {
		return nil, err
	}
	if !slices.Contains(lanes, c.Lane) {
		return nil, fmt.Errorf("command %s: there is no lane %q", c.ID, c.Lane)
	}
	return stamped(commandSubject(c.Peer, c.Lane, c.Verb), c.ID, c.Body), nil
}

func reportMessage(peer string) func(Report) (*nats.Msg, error) {
	return func(r Report) (*nats.Msg, error) {
		if err := checkReport(r); err != nil {
			return nil, err
		}
		return stamped(reportSubject(peer, r.Kind), r.ID, r.Body), nil
	}
}

func checkReport(r Report) error {
	if !slices.Contains(kinds, r.Kind) {
		return fmt.Errorf("report %s: there is no kind %q", r.ID, r.Kind)
	}
	return checkMessage(r.ID, r.Body, MaxReport)
}

func stamped(subject, id string, body []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: body, Header: nats.Header{jetstream.MsgIDHeader: {id}}}
}

// publish sends over l what can be sent. Without a line everything that is
// well formed fails with down.
func publish[T any](ctx context.Context, l *line, down error, items []T, encode func(T) (*nats.Msg, error)) []error {
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

// Ingest hands the reports of all peers to handle, at most most at a time,
// until ctx ends; it then returns nil. A batch is acknowledged after handle
// returned nil. When handle returns an error the same batch comes again after
// 0.1 to 5 seconds, and nothing overtakes it.
func (h *Hub) Ingest(ctx context.Context, most int, handle func(context.Context, []Report) error) error {
	h.prepare()
	f := feed{lines: &h.main, stream: streamReports, consumer: ingestName, log: h.Log}
	return f.run(ctx, most, func(ctx context.Context, batch []delivery) error {
		reports := make([]Report, 0, len(batch))
		for _, d := range batch {
			// What does not parse is our own probe: the server lets nothing
			// else onto these subjects. It is acknowledged with the others.
			if peer, kind, ok := parseReport(d.msg.Subject()); ok {
				id := d.msg.Headers().Get(jetstream.MsgIDHeader)
				for _, body := range unpack(d.msg.Data()) {
					reports = append(reports, Report{Peer: peer, Kind: kind, ID: id, Body: body, Deliveries: d.count})
				}
			}
		}
		if len(reports) == 0 {
			return nil
		}
		return handle(ctx, reports)
	})
}

// Presence hands the heartbeats of all peers to handle until ctx ends; it
// then returns nil. It starts with the last one of each peer. A handler that
// is slower than the heartbeats gets the newest of each peer and misses
// others. Heartbeats share neither queue nor connection with reports.
func (h *Hub) Presence(ctx context.Context, handle func(peer string, body []byte)) error {
	h.prepare()
	for {
		l, err := h.beats.await(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := presenceOn(ctx, l, handle); err != nil && ctx.Err() == nil {
			h.Log.DebugContext(ctx, "reading heartbeats ended", "err", err)
		}
		if !pause(ctx, backoffMin) {
			return nil
		}
	}
}

func presenceOn(ctx context.Context, l *line, handle func(peer string, body []byte)) error {
	consumer, err := l.js.OrderedConsumer(ctx, streamPresence, jetstream.OrderedConsumerConfig{
		DeliverPolicy:  jetstream.DeliverLastPerSubjectPolicy,
		FilterSubjects: []string{beatSubject("*")},
	})
	if err != nil {
		return fmt.Errorf("opening the heartbeats: %w", err)
	}
	beats, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("reading heartbeats: %w", err)
	}
	defer beats.Stop()
	for {
		m, err := beats.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("reading heartbeats: %w", err)
		}
		if peer, ok := parseBeat(m.Subject()); ok {
			handle(peer, m.Data())
		}
	}
}

// Healthy tells whether commands and reports can be stored now, by storing
// one of each and taking it away again. Without a deadline in ctx it takes
// five seconds at most.
func (h *Hub) Healthy(ctx context.Context) error {
	l := h.main.get()
	if l == nil {
		return fmt.Errorf("the message server does not run: %w", ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return errors.Join(
		probe(ctx, l, streamCommands, commandSubject(probeToken, LaneControl, "probe")),
		probe(ctx, l, streamReports, reportSubject(probeToken, KindEvent)),
	)
}

func probe(ctx context.Context, l *line, stream, subject string) error {
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
