package transport

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

const peerDeadline = 12 * time.Hour // of a peer's connection; it redials

// A gate decides which connection may be what on a hub's server. Who is let
// in is placed in an account and gets the subjects of that account and no
// other; everything else is refused.
//
// Every field below mu is guarded by it. The server calls Check from the
// goroutine of the connection and holds no lock of its own then, so the gate
// may call the server with mu held.
type gate struct {
	log      *slog.Logger
	secret   string                                                        // of the users inside this process
	joinUser func(joinID string, exporter []byte) (invite string, ok bool) // nil: nobody joins
	joinFull func(invite string)                                           // nil: nobody is told
	linked   func(conn, incarnation string, since time.Time)               // told of each new link, after it was let in
	joinFor  time.Duration                                                 // how long a connection that joins lasts
	askEvery time.Duration                                                 // between two connections of one peer that asks

	mu      sync.Mutex
	current *server.Server // that runs now, or nil
	opened  bool           // for connections from outside this process
	peers   map[string]*admission
	keys    map[string]string // nkey -> peer, for admitted peers
	joining map[string]*joiner
	askers  map[string]*asker     // by peer
	blobs   map[string]connection // the connection for blobs of each admitted peer that has one; it may have ended
}

// An admission is what the gate knows of a peer. Without a key it is cut.
type admission struct {
	nkey  string
	name  string       // for the log
	conns []connection // one, but for the moment in which a newer one replaces it
}

type connection struct {
	client server.ClientAuthentication
	since  time.Time
}

// A joiner is one connection in the account JOIN.
type joiner struct {
	client   server.ClientAuthentication
	invite   string
	exporter []byte
	requests int
}

func newGate(log *slog.Logger) *gate {
	return &gate{
		log:      log,
		secret:   rand.Text(),
		joinFor:  30 * time.Second,
		askEvery: 500 * time.Millisecond,
		peers:    map[string]*admission{},
		keys:     map[string]string{},
		joining:  map[string]*joiner{},
		askers:   map[string]*asker{},
		blobs:    map[string]connection{},
	}
}

// attach makes srv the server whose connections are decided on. The gate
// stays shut for the world until open, so that a peer never finds its queue
// missing.
func (g *gate) attach(srv *server.Server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.current = srv
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = true
}

// shut refuses everybody and forgets the connections of the server.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.current, g.opened = nil, false
	for _, a := range g.peers {
		a.conns = nil
	}
	clear(g.joining)
	clear(g.blobs)
}

// Check implements the server's interface for custom authentication.
func (g *gate) Check(c server.ClientAuthentication) bool {
	addr := c.RemoteAddress()
	if c.Kind() != server.CLIENT || addr == nil {
		return false
	}
	// The options are those of the live connection and change when a user is
	// registered, so what is needed is taken out first.
	o := c.GetOpts()
	user, password, nkey, sig, name := o.Username, o.Password, o.Nkey, o.Sig, o.Name
	switch {
	case addr.Network() == "pipe":
		return g.admitInside(c, user, password)
	case c.GetTLSConnectionState() == nil:
		return false
	case strings.HasPrefix(user, joinUser("")):
		return g.admitJoiner(c, user)
	case strings.HasPrefix(user, askUser("")):
		return signed(nkey, sig, c.GetNonce()) && g.admitAsker(c, strings.TrimPrefix(user, askUser("")), nkey)
	case strings.HasPrefix(user, blobUser("")):
		return signed(nkey, sig, c.GetNonce()) && g.admitBlobs(c, strings.TrimPrefix(user, blobUser("")), nkey)
	default:
		return signed(nkey, sig, c.GetNonce()) && g.admitPeer(c, nkey, name)
	}
}

func signed(nkey, sig string, nonce []byte) bool {
	raw, err := base64.RawURLEncoding.DecodeString(sig)
	if err != nil || len(nonce) == 0 || !nkeys.IsValidPublicUserKey(nkey) {
		return false
	}
	key, err := nkeys.FromPublicKey(nkey)
	return err == nil && key.Verify(nonce, raw) == nil
}

