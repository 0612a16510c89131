package spoke

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// Codes of joins: a hub that is not the one that the token names, and a token
// that is not accepted.
const (
	pinMismatch commands.Code = "PIN_MISMATCH"
	joinRefused commands.Code = "JOIN_REFUSED"
)

// Joined says what a join led to; people compare the fingerprints by voice.
type Joined struct {
	Connection store.Connection        `json:"connection"`
	Says       commands.ConnectionView `json:"peer_says"` // the hub, of the connection: it may be suspended there where a join is repeated
	Ours       string                  `json:"fingerprint"`
	Hub        string                  `json:"hub_fingerprint"`
}

// CheckToken refuses a token whose time has passed, or cannot have come, by this
// host's clock.
func CheckToken(t join.Token, now time.Time) error {
	left := t.Left(now)
	switch at := now.UTC().Format(time.RFC3339); {
	case left < 0:
		return commands.Refuse(joinRefused, "the join token has expired, %s ago by this host's clock (%s)", commands.Lasting((-left).Round(time.Second)), at).
			Hinting("make a new one on the hub: spawnmesh invite --name %s; if this host's clock is wrong, set it first", t.Name)
	case left > join.MaxLife+signing.Skew:
		return commands.Refuse(joinRefused, "this host's clock (%s) is at least %s behind the hub's: the join token lives longer than any can", at, commands.Lasting((left - join.MaxLife).Round(time.Second))).
			Hinting("set this host's clock, then use the same token again")
	}
	return nil
}

// Join proves to the hub that token names that we hold the token and our keys,
// makes it prove who it is, and stores the connection. Nothing is sent before
// the hub has shown the key that the token pins, and the token's secret is never
// sent at all. The token is not spent before everything is checked that this side
// can know. A join whose last answer was lost can be repeated.
func Join(ctx context.Context, db *store.DB, keys signing.Keys, token join.Token) (Joined, error) {
	if err := CheckToken(token, time.Now()); err != nil {
		return Joined{}, err
	}
	if token.Hub == keys.InstanceID() {
		return Joined{}, commands.Refuse(commands.Conflict, "this instance made that token itself").Hinting("use it on the other host, or name another --data-dir")
	}
	if err := checkFree(ctx, db, token.Hub, ""); err != nil {
		return Joined{}, err
	}
	signer, err := db.Signer(ctx)
	if err != nil {
		return Joined{}, err
	}
	keys.Signing = signer
	conn, err := transport.DialJoin(ctx, token.Address, []string{token.Pin}, token.JoinID)
	switch {
	case errors.Is(err, transport.ErrPin):
		return Joined{}, &commands.Refused{Code: pinMismatch, Why: "hub key differs from the one in the token",
			Hint: "ask the hub's operator for a new token; somebody may stand between you", Err: err}
	case errors.Is(err, transport.ErrRefused):
		return Joined{}, refusedBy(joinRefused, "join token not accepted")
	case err != nil:
		return Joined{}, fmt.Errorf("joining the hub at %s: %w", token.Address, err)
	}
	defer conn.Close()
	s := &shaking{conn: conn, keys: keys, token: token}
	if err := s.hello(ctx); err != nil {
		return Joined{}, err
	}
	if err := checkFree(ctx, db, token.Hub, s.challenge.Name); err != nil {
		return Joined{}, err
	}
	accept, err := s.prove(ctx)
	if err != nil {
		return Joined{}, err
	}
	c, err := db.AddConnection(ctx, store.NewConnection{
		Connection: store.Connection{ID: accept.Conn, Peer: token.Hub, Name: s.challenge.Name, Authority: store.Obeys, State: store.Active,
			LinkKey: s.link, LinkURL: token.Address, LinkPin: token.Pin},
		Keys:  store.PeerKeys{Identity: s.challenge.Identity, Signing: s.challenge.Signing, Sealing: s.challenge.Sealing},
		Signs: signer.KeyID(), Grant: store.FullGrant(), Actor: "operator"})
	return Joined{Connection: c, Says: commands.ConnectionView{State: accept.State},
		Ours: signing.Fingerprint(keys.Identity.Public()), Hub: signing.Fingerprint(ed25519.PublicKey(s.challenge.Identity))}, err
}

