package spoke

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
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

// pinMismatch is the code for a hub that is not the one that the token names.
const pinMismatch commands.Code = "PIN_MISMATCH"

// Joined says what a join led to; people compare the fingerprints by voice.
type Joined struct {
	Connection store.Connection `json:"connection"`
	Ours       string           `json:"fingerprint"`
	Hub        string           `json:"hub_fingerprint"`
}

// Join proves to the hub that token names that we hold the token and our keys,
// makes it prove who it is, and stores the connection. Nothing is sent before
// the hub has shown the key that the token pins, and the token's secret is never
// sent at all. A join whose last answer was lost can be repeated.
func Join(ctx context.Context, db *store.DB, keys signing.Keys, token join.Token) (Joined, error) {
	if token.Expired(time.Now()) {
		return Joined{}, commands.Refuse(commands.NotFound, "the join token has expired").Hinting("make a new one on the hub: spawnmesh invite --name %s", token.Name)
	}
	session := rand.Text()
	conn, err := transport.DialJoin(ctx, token.Address, []string{token.Pin}, session)
	if errors.Is(err, transport.ErrPin) {
		return Joined{}, &commands.Refused{Code: pinMismatch, Why: "hub key differs from the one in the token",
			Hint: "ask the hub's operator for a new token; somebody may stand between you", Err: err}
	}
	if err != nil {
		return Joined{}, fmt.Errorf("joining the hub at %s: %w", token.Address, err)
	}
	defer conn.Close()
	challenge, accept, err := shake(ctx, conn, keys, token)
	if err != nil {
		return Joined{}, err
	}
	linkKey, err := transport.NKey(keys.LinkSeed)
	if err != nil {
		return Joined{}, err
	}
	c, err := db.AddConnection(ctx, store.NewConnection{
		Connection: store.Connection{ID: accept.Conn, Peer: token.Hub, Name: challenge.Name, Authority: store.Obeys, State: store.Active,
			LinkKey: linkKey, LinkURL: token.Address, LinkPin: token.Pin},
		Keys:  store.PeerKeys{Identity: challenge.Identity, Signing: challenge.Signing, Sealing: challenge.Sealing},
		Grant: store.FullGrant(),
		Actor: "operator"})
	return Joined{c, signing.Fingerprint(keys.Identity.Public()), signing.Fingerprint(ed25519.PublicKey(challenge.Identity))}, err
}

// shake runs the four messages of the handshake.
func shake(ctx context.Context, conn *transport.JoinConn, keys signing.Keys, token join.Token) (c join.Challenge, a join.Accept, err error) {
	link, err := transport.NKey(keys.LinkSeed)
	if err != nil {
		return c, a, err
	}
	hello, err := signing.EncodeBody(join.Hello{Protocols: []string{join.Protocol}, Invite: token.ID, Identity: keys.Identity.Public(),
		Signing: keys.Signing.Public(), Sealing: keys.Sealing.PublicKey().Bytes(), LinkKey: link, Nonce: join.Nonce()})
	if err != nil {
		return c, a, err
	}
	transcript := join.NewTranscript(conn.Exporter()).Hello(hello)
	raw, err := ask(ctx, conn, "hello", hello)
	if err != nil {
		return c, a, err
	}
	transcript, err = transcript.Open(raw, &c, func() (ed25519.PublicKey, error) { return c.Identity, checkHub(c, token) })
	if err != nil {
		return c, a, fmt.Errorf("checking the hub's challenge: %w", err)
	}
	p, err := transcript.Prove(token.ProofKey(), keys)
	if err != nil {
		return c, a, err
	}
	proof, err := signing.EncodeBody(p)
	if err != nil {
		return c, a, err
	}
	if raw, err = ask(ctx, conn, "proof", proof); err != nil {
		return c, a, err
	}
	_, err = transcript.Proof(proof).Open(raw, &a, func() (ed25519.PublicKey, error) { return c.Identity, nil })
	if err != nil {
		return c, a, fmt.Errorf("checking the hub's acceptance: %w", err)
	}
	return c, a, nil
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
		return nil, commands.Refuse(reply.Code, "the hub refuses: %s", reply.Why).Hinting("the hub's audit has the reason; make a new token with: spawnmesh invite")
	}
	return reply.Signed, nil
}
