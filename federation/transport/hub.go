package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A Hub is the message server of an instance that others dial. Its fields are
// set before any method is called, and do not change afterwards.
type Hub struct {
	Listen      string          // host:port to serve TLS on; port 0 picks one
	Dir         string          // of the message server, which keeps no messages there; the caller sees to it that nobody else uses it
	Certificate tls.Certificate // see Certificate
	Log         *slog.Logger    // default: nowhere

	// JoinUser decides whether a connection may join under this id, and
	// says under which invite. It is called before anything is kept of the
	// connection, from the connection's goroutine, and delays that connection
	// only. Nil: nobody joins.
	JoinUser func(joinID string, exporter []byte) (invite string, ok bool)

	// JoinFull is told when somebody was refused although JoinUser would have
	// let him in: too many join already, under this invite or in all.
	JoinFull func(invite string)

	// NewLink is told of each new link of a peer, in the connection's goroutine and
	// before the peer can say anything: what the peer calls its incarnation, unchecked,
	// and since when the link is up. Of two links of one peer the later one may be told
	// first. Nil: nobody is told.
	NewLink func(conn, incarnation string, since time.Time)

	CommandQuota int   // commands that may wait per peer, queue and verb; default 10,000
	CommandBytes int64 // commands that may wait for all peers, in bytes; default 256 MiB. A sixteenth is for what starts no work
	ReportQuota  int   // reports that may wait per peer and kind; default 20,000
	ReportBytes  int64 // a peer's share of the memory: events and results that may wait, and as much again for logs, in bytes; default 8 MiB

	once sync.Once // of prepare
	gate *gate

	main, beats, joins, blobs latest[natsConn]

	room   *room    // of all that reads reports
	gauges sync.Map // of gauges, by peer

	reserve reserve

	mu     sync.Mutex     // guards what follows, and is held while a peer is set up or dropped
	srv    *server.Server // nil before Start
	stops  []func()       // end the connections inside the process
	addr   string         // as bound
	lost   string         // what was found in Dir, and not read
	opened map[string]int // number of exports each peer has
}

const maxPeers = 4096 // connections at once, without those for blobs

// prepare makes what Admit needs, which may be called before Start.
func (h *Hub) prepare() {
	h.once.Do(func() {
		if h.Log == nil {
			h.Log = slog.New(slog.DiscardHandler)
		}
		h.gate = newGate(h.Log)
		h.gate.joinUser, h.gate.joinFull = h.JoinUser, h.JoinFull
		h.gate.linked = func(conn, incarnation string, since time.Time) {
			h.handBack(conn)
			if h.NewLink != nil {
				h.NewLink(conn, incarnation, since)
			}
		}
		h.room = newRoom()
	})
}

// Start serves until Close, once in the life of a Hub. ctx bounds the start
// only.
func (h *Hub) Start(ctx context.Context) error {
	h.prepare()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.srv != nil {
		return errors.New("starting the message server: it was started before")
	}
	srv, err := h.boot(ctx)
	if err != nil {
		return fmt.Errorf("starting the message server: %w", err)
	}
	h.srv = srv
	return nil
}

// Close ends all connections, stops the server and waits for both. What waits in the
// queues is gone then: its senders keep it until a database has confirmed it.
func (h *Hub) Close() {
	h.prepare()
	if srv := h.halt(); srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
	h.main.close()
	h.beats.close()
	h.joins.close()
	h.blobs.close()
}

// Addr is the host:port that is served. It is empty before Start.
func (h *Hub) Addr() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addr
}