// checkFree refuses to join a hub that this instance obeys already, or one whose
// name another peer has here. The name is known once the hub has said it.
func checkFree(ctx context.Context, db *store.DB, hub signing.InstanceID, name string) error {
	conns, err := db.Connections(ctx)
	if err != nil {
		return err
	}
	for _, c := range conns {
		if c.State == store.Revoked || c.State == store.Rejected {
			continue
		}
		if c.Peer == hub && c.Authority == store.Obeys {
			return commands.Refuse(commands.Conflict, "this instance has joined that hub already: connection %s, %s since %s", c.Name, c.State, c.Since.UTC().Format(time.RFC3339)).
				Hinting("to join anew, end it first").Running("connections", "revoke", c.Name, "--reason", "WHY")
		}
		if c.Name == name {
			return commands.Refuse(commands.Conflict, "a connection named %s is here already, with another instance (%s); the new hub was not joined", name, c.Peer).
				Hinting("the token is still good: let the new hub call itself otherwise (hub run --name NAME) and join again, or end the connection here").Running("connections", "revoke", name, "--reason", "WHY")
		}
	}
	return nil
}

// A shaking is a handshake from the joining side.
type shaking struct {
	conn  *transport.JoinConn
	keys  signing.Keys
	token join.Token

	link       string // our public link key
	challenge  join.Challenge
	transcript join.Transcript
}

// hello says who we are and checks who the hub is. It does not spend the token.
func (s *shaking) hello(ctx context.Context) (err error) {
	if s.link, err = transport.NKey(s.keys.LinkSeed); err != nil {
		return err
	}
	hello, err := signing.EncodeBody(join.Hello{Protocols: []string{join.Protocol}, Invite: s.token.ID, Identity: s.keys.Identity.Public(),
		Signing: s.keys.Signing.Public(), Sealing: s.keys.Sealing.PublicKey().Bytes(), LinkKey: s.link, Nonce: join.Nonce()})
	if err != nil {
		return err
	}
	raw, err := ask(ctx, s.conn, "hello", hello)
	if err != nil {
		return err
	}
	s.transcript, err = join.NewTranscript(s.conn.Exporter()).Hello(hello).
		Open(raw, &s.challenge, func() (ed25519.PublicKey, error) { return s.challenge.Identity, checkHub(s.challenge, s.token) })
	if err != nil {
		return fmt.Errorf("checking the hub's challenge: %w", err)
	}
	return nil
}

// prove shows that we hold the token and the keys of the hello. The hub spends
// the token for it.
func (s *shaking) prove(ctx context.Context) (a join.Accept, err error) {
	p, err := s.transcript.Prove(s.token.ProofKey(), s.keys)
	if err != nil {
		return a, err
	}
	proof, err := signing.EncodeBody(p)
	if err != nil {
		return a, err
	}
	raw, err := ask(ctx, s.conn, "proof", proof)
	if err != nil {
		return a, err
	}
	_, err = s.transcript.Proof(proof).Open(raw, &a, func() (ed25519.PublicKey, error) { return s.challenge.Identity, nil })
	if err != nil {
		return a, fmt.Errorf("checking the hub's acceptance: %w", err)
	}
	return a, nil
}

// checkHub compares the hub that answers with the one that the token names.
func checkHub(c join.Challenge, token join.Token) error {
	if err := c.Admit(); err != nil {
		return err
	}
	if signing.InstanceIDOf(c.Identity) != token.Hub {
		return commands.Refuse(pinMismatch, "hub key differs from the one in the token").Hinting("ask the hub's operator; somebody may stand between you")
	}
	if c.Protocol != join.Protocol || !signing.ValidUUID(c.Conn) {
		return join.ErrHandshake
	}
	return nil
}

func ask(ctx context.Context, conn *transport.JoinConn, step string, body []byte) (json.RawMessage, error) {
	raw, err := conn.Request(ctx, step, body)
	if err != nil {
		return nil, fmt.Errorf("sending the %s to the hub: %w", step, err)
	}
	var reply struct {
		Signed json.RawMessage `json:"signed"`
		Code   commands.Code   `json:"code"`
		Why    string          `json:"why"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil {
		return nil, fmt.Errorf("reading the hub's answer to the %s: %w", step, err)
	}
	if reply.Code != "" {
		return nil, refusedBy(reply.Code, reply.Why)
	}
	return reply.Signed, nil
}

func refusedBy(code commands.Code, why string) *commands.Refused {
	return commands.Refuse(code, "the hub refuses: %s", why).Hinting("the hub's audit has the reason; make a new token there with: spawnmesh invite --name NAME")
}
