package storetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// A Proxy stands between a store and its database server. It counts commits,
// and can lose the answer to one: the commit reaches the server, everything that
// comes back after it is swallowed, and then the connection ends.
type Proxy struct {
	URL      string // of the database, through the proxy
	network  string
	address  string
	listener net.Listener
	commits  atomic.Int64
	lose     atomic.Int64 // which commit, from 1; 0 for none
	away     atomic.Bool  // nobody gets through anew
	cut      atomic.Bool  // do not wait until the server is done with it
	held     sync.RWMutex // nothing that the server says gets through while it is
}

// NewProxy returns a proxy to the database at address.
func NewProxy(t testing.TB, address string) *Proxy {
	t.Helper()
	cfg, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	p := &Proxy{}
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u := url.URL{Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Host: p.listener.Addr().String(), Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	p.URL = u.String()
	var wg sync.WaitGroup
	wg.Go(func() { p.accept(&wg) })
	t.Cleanup(func() {
		_ = p.listener.Close()
		wg.Wait() // the store was closed before, and its connections with it
	})
	return p
}

// Commits returns how many commits have passed.
func (p *Proxy) Commits() int { return int(p.commits.Load()) }

// Away refuses new connections, until it is called with false.
func (p *Proxy) Away(yes bool) { p.away.Store(yes) }

// Hang lets nobody hear the server, as if it hung, until end is called.
func (p *Proxy) Hang() (end func()) {
	p.held.Lock()
	return p.held.Unlock
}

// Lose loses the answer to the nth commit of all.
func (p *Proxy) Lose(n int) { p.lose.Store(int64(n)) }

// Cut ends the connection of the nth commit of all as soon as the server has been
// told, whatever it is still doing.
func (p *Proxy) Cut(n int) {
	p.cut.Store(true)
	p.Lose(n)
}

func (p *Proxy) accept(wg *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.away.Load() {
			_ = client.Close()
			continue
		}
		server, err := net.Dial(p.network, p.address)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &line{proxy: p, client: client, server: server, statements: map[string]string{}}
		wg.Go(l.there)
		wg.Go(l.back)
	}
}

// cancelRequest is the code of a connection that only cancels what another runs.
var cancelRequest = []byte{0x04, 0xd2, 0x16, 0x2e}

// line is one connection through the proxy.
type line struct {
	proxy          *Proxy
	client, server net.Conn
	statements     map[string]string // by the name under which they were prepared
	within         bool              // a transaction that was begun
	swallow        atomic.Bool
}

func (l *line) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// there carries what the client says, message by message.
func (l *line) there() {
	defer l.close()
	first := true // the one message without a kind in front of its length
	for {
		kind, message, err := readMessage(l.client, !first)
		if err != nil {
			return
		}
		if first && bytes.Equal(message[4:8], cancelRequest) {
			return // it asks for an end of what is under way, and is lost too
		}
		if !first && l.commits(kind, message[5:]) && l.proxy.commits.Add(1) == l.proxy.lose.Load() {
			l.swallow.Store(true)
		}
		first = false
		if _, err := l.server.Write(message); err != nil {
			return
		}
		if l.swallow.Load() && l.proxy.cut.Load() && (kind == 'S' || kind == 'Q') {
			return // the whole round trip is there
		}
	}
}

// commits reports whether a message runs a commit, and remembers what statements
// are called.
func (l *line) commits(kind byte, body []byte) bool {
	a, rest, _ := bytes.Cut(body, []byte{0})
	b, _, _ := bytes.Cut(rest, []byte{0})
	switch kind {
	case 'Q':
		return l.ends(string(a))
	case 'P': // name, text
		l.statements[string(a)] = string(b)
	case 'B': // portal, name
		return l.ends(l.statements[string(b)])
	}
	return false
}

// ends reports whether a statement commits: as its transaction's end, or as one that
// writes and is in none.
func (l *line) ends(statement string) bool {
	word, _, _ := strings.Cut(strings.TrimSpace(statement), " ")
	switch word {
	case "begin":
		l.within = true
	case "rollback":
		l.within = false
	case "commit":
		l.within = false
		return true
	case "INSERT", "UPDATE", "DELETE":
		return !l.within
	}
	return false
}

// back carries what the server says.
func (l *line) back() {
	defer l.close()
	for {
		kind, message, err := readMessage(l.server, true)
		if err != nil {
			return
		}
		if l.swallow.Load() {
			if kind == 'Z' { // it is ready again, so the commit is done
				return
			}
			continue
		}
		l.proxy.held.RLock()
		_, err = l.client.Write(message)
		l.proxy.held.RUnlock()
		if err != nil {
			return
		}
	}
}

// readMessage reads one message whole.
func readMessage(from io.Reader, kinded bool) (kind byte, message []byte, err error) {
	head := make([]byte, 4)
	if kinded {
		head = make([]byte, 5)
	}
	if _, err := io.ReadFull(from, head); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(head[len(head)-4:])
	if length < 4 || length > 1<<28 {
		return 0, nil, fmt.Errorf("a message of %d bytes", length)
	}
	message = append(head, make([]byte, length-4)...)
	_, err = io.ReadFull(from, message[len(head):])
	return head[0], message, err
}
