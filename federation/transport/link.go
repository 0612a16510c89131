package transport

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// A Link is a spoke's connection to its hub. It dials out and redials until
// Run's context ends. Its fields are set before any method is called, and do
// not change afterwards.
type Link struct {
	Address string        // host:port of the hub; tls:// or nats:// in front changes nothing
	Pins    []string      // of the hub's key; two while it is being replaced. See Pin
	ID      string        // id of the connection, as the hub admitted it
	Seed    []byte        // Ed25519 seed of the link's key, 32 bytes; used for nothing else
	Redial  time.Duration // longest wait between two attempts; default 3 s
	Log     *slog.Logger  // default: nowhere

	// Incarnation is which start of this instance dials; the hub hears it with each
	// login. Empty: it is not told.
	Incarnation string

	// Changed is told of each change of state, in order, from Run's
	// goroutine, which it holds up. Nil: nobody is told.
	Changed func(LinkState)

	conns  latest[natsConn]
	gauges [2]gauge // of commandQueues

	mu    sync.Mutex
	state LinkState
}

// A LinkState says whether the link is up, and since when that is so.
type LinkState struct {
	Up    bool
	Since time.Time // of the present up or down; zero before Run
	Cause error     // why it is down: wraps ErrRefused, ErrPin or ErrUnavailable; nil when up
}

const redialMin = 50 * time.Millisecond

// State returns the present state.
func (k *Link) State() LinkState {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Run keeps the link up until ctx ends, and returns nil then. It returns an
// error at once when the link is misconfigured, and for nothing else. One Run
// at a time.
func (k *Link) Run(ctx context.Context) error {
	connect, err := k.dialer()
	if err != nil {
		return fmt.Errorf("linking to a hub: %w", err)
	}
	longest := cmp.Or(k.Redial, 3*time.Second)
	for delay := min(redialMin, longest); ctx.Err() == nil; delay = min(2*delay, longest) {
		l, err := connect(ctx)
		if err == nil {
			k.conns.set(l) // first: who is told that the link is up may use it
			k.change(ctx, LinkState{Up: true})
			began := time.Now()
			err = hold(ctx, l)
			k.conns.set(nil)
			l.close()
			// A link that keeps breaking is redialled ever more slowly: two
			// spokes with one key take turns, and should not do so busily.
			if time.Since(began) > 2*longest {
				delay = min(redialMin, longest)
			}
		}
		if ctx.Err() == nil {
			k.change(ctx, LinkState{Cause: err})
			_ = wait.For(ctx, wait.Spread(delay))
		}
	}
	k.change(ctx, LinkState{Cause: fmt.Errorf("%w: the link was ended", ErrUnavailable)})
	return nil
}

// hold waits until the connection is gone and returns why.
func hold(ctx context.Context, l *natsConn) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.gone:
		return fmt.Errorf("%w: the connection was lost: %w", ErrUnavailable, cmp.Or(l.nc.LastError(), net.ErrClosed))
	}
}

// change records a new state and tells of it if it differs from the last.
func (k *Link) change(ctx context.Context, s LinkState) {
	k.mu.Lock()
	before := k.state
	same := before.Up == s.Up && !before.Since.IsZero()
	s.Since = time.Now()
	if same {
		s.Since = k.state.Since
	}
	told := same && text(k.state.Cause) == text(s.Cause)
	k.state = s
	k.mu.Unlock()
	if told {
		return
	}
	switch {
	case s.Up:
		about := []any{"address", k.Address}
		if !before.Since.IsZero() {
			about = append(about, "away_ms", s.Since.Sub(before.Since).Milliseconds())
		}
		k.log().InfoContext(ctx, "linked to the hub", about...)
	case ctx.Err() != nil: // by this side
		k.log().InfoContext(ctx, "link to the hub ended", "address", k.Address)
	default:
		k.log().WarnContext(ctx, "not linked to the hub", "address", k.Address, "err", s.Cause)
	}
	if k.Changed != nil {
		k.Changed(s)
	}
}

func (k *Link) log() *slog.Logger {
	if k.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return k.Log
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Server names the message server that the link leads to, "" while the link is down.
// What was published ends with that server: where another one is named, what the
// hub's database has not confirmed is to be published again.
func (k *Link) Server() string {
	l := k.conns.get()
	if l == nil {
		return ""
	}
	return l.server
}

// dialer checks the fields and returns how to connect.
func (k *Link) dialer() (func(context.Context) (*natsConn, error), error) {
	if err := checkID("connection", k.ID); err != nil {
		return nil, err
	}
	public, err := NKey(k.Seed)
	if err != nil {
		return nil, err
	}
	if _, err := hostPort(k.Address); err != nil {
		return nil, err
	}
	if err := checkPins(k.Pins); err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(k.Seed)
	return func(ctx context.Context) (*natsConn, error) {
		return dialHub(ctx, k.Address, k.Pins, hubAPI,
			nkeyLogin(public, key),
			nats.Name(k.Incarnation),
			nats.CustomInboxPrefix(inbox(k.ID)))
	}, nil
}

// Publish sends reports to the hub and returns one error per report: nil once
// its message server has it, ErrQuota, ErrUnavailable, or what is wrong with the
// report itself. It fails at once while the link is down. That the message server
// has it does not say that the hub's database has it: see [Link.Server].
func (k *Link) Publish(ctx context.Context, reports []Report) []error {
	return publish(ctx, k.conns.get(), k.down(), reports, reportMessage(k.ID))
}

func (k *Link) down() error {
	return fmt.Errorf("%w: the link is down: %w", ErrUnavailable, cmp.Or(k.State().Cause, net.ErrClosed))
}

// Commands hands the commands of one queue to handle, at most most at a time and
// never more than 64, until ctx ends; it then returns nil. It waits while the
// link is down. A batch is acknowledged after handle returned nil. When handle
// returns an error the same commands come again after 0.1 to 5 seconds, and
// nothing overtakes them. A second call for a queue that is being read returns an
// error.
func (k *Link) Commands(ctx context.Context, queue string, most Most, handle func(context.Context, []Command) error) error {
	if !slices.Contains(commandQueues, queue) {
		return fmt.Errorf("reading commands: there is no queue %q", queue)
	}
	// A pull that is larger than what may be in transit would wait for the
	// acknowledgement of its own beginning.
	most.Messages = min(most.Messages, queuePending)
	r := reader{conns: &k.conns, stream: streamCommands, consumer: consumerName(k.ID, queue), log: k.log(), gauge: &k.gauges[slices.Index(commandQueues, queue)]}
	return r.run(ctx, most, func(ctx context.Context, batch []delivery) error {
		cmds := make([]Command, 0, len(batch))
		for _, d := range batch {
			conn, queue, verb, ok := parseCommand(d.msg.Subject)
			if !ok || conn != k.ID {
				r.log.WarnContext(ctx, "the hub sent a command that is not for here", "subject", d.msg.Subject)
				continue
			}
			id := d.msg.Header.Get(jetstream.MsgIDHeader)
			for _, body := range unpack(d.msg.Data) {
				cmds = append(cmds, Command{Conn: conn, Queue: queue, Verb: verb, ID: id, Envelope: body, Deliveries: d.count})
			}
		}
		return inParts(ctx, most, cmds, handle)
	})
}
