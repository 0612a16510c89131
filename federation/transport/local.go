package transport

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Local is a spoke's own message server. It has no socket; it keeps logs
// and progress on disk until the link takes them. Its fields are set before any
// method is called, and do not change afterwards.
type Local struct {
	ID    string       // instance id of the spoke
	Dir   string       // of the message store; the caller sees to it that nobody else uses it
	Bytes int64        // bound of what may wait, in bytes; default 256 MiB
	Log   *slog.Logger // default: nowhere

	once   sync.Once // of prepare
	engine *engine
	lines  latest[line]
	halt   func() // ends the connection inside the process; the engine calls boot and halt in turns
}

// putMost is the number of reports that are stored together.
const putMost = 500

// idHeader carries a report's id inside the local server. It is not the
// header that makes a server drop repetitions: that is for the hub to do.
const idHeader = "Spawnmesh-Id"

func (n *Local) prepare() {
	n.once.Do(func() {
		if n.Log == nil {
			n.Log = slog.New(slog.DiscardHandler)
		}
		n.engine = &engine{dir: n.Dir, log: n.Log, boot: n.boot, halt: func() { n.halt() }}
		n.halt = func() {}
	})
}

// Start runs the server until Close, once in the life of a Local. ctx bounds
// the start only.
func (n *Local) Start(ctx context.Context) error {
	n.prepare()
	if err := checkID("instance", n.ID); err != nil {
		return fmt.Errorf("starting the local message server: %w", err)
	}
	return n.engine.start(ctx)
}

// Close stops the server and waits for it. What waits is there at the next
// Start with the same Dir.
func (n *Local) Close() {
	n.prepare()
	n.engine.close()
	n.lines.close()
}

func (n *Local) boot(ctx context.Context) (*server.Server, error) {
	bytes := cmp.Or(n.Bytes, 256<<20)
	opts, err := serverOptions("spoke-"+n.ID, n.Dir)
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	if err := launch(srv, n.Log); err != nil {
		return nil, err
	}
	n.halt, err = keepLine(&n.lines, n.Log, "outbox", func() (*line, error) {
		return openLine("", func(o ...nats.Option) (*nats.Conn, error) {
			return nats.Connect("", append(o, nats.InProcessServer(srv))...)
		})
	})
	if err == nil {
		err = n.equip(ctx, bytes)
	}
	if err != nil {
		n.halt()
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, err
	}
	return srv, nil
}

// equip sets up the stream and its consumer.
func (n *Local) equip(ctx context.Context, bytes int64) error {
	js := n.lines.get().js
	if err := ensureStreams(ctx, js, outboxStream(bytes)); err != nil {
		return err
	}
	if _, err := js.CreateOrUpdateConsumer(ctx, streamOutbox, queueConsumer(drainName, "", unbounded)); err != nil {
		return fmt.Errorf("creating the queue of reports: %w", err)
	}
	return nil
}

// Put stores reports on disk, in order. Up to 500 are stored together or not
// at all, behind one sync of the disk. The error wraps ErrQuota when as much
// waits as may, and ErrUnavailable when nobody can tell what was stored;
// putting the same reports again is right then.
func (n *Local) Put(ctx context.Context, reports []Report) error {
	for _, r := range reports {
		if err := checkReport(r); err != nil {
			return err
		}
	}
	for len(reports) > 0 {
		l := n.lines.get()
		if l == nil {
			return fmt.Errorf("storing reports: %w", ErrUnavailable)
		}
		some := min(len(reports), putMost)
		if err := putTogether(ctx, l, reports[:some]); err != nil {
			return fmt.Errorf("storing reports: %w", err)
		}
		reports = reports[some:]
	}
	return nil
}

// putTogether publishes one atomic batch: numbered messages under a common
// name, of which the last one commits and is answered. A single message needs
// none of that and is stored seven times as fast without.
func putTogether(ctx context.Context, l *line, reports []Report) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	batch, last := rand.Text(), len(reports)-1
	for i, r := range reports {
		m := nats.NewMsg(outboxSubject(r.Kind))
		m.Data = r.Body
		m.Header.Set(idHeader, r.ID)
		if last > 0 {
			m.Header.Set("Nats-Batch-Id", batch)
			m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		}
		if i < last {
			if err := l.nc.PublishMsg(m); err != nil {
				return publishError(err)
			}
			continue
		}
		if last > 0 {
			m.Header.Set("Nats-Batch-Commit", "1")
		}
		if _, err := l.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0)); err != nil {
			return publishError(err)
		}
	}
	return nil
}

// Forward hands what waits to handle, at most most at a time and in order,
// until ctx ends; it then returns nil. Handled reports are gone once handle
// returned nil; when it returns an error the same reports come again, and
// nothing overtakes them.
func (n *Local) Forward(ctx context.Context, most Most, handle func(context.Context, []Report) error) error {
	n.prepare()
	f := feed{lines: &n.lines, stream: streamOutbox, consumer: drainName, log: n.Log, gauge: &gauge{}}
	return f.run(ctx, most, func(ctx context.Context, batch []delivery) error {
		reports := make([]Report, 0, len(batch))
		for _, d := range batch {
			kind, ok := parseOutbox(d.msg.Subject)
			if !ok {
				return errors.New("the outbox holds a message that is not a report")
			}
			reports = append(reports, Report{Kind: kind, ID: d.msg.Header.Get(idHeader), Body: d.msg.Data, Deliveries: d.count})
		}
		return handle(ctx, reports)
	})
}