// Lost says what the start has found where messages once were kept, and has removed unread; ""
// for nothing.
func (h *Hub) Lost() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// boot starts a server, its streams and the queues of all admitted peers, and
// only then lets peers in. The caller holds mu, so that who is admitted meanwhile
// is either among those or finds the server complete.
func (h *Hub) boot(ctx context.Context) (_ *server.Server, err error) {
	ctx, done := context.WithTimeout(ctx, startTimeout)
	defer done()
	opts, err := h.options()
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	h.gate.attach(srv)
	if err := launch(ctx, srv, h.Log); err != nil {
		h.gate.shut()
		return nil, err
	}
	defer func() {
		if err != nil {
			h.disconnect()
			srv.Shutdown()
			srv.WaitForShutdown()
		}
	}()
	if err := h.openConns(ctx, srv); err != nil {
		return nil, err
	}
	err = ensureStreams(ctx, h.main.get().js, commandStream(int64(cmp.Or(h.CommandQuota, 10_000)), h.bytesOfCommands()))
	if err != nil {
		return nil, err
	}
	h.addr = srv.Addr().String()
	h.opened = map[string]int{}
	conns := h.gate.admitted()
	h.Log.DebugContext(ctx, "setting up the queues", "peers", len(conns))
	if err := h.provision(ctx, srv, conns...); err != nil {
		return nil, err
	}
	h.Log.DebugContext(ctx, "letting peers in", "peers", len(conns))
	h.gate.open()
	return srv, nil
}

// openConns connects from inside the process. Heartbeats, those who join and blobs
// have connections of their own, so that none waits behind a queue. A busy host may
// answer late: it is tried until ctx ends. The caller holds mu.
func (h *Hub) openConns(ctx context.Context, srv nats.InProcessConnProvider) error {
	for _, way := range []struct {
		what, account string
		conns         *latest[natsConn]
	}{{"messages", accountHub, &h.main}, {"heartbeats", accountHub, &h.beats}, {"joining", accountJoin, &h.joins}, {"blobs", accountBlob, &h.blobs}} {
		stop, err := keepConn(ctx, way.conns, h.Log, way.what, func() (*natsConn, error) {
			return openConn("", func(o ...nats.Option) (*nats.Conn, error) {
				return nats.Connect("", append(o, nats.InProcessServer(srv), nats.UserInfo(way.account, h.gate.secret), nats.Timeout(callTimeout))...)
			})
		})
		if err != nil {
			return fmt.Errorf("connecting to the message server inside this process for %s, on a host that may be very busy; start again: %w", way.what, err)
		}
		h.stops = append(h.stops, stop)
	}
	return nil
}

// halt lets nobody in any more and returns the server that is to be stopped.
func (h *Hub) halt() *server.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.disconnect()
	return h.srv
}

// disconnect shuts the gate and ends the connections from inside the process. The
// caller holds mu.
func (h *Hub) disconnect() {
	h.gate.shut()
	for _, stop := range h.stops {
		stop()
	}
	h.stops = nil
}

// ListenOn parts an address as a hub takes it, host:port with a number that may be 0, and finds out whether there is
// such a host.
func ListenOn(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not of the form host:port", address)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q has no port number from 0 to 65535", address)
	}
	if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
		return "", 0, err
	}
	return host, int(number), nil
}

// options configures the server. The caller holds mu.
func (h *Hub) options() (*server.Options, error) {
	dir, lost, err := freshDir(h.Dir)
	if err != nil {
		return nil, err
	}
	h.lost = lost
	o := serverOptions("hub", dir)
	if o.Host, o.Port, err = ListenOn(h.Listen); err != nil {
		return nil, err
	}
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	if len(h.Certificate.Certificate) == 0 {
		return nil, errors.New("a hub needs a TLS certificate")
	}
	o.DontListen = false
	o.StreamMaxBufferedSize = maxPending // of what one peer sent and is not stored yet
	o.TLSConfig = serverTLS(h.Certificate)
	o.TLSHandshakeFirst = true
	o.TLSTimeout, o.AuthTimeout = 3, 3
	o.MaxConn = maxPeers + blobConns
	o.AlwaysEnableNonce = true
	o.CustomClientAuthentication = h.gate
	if err := o.ProcessConfigString(accounts()); err != nil {
		return nil, fmt.Errorf("configuring the accounts: %w", err)
	}
	return o, nil
}
