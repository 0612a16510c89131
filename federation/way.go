package federation

import (
	"context"
	"errors"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/store"
)

// A batch takes at most this much from the transport at a time.
var most = transport.Most{Messages: 256, Bytes: 4 << 20}

// A way carries bytes between this instance and one peer. It verifies nothing
// and keeps nothing.
type way interface {
	queues() []string // in which the peer's messages wait on the way
	receive(ctx context.Context, q string, handle func(context.Context, [][]byte) error) error
	publish(ctx context.Context, list []store.Outgoing) []error

	// holder names the message server in which what is published waits. It holds that as
	// long as it runs; "" while there is no link.
	holder() string

	// waiting counts what the peer has sent that is to be stored here and was not taken in
	// yet; packs count once.
	waiting(ctx context.Context) (int, error)

	// link names the present link: a number that no other link of this
	// connection has, 0 while there is none.
	link() int64

	// state says whether there is a link, since when and with whom, or why not.
	state() (linked bool, since time.Time, remote string, cause error)
}

// served is the way to a peer that dials us.
type served struct {
	server *transport.Hub
	conn   string
}

func (w served) queues() []string {
	return []string{commands.QueueEvents, commands.QueueLogs}
}

func (w served) receive(ctx context.Context, q string, handle func(context.Context, [][]byte) error) error {
	read := w.server.Reports
	if q == commands.QueueLogs {
		read = w.server.Logs
	}
	return read(ctx, w.conn, most, func(ctx context.Context, list []transport.Report) error {
		envelopes := make([][]byte, len(list))
		for i, r := range list {
			envelopes[i] = r.Envelope
		}
		return handle(ctx, envelopes)
	})
}

func (w served) publish(ctx context.Context, list []store.Outgoing) []error {
	out := make([]transport.Command, len(list))
	for i, o := range list {
		out[i] = transport.Command{Conn: w.conn, Queue: o.Queue, Verb: o.Verb(), ID: o.ID, Envelope: o.Envelope}
	}
	return w.server.Publish(ctx, out)
}

func (w served) waiting(ctx context.Context) (int, error) {
	return w.server.WaitingReports(ctx, w.conn)
}

// holder is this process's own server, with which the cursor of the outbox ends, too.
func (w served) holder() string { return "own" }

func (w served) link() int64 {
	since, ok := w.server.Linked(w.conn)
	if !ok {
		return 0
	}
	return since.UnixNano()
}

func (w served) state() (bool, time.Time, string, error) {
	since, ok := w.server.Linked(w.conn)
	return ok, since, w.server.Remote(w.conn), nil
}

// dialled is the way to a peer that we dial.
type dialled struct{ *transport.Link }

func (w dialled) queues() []string {
	return []string{commands.QueueRun, commands.QueueControl}
}

func (w dialled) receive(ctx context.Context, q string, handle func(context.Context, [][]byte) error) error {
	return w.Commands(ctx, q, most, func(ctx context.Context, list []transport.Command) error {
		envelopes := make([][]byte, len(list))
		for i, c := range list {
			envelopes[i] = c.Envelope
		}
		return handle(ctx, envelopes)
	})
}

func (w dialled) publish(ctx context.Context, list []store.Outgoing) []error {
	out := make([]transport.Report, len(list))
	for i, o := range list {
		out[i] = transport.Report{Queue: o.Queue, ID: o.ID, Envelope: o.Envelope}
	}
	return w.Publish(ctx, out)
}

func (w dialled) waiting(ctx context.Context) (n int, err error) {
	list, err := w.Queues(ctx)
	for _, q := range list {
		n += q.Messages
	}
	return n, err
}

func (w dialled) holder() string { return w.Server() }

func (w dialled) link() int64 {
	st := w.State()
	if !st.Up {
		return 0
	}
	return st.Since.UnixNano()
}

func (w dialled) state() (bool, time.Time, string, error) {
	st := w.State()
	return st.Up, st.Since, w.Address, st.Cause
}

// errClosing ends what runs for a connection whose state has changed.
var errClosing = errors.New("the connection has changed")
