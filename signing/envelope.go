package signing

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"
)

// A Type says what a message is for. It is signed together with the header.
type Type string

// The types of version 1.
const (
	Command Type = "application/vnd.spawnmesh.command.v1+json" // one side asks
	Event   Type = "application/vnd.spawnmesh.event.v1+json"   // something happened in an attempt
	Result  Type = "application/vnd.spawnmesh.result.v1+json"  // how a task ended
	Receipt Type = "application/vnd.spawnmesh.receipt.v1+json" // what the executing side did with a command
	Peer    Type = "application/vnd.spawnmesh.peer.v1+json"    // between the instances themselves
	KeySet  Type = "application/vnd.spawnmesh.keyset.v1+json"  // the keys of an instance
)

// lifetimes is how long a message of each type may stay acceptable.
var lifetimes = map[Type]time.Duration{
	Command: 7 * 24 * time.Hour,
	Event:   30 * 24 * time.Hour,
	Result:  30 * 24 * time.Hour,
	Receipt: 30 * 24 * time.Hour,
	Peer:    30 * 24 * time.Hour,
	KeySet:  90 * 24 * time.Hour,
}

// Lifetime returns the longest time a message of type t may stay acceptable.
func (t Type) Lifetime() time.Duration { return lifetimes[t] }

// answers reports whether messages of type t must name the command they are about.
func (t Type) answers() bool { return t == Event || t == Result || t == Receipt }

func (t Type) maxSignatures() int {
	if t == Peer || t == KeySet {
		return 4
	}
	return 1
}

// A Digest is the SHA-256 of a signed header; it names one exact message.
type Digest [sha256.Size]byte

// String returns d in lower-case hex, as it appears in [Ref].
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

type signature struct {
	KeyID KeyID  `json:"keyid"`
	Sig   string `json:"sig"`
}

