package join

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/nats-io/nkeys"

	"github.com/spawnmesh/spawnmesh/signing"
)

// handshake is the type under which handshake transcripts are signed. No
// envelope of this type opens, so neither can stand in for the other.
const handshake signing.Type = "application/vnd.spawnmesh.handshake.v1+json"

// Protocol is what this version speaks: this handshake, and the envelopes of version 2
// behind it. Who speaks another one is refused before a connection is made.
const Protocol = "v2"

// ErrHandshake says that the other side did not prove what it claims.
var ErrHandshake = errors.New("the other side's proof does not hold")

// A Hello opens a handshake: who joins, with which keys, under which invite.
type Hello struct {
	Protocols []string `json:"protocols"`
	Invite    string   `json:"invite"`
	Identity  []byte   `json:"identity"`
	Signing   []byte   `json:"signing"`
	Sealing   []byte   `json:"sealing"`
	LinkKey   string   `json:"link_key"`
	Nonce     []byte   `json:"nonce"`
}

// A Challenge answers a hello: who the hub is, and the connection it proposes.
type Challenge struct {
	Protocol string `json:"protocol"`
	Identity []byte `json:"identity"`
	Signing  []byte `json:"signing"`
	Sealing  []byte `json:"sealing"`
	Conn     string `json:"conn"`
	Epoch    int64  `json:"epoch"`
	Name     string `json:"name"` // the hub's name for itself
	Nonce    []byte `json:"nonce"`
}

// A Proof shows that the joining side holds the token's secret and all its keys.
type Proof struct {
	MAC      []byte `json:"mac"`
	Identity []byte `json:"identity"`
	Signing  []byte `json:"signing"`
	Link     []byte `json:"link"`
}

// An Accept ends a handshake: the connection is stored at the hub.
type Accept struct {
	Conn  string `json:"conn"`
	Name  string `json:"name"` // the joining side's name at this hub
	State string `json:"state"`
	Epoch int64  `json:"epoch"`
}

// A Signed is a hub's message of a handshake with the identity key's signature
// of the transcript up to and including it.
type Signed struct {
	Message []byte `json:"message"`
	Sig     []byte `json:"sig"`
}

// A Transcript binds a handshake to one connection and all that was said on it.
// Both sides feed it the same bytes in the same order.
type Transcript struct{ sum [sha256.Size]byte }

// NewTranscript starts with the channel binding, see [JoinConn.Exporter].
func NewTranscript(exporter []byte) Transcript {
	return Transcript{sha256.Sum256([]byte("spawnmesh-handshake-v1"))}.add("channel", exporter)
}

// add returns the transcript with one more message; the role says who spoke, so
// that nothing can be reflected.
func (t Transcript) add(role string, message []byte) Transcript {
	h := sha256.New()
	h.Write(t.sum[:])
	for _, part := range [][]byte{[]byte(role), message} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	return Transcript{[sha256.Size]byte(h.Sum(nil))}
}

// Hello adds the joining side's first message.
func (t Transcript) Hello(raw []byte) Transcript { return t.add("spoke hello", raw) }

// Proof adds the joining side's second message.
func (t Transcript) Proof(raw []byte) Transcript { return t.add("spoke proof", raw) }

// Sign encodes v as a message of the hub and signs the transcript with it.
func (t Transcript) Sign(identity *signing.Signer, v any) (raw []byte, next Transcript, err error) {
	message, err := signing.EncodeBody(v)
	if err != nil {
		return nil, t, err
	}
	next = t.add("hub", message)
	raw, err = signing.EncodeBody(Signed{message, identity.Sign(handshake, next.sum[:])})
	return raw, next, err
}

// Open reads a hub's message into v. identity returns the key that must have
// signed it, once the message is read: a challenge brings its own, which the
// caller compares with the token.
func (t Transcript) Open(raw []byte, v any, identity func() (ed25519.PublicKey, error)) (Transcript, error) {
	var s Signed
	if err := signing.DecodeBody(raw, &s); err != nil {
		return t, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	if again, err := signing.EncodeBody(s); err != nil || !bytes.Equal(again, raw) {
		return t, fmt.Errorf("%w: a message in another than its one spelling", ErrHandshake)
	}
	if err := signing.DecodeBody(s.Message, v); err != nil {
		return t, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	key, err := identity()
	if err != nil {
		return t, err
	}
	next := t.add("hub", s.Message)
	if !signing.Verify(key, handshake, next.sum[:], s.Sig) {
		return t, ErrHandshake
	}
	return next, nil
}

// Prove makes the proof of a joining side.
func (t Transcript) Prove(proofKey []byte, k signing.Keys) (Proof, error) {
	link, err := signing.NewSigner(k.LinkSeed)
	if err != nil {
		return Proof{}, err
	}
	final := t.add("prove", nil)
	sum := final.sum[:]
	mac := hmac.New(sha256.New, proofKey)
	mac.Write(sum)
	return Proof{mac.Sum(nil), k.Identity.Sign(handshake, sum), k.Signing.Sign(handshake, sum), link.Sign(handshake, sum)}, nil
}

// Check verifies the proof of the instance that said hello.
func (t Transcript) Check(p Proof, proofKey []byte, h Hello) error {
	final := t.add("prove", nil)
	sum := final.sum[:]
	mac := hmac.New(sha256.New, proofKey)
	mac.Write(sum)
	if !hmac.Equal(mac.Sum(nil), p.MAC) {
		return fmt.Errorf("%w: no proof for the token's secret", ErrHandshake)
	}
	link, err := nkeys.Decode(nkeys.PrefixByteUser, []byte(h.LinkKey))
	if err != nil {
		return fmt.Errorf("%w: no link key", ErrHandshake)
	}
	for _, c := range []struct {
		name     string
		key, sig []byte
	}{{"identity", h.Identity, p.Identity}, {"signing", h.Signing, p.Signing}, {"link", link, p.Link}} {
		if !signing.Verify(c.key, handshake, sum, c.sig) {
			return fmt.Errorf("%w: no proof for the %s key", ErrHandshake, c.name)
		}
	}
	return nil
}

// Nonce returns 32 fresh random bytes.
func Nonce() []byte {
	b := make([]byte, 32)
	rand.Read(b)
	return b
}

// Admit checks the keys of a hello before any of them is used.
func (h Hello) Admit() error {
	link, err := nkeys.Decode(nkeys.PrefixByteUser, []byte(h.LinkKey))
	if err != nil {
		return &signing.Rejected{Code: signing.KeyWeak, Why: "the link key is not a public NATS user key"}
	}
	return admitKeys([][]byte{h.Identity, h.Signing, link}, h.Sealing)
}

// Admit checks the keys of a challenge before any of them is used.
func (c Challenge) Admit() error { return admitKeys([][]byte{c.Identity, c.Signing}, c.Sealing) }

// admitKeys wants keys that are strong, and signing keys that are different from each other.
func admitKeys(keys [][]byte, sealing []byte) error {
	seen := map[string]bool{}
	for _, key := range keys {
		if err := signing.AdmitKey(key); err != nil {
			return err
		}
		if seen[string(key)] {
			return &signing.Rejected{Code: signing.KeyDuplicate, Why: "one key is used for two purposes"}
		}
		seen[string(key)] = true
	}
	return signing.AdmitSealingKey(sealing)
}
