package conformance

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A server is a hub's message server with its keys, for one invite and one spoke. It
// can end and come back, as a hub's does.
type server struct {
	keys  signing.Keys
	cert  tls.Certificate
	dir   string
	token join.Token
	hear  ears

	mu        sync.Mutex // guards the rest
	hub       *transport.Hub
	address   string
	end       context.CancelFunc
	work      *sync.WaitGroup
	joining   map[string]*handshake // by join id
	link      string                // nkey of the spoke that joined; "" before
	conn      string
	logins    []string // incarnations, in the order of the logins
	joinFault error    // what was wrong with the last handshake
}

// ears are what a server hands on.
type ears struct {
	joined  func(join.Hello, string)
	reports func([]transport.Report) error
	logs    func([]transport.Report) error
	beat    func(envelope []byte) (answer []byte)
	ask     func(envelope []byte) (answer []byte)
}

type handshake struct {
	hello      join.Hello
	conn       string
	transcript join.Transcript
}

func newServer(dir string) (*server, error) {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	cert, err := transport.Certificate(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		return nil, fmt.Errorf("making the hub's certificate: %w", err)
	}
	keys, err := signing.CreateKeys(filepath.Join(dir, "keys"))
	if err != nil {
		return nil, fmt.Errorf("making the hub's keys: %w", err)
	}
	return &server{keys: keys, cert: cert, dir: filepath.Join(dir, "nats"), address: "127.0.0.1:0", joining: map[string]*handshake{}}, nil
}

// invite makes the token, which leads the spoke to address.
func (s *server) invite(address string) {
	s.token = join.NewToken(join.Token{Address: address, Hub: s.keys.InstanceID(), Pin: transport.Pin(s.cert), ID: forge.NewID(),
		Name: "attic", Expires: time.Now().Add(time.Hour).UnixMilli()})
}

// start serves, at the address of before if there was one.
func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	hub := &transport.Hub{Listen: s.address, Dir: s.dir, Certificate: s.cert, NewLink: s.login,
		JoinUser: func(id string, exporter []byte) (string, bool) {
			return s.token.ID, join.InviteOf(id) == s.token.ID && join.CheckJoinID(id, s.token.ProofKey(), exporter)
		}}
	if s.link != "" {
		if err := s.admit(ctx, hub); err != nil {
			return err
		}
	}
	if err := hub.Start(ctx); err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s.hub, s.address, s.end, s.work = hub, hub.Addr(), end, &sync.WaitGroup{}
	s.work.Go(func() { _ = hub.ServeJoin(life, s.answerJoin) }) // these end with the server
	s.work.Go(func() {
		_ = hub.Presence(life, func(_ context.Context, _ string, b []byte) []byte { return s.hear.beat(b) })
	})
	s.work.Go(func() {
		_ = hub.Questions(life, func(_ context.Context, _ string, b []byte) []byte { return s.hear.ask(b) })
	})
	if s.conn != "" {
		s.listen(life)
	}
	return nil
}

// stop ends the server with all that waits in it.
func (s *server) stop() {
	s.mu.Lock()
	hub, end, work := s.hub, s.end, s.work
	s.hub = nil
	s.mu.Unlock()
	if hub != nil {
		end()
		hub.Close()
		work.Wait()
	}
}

// listen reads what the spoke reports. The caller holds mu.
func (s *server) listen(ctx context.Context) {
	hub, conn, most := s.hub, s.conn, transport.Most{Messages: 64}
	s.work.Go(func() {
		_ = hub.Reports(ctx, conn, most, func(_ context.Context, r []transport.Report) error { return s.hear.reports(r) })
	})
	s.work.Go(func() {
		_ = hub.Logs(ctx, conn, most, func(_ context.Context, r []transport.Report) error { return s.hear.logs(r) })
	})
}

func (s *server) login(_, incarnation string, _ time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logins = append(s.logins, incarnation)
}

// admit lets the spoke that joined link and ask. The caller holds mu.
func (s *server) admit(ctx context.Context, hub *transport.Hub) error {
	p := transport.Peer{ID: s.conn, NKey: s.link}
	return errors.Join(hub.Admit(ctx, p), hub.LetAsk(p))
}

// running returns the message server, nil while it is stopped.
func (s *server) running() *transport.Hub {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hub
}

// answerJoin is the hub's side of the handshake (section 3.3).
func (s *server) answerJoin(ctx context.Context, r transport.JoinRequest) []byte {
	step := s.hello
	if r.Step == "proof" {
		step = s.proof
	}
	raw, err := step(ctx, r)
	s.mu.Lock()
	s.joinFault = err
	s.mu.Unlock()
	reply := map[string]any{"signed": json.RawMessage(raw)}
	if err != nil {
		reply = map[string]any{"code": "JOIN_REFUSED", "why": "join token not accepted"}
	}
	out, _ := json.Marshal(reply) // JSON of JSON
	return out
}

func (s *server) hello(_ context.Context, r transport.JoinRequest) ([]byte, error) {
	h := &handshake{conn: forge.NewID()}
	if err := signing.DecodeBody(r.Body, &h.hello); err != nil {
		return nil, fmt.Errorf("its hello cannot be read: %w", err)
	}
	if err := h.hello.Admit(); err != nil {
		return nil, fmt.Errorf("the keys of its hello: %w", err)
	}
	if len(h.hello.Nonce) != 32 || h.hello.Invite != s.token.ID {
		return nil, errors.New("its hello has no nonce of 32 bytes, or another invite than the token's")
	}
	raw, next, err := join.NewTranscript(r.Exporter).Hello(r.Body).Sign(s.keys.Identity, join.Challenge{Protocol: join.Protocol,
		Identity: s.keys.Identity.Public(), Signing: s.keys.Signing.Public(), Sealing: s.keys.Sealing.PublicKey().Bytes(),
		Conn: h.conn, Epoch: 1, Name: "lab", Nonce: join.Nonce()})
	h.transcript = next
	s.joining[r.JoinID] = h // one request after another
	return raw, err
}

func (s *server) proof(ctx context.Context, r transport.JoinRequest) ([]byte, error) {
	h := s.joining[r.JoinID]
	if h == nil {
		return nil, errors.New("a proof came without a hello")
	}
	var p join.Proof
	if err := signing.DecodeBody(r.Body, &p); err != nil {
		return nil, fmt.Errorf("its proof cannot be read: %w", err)
	}
	if err := h.transcript.Check(p, s.token.ProofKey(), h.hello); err != nil {
		return nil, fmt.Errorf("its proof: %w", err)
	}
	if err := s.connect(ctx, h); err != nil {
		return nil, err
	}
	raw, _, err := h.transcript.Proof(r.Body).Sign(s.keys.Identity, join.Accept{Conn: s.conn, Name: s.token.Name, State: "active", Epoch: 1})
	return raw, err
}

// connect keeps the connection of the first proof; who proves the same again gets it again.
func (s *server) connect(ctx context.Context, h *handshake) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != "" && s.link != h.hello.LinkKey {
		return errors.New("the token was used before, with another link key")
	}
	if s.link != "" {
		return nil
	}
	s.link, s.conn = h.hello.LinkKey, h.conn
	s.hear.joined(h.hello, h.conn)
	if err := s.admit(ctx, s.hub); err != nil {
		return err
	}
	s.listen(ctx)
	return nil
}