// admitInside places a connection from inside this process in the account it
// names. It is the only way into HUB, and there is none into SYS.
func (g *gate) admitInside(c server.ClientAuthentication, account, password string) bool {
	if subtle.ConstantTimeCompare([]byte(password), []byte(g.secret)) != 1 {
		return false
	}
	if account != accountHub && account != accountJoin && account != accountBlob {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	acc, ok := g.account(account)
	if !ok {
		return false
	}
	c.RegisterUser(&server.User{Username: account, Account: acc})
	return true
}

func (g *gate) admitPeer(c server.ClientAuthentication, nkey, incarnation string) bool {
	conn, name, since, older := g.register(c, nkey)
	if conn == "" {
		return false
	}
	if len(older) > 0 {
		g.log.Warn("a second connection with the key of a peer replaces the first; if this goes on, the key was copied", "connection", name)
		g.disconnect(older)
	}
	if g.linked != nil {
		g.linked(conn, incarnation, since)
	}
	return true
}

// register lets a connection in and returns which peer it is, since when, and
// which connections of that peer it replaces.
func (g *gate) register(c server.ClientAuthentication, nkey string) (conn, name string, since time.Time, older []connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	conn, known := g.keys[nkey]
	acc, ready := g.account(accountName(conn))
	if !known || !ready || !g.opened {
		return "", "", since, nil
	}
	a := g.peers[conn]
	older = slices.DeleteFunc(a.conns, func(old connection) bool { return !g.alive(old.client) })
	if slices.ContainsFunc(older, func(old connection) bool { return old.client.GetID() == c.GetID() }) {
		return "", "", since, nil // a second CONNECT on one connection
	}
	since = time.Now()
	a.conns = []connection{{client: c, since: since}}
	c.RegisterUser(&server.User{
		Username:           conn,
		Account:            acc,
		Permissions:        peerPermissions(conn),
		ConnectionDeadline: time.Now().Add(peerDeadline),
	})
	return conn, a.name, since, older
}

func peerPermissions(conn string) *server.Permissions {
	p := &server.Permissions{
		Publish:   &server.SubjectPermission{},
		Subscribe: &server.SubjectPermission{Allow: []string{inbox(conn) + ".>"}},
	}
	for _, d := range exports(conn) {
		p.Publish.Allow = append(p.Publish.Allow, d.outside)
	}
	return p
}

// admit lets p in from now on.
func (g *gate) admit(p Peer) error {
	conn, nkey := p.ID, p.NKey
	if !nkeys.IsValidPublicUserKey(nkey) {
		return fmt.Errorf("admitting %s: %q is not a public user nkey", conn, nkey)
	}
	g.mu.Lock()
	if owner, taken := g.keys[nkey]; taken && owner != conn {
		g.mu.Unlock()
		return fmt.Errorf("admitting %s: its key is the key of %s", conn, owner)
	}
	a := g.peers[conn]
	if a == nil {
		a = &admission{}
		g.peers[conn] = a
	}
	var stale []connection
	if a.nkey != nkey {
		delete(g.keys, a.nkey)
		stale, a.conns = append(a.conns, g.takeBlobs(conn)...), nil
	}
	a.nkey, a.name = nkey, p.Name
	g.keys[nkey] = conn
	g.mu.Unlock()
	g.disconnect(stale)
	return nil
}

// cut refuses peer from now on and ends its connections. What the peer sent
// and the server has not looked at yet is refused as well: permissions go
// before the connection does.
func (g *gate) cut(conn string) {
	g.mu.Lock()
	var conns []connection
	if a := g.peers[conn]; a != nil {
		delete(g.keys, a.nkey)
		conns, a.nkey, a.conns = append(a.conns, g.takeBlobs(conn)...), "", nil
	}
	g.mu.Unlock()
	g.disconnect(conns)
}

func (g *gate) disconnect(conns []connection) {
	nothing := &server.Permissions{
		Publish:   &server.SubjectPermission{Deny: []string{">"}},
		Subscribe: &server.SubjectPermission{Deny: []string{">"}},
	}
	for _, c := range conns {
		c.client.RegisterUser(&server.User{Permissions: nothing})
		g.drop(c.client)
	}
}

func (g *gate) drop(c server.ClientAuthentication) {
	g.mu.Lock()
	srv := g.current
	g.mu.Unlock()
	if srv != nil {
		_ = srv.DisconnectClientByID(c.GetID()) // the one error says that it is gone
	}
}

// alive tells whether the server still has the connection. The caller holds mu.
func (g *gate) alive(c server.ClientAuthentication) bool {
	return g.current != nil && g.current.GetClient(c.GetID()) != nil
}

// account finds an account of the server. The caller holds mu.
func (g *gate) account(name string) (*server.Account, bool) {
	if g.current == nil {
		return nil, false
	}
	acc, err := g.current.LookupAccount(name)
	return acc, err == nil
}

// server returns the server that runs now, or nil.
func (g *gate) server() *server.Server {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current
}

// connections lists the live connection of each peer, and their server.
func (g *gate) connections() (*server.Server, map[string]connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[string]connection{}
	for id, a := range g.peers {
		for _, c := range a.conns {
			if g.alive(c.client) {
				all[id] = c
			}
		}
	}
	return g.current, all
}

// admitted lists the peers that are let in, in order.
func (g *gate) admitted() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ids []string
	for _, id := range g.keys {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