type envelopeJSON struct {
	PayloadType Type        `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []signature `json:"signatures"`
	Body        string      `json:"body"`
}

// pae is DSSE's pre-authentication encoding of (t, payload).
func pae(t Type, payload []byte) []byte {
	b := make([]byte, 0, len(payload)+len(t)+32)
	b = append(b, "DSSEv1 "...)
	b = strconv.AppendInt(b, int64(len(t)), 10)
	b = append(b, ' ')
	b = append(b, t...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(payload)), 10)
	b = append(b, ' ')
	return append(b, payload...)
}

// A Sealed is a message as it travels, with what its sender keeps about it.
type Sealed struct {
	ID       string
	Seq      int64
	Exp      time.Time
	Envelope []byte
	Digest   Digest // of the header
	Body     Digest // of the body: what answers name, the same when the message is sealed anew
}

// Seal signs header h over body as a message of type t. It fills V, Kid and
// Body of h, and refuses a header that no receiver would accept. The keys of also
// sign it too.
func (s *Signer) Seal(t Type, h Header, body []byte, also ...*Signer) (Sealed, error) {
	sum := sha256.Sum256(body)
	h.V, h.Kid = 1, s.id
	h.Body = BodyRef{Type: h.Kind + ".v1", Len: len(body), SHA256: hex.EncodeToString(sum[:]), Enc: "none"}
	if r := h.check(t); r != nil {
		return Sealed{}, fmt.Errorf("sealing a %s message: %w", h.Kind, r)
	}
	payload, err := encode(h)
	if err != nil {
		return Sealed{}, fmt.Errorf("sealing a %s message: %w", h.Kind, err)
	}
	var sigs []signature
	for _, by := range append([]*Signer{s}, also...) {
		sigs = append(sigs, signature{by.id, base64.StdEncoding.EncodeToString(by.Sign(t, payload))})
	}
	envelope, err := encode(envelopeJSON{t, base64.StdEncoding.EncodeToString(payload), sigs, base64.StdEncoding.EncodeToString(body)})
	if err != nil {
		return Sealed{}, fmt.Errorf("sealing a %s message: %w", h.Kind, err)
	}
	return Sealed{h.ID, h.Seq, time.UnixMilli(h.Exp), envelope, sha256.Sum256(payload), sum}, nil
}

// Renumber signs a message of the same instance once more, as number seq.
// Everything else stays: its id, what it says, and until when it is accepted.
func (s *Signer) Renumber(envelope []byte, seq int64, also ...*Signer) (Sealed, error) {
	d, r := decodeEnvelope(envelope)
	if r != nil {
		return Sealed{}, r
	}
	h, r := decodeHeader(d.payload)
	if r != nil {
		return Sealed{}, r
	}
	h.Seq = seq
	return s.Seal(d.typ, h, d.body, also...)
}

// SealedAnew reports whether h, the header of envelope now, seals the same message as
// envelope was, which was opened before: by another key, or under another number. It is not
// the same where now has not the body that h names.
func (h Header) SealedAnew(now, was []byte) bool {
	return h.hasBody(now) && h.resembles(was)
}

func (h Header) hasBody(envelope []byte) bool {
	d, r := decodeEnvelope(envelope)
	if r != nil {
		return false
	}
	sum := sha256.Sum256(d.body)
	return hex.EncodeToString(sum[:]) == h.Body.SHA256
}

// resembles reports whether the header of envelope is h, but for key and number.
func (h Header) resembles(envelope []byte) bool {
	d, r := decodeEnvelope(envelope)
	if r != nil {
		return false
	}
	was, r := decodeHeader(d.payload)
	if r != nil {
		return false
	}
	was.Kid, was.Seq = h.Kid, h.Seq
	return reflect.DeepEqual(h, was)
}

// decoded is an envelope whose form was checked and whose signatures were not.
type decoded struct {
	typ     Type
	payload []byte
	sigs    []signatureBytes
	body    []byte
}

type signatureBytes struct {
	key KeyID
	sig []byte
}

// decodeEnvelope checks size, spelling, type, count and base64 of envelope.
func decodeEnvelope(envelope []byte) (decoded, *Rejected) {
	var d decoded
	if len(envelope) > MaxMessage {
		return d, reject(EnvSize, "message is %d bytes, limit %d", len(envelope), MaxMessage)
	}
	for _, c := range envelope {
		if c < 0x20 || c > 0x7e {
			return d, reject(EnvCanon, "a byte that no spawnmesh envelope contains")
		}
	}
	var e envelopeJSON
	if err := json.Unmarshal(envelope, &e); err != nil {
		return d, reject(EnvJSON, "not a spawnmesh envelope: %v", err)
	}
	again, err := encode(e)
	if err != nil || !bytes.Equal(again, envelope) {
		return d, reject(EnvCanon, "bytes after, before or inside the envelope that do not belong to it")
	}
	d.typ = e.PayloadType
	if d.typ.Lifetime() == 0 {
		return d, reject(EnvType, "unknown message type, this node speaks v1")
	}
	if n := len(e.Signatures); n < 1 || n > d.typ.maxSignatures() {
		return d, reject(EnvSigCount, "%d signatures, a message of this type has 1 to %d", n, d.typ.maxSignatures())
	}
	return d, d.decodeFields(e)
}

func (d *decoded) decodeFields(e envelopeJSON) *Rejected {
	var ok bool
	if d.payload, ok = strictBase64(e.Payload, MaxHeader); !ok {
		return reject(EnvB64, "the header is not canonical base64 of at most %d bytes", MaxHeader)
	}
	if d.body, ok = strictBase64(e.Body, MaxBody); !ok {
		return reject(EnvB64, "the body is not canonical base64 of at most %d bytes", MaxBody)
	}
	seen := map[KeyID]bool{}
	for _, s := range e.Signatures {
		raw, ok := strictBase64(s.Sig, 64)
		if !ok || len(raw) != 64 {
			return reject(EnvB64, "a signature is not canonical base64 of 64 bytes")
		}
		if seen[s.KeyID] {
			return reject(EnvSigCount, "one key signed twice")
		}
		seen[s.KeyID] = true
		d.sigs = append(d.sigs, signatureBytes{s.KeyID, raw})
	}
	return nil
}

func strictBase64(s string, limit int) ([]byte, bool) {
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(raw) > limit || base64.StdEncoding.EncodeToString(raw) != s {
		return nil, false
	}
	return raw, true
}
