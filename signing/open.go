package signing

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Skew is how far two clocks may differ before a message is refused for it.
const Skew = 120 * time.Second

// A PeerKey is a key of the other side of a connection, as it was admitted.
type PeerKey struct {
	ID     KeyID
	Owner  InstanceID
	Public ed25519.PublicKey
}

// A Verifier knows one connection: who we are, which epoch it is in and which
// keys the other side may sign with. Keys of different connections never mix.
type Verifier struct {
	Self     InstanceID
	Conn     string
	Epoch    int64
	Keys     map[KeyID]PeerKey
	Identity KeyID  // one of Keys: it signs every key set, and nothing else
	Heads    *Heads // what was verified before; nil remembers nothing
}

// An Opened is a message whose form, signature, address and time were checked.
// What only the database can decide about it (connection state, revocation,
// replay) is still to be decided, in the transaction of its effect.
type Opened struct {
	typ      Type
	header   Header
	body     []byte
	envelope []byte
	digest   Digest
}

// Type returns what the message is for.
func (o Opened) Type() Type { return o.typ }

// Header returns the signed header.
func (o Opened) Header() Header { return o.header }

// Body returns the body that the header vouches for.
func (o Opened) Body() []byte { return o.body }

// Envelope returns the message as it travelled: the evidence.
func (o Opened) Envelope() []byte { return o.envelope }

// Digest returns the SHA-256 of the signed header.
func (o Opened) Digest() Digest { return o.digest }

// Open checks envelope in the order of docs/protocol.md and stops at the first
// failure, which is a [*Rejected].
func (v Verifier) Open(envelope []byte, now time.Time) (Opened, error) {
	d, r := decodeEnvelope(envelope)
	if r == nil {
		r = v.checkSignatures(d)
	}
	if r != nil {
		return Opened{}, r
	}
	h, r := decodeHeader(d.payload)
	if r == nil {
		r = h.check(d.typ)
	}
	if r != nil {
		return Opened{}, r
	}
	digest := Digest(sha256.Sum256(d.payload))
	if r = v.checkAddress(h, d.sigs[0].key); r != nil {
		return Opened{}, r
	}
	if r = checkTime(h, d.typ, now); r == nil {
		r = checkBody(h, d.body)
	}
	if r != nil {
		r.Header, r.Digest = &h, digest
		return Opened{}, r
	}
	return Opened{d.typ, h, d.body, envelope, digest}, nil
}

// Reopen opens a message that could be accepted when it was issued, however long
// ago: as evidence, which nobody obeys any more.
func (v Verifier) Reopen(envelope []byte) (Opened, error) {
	d, r := decodeEnvelope(envelope)
	if r != nil {
		return Opened{}, r
	}
	h, r := decodeHeader(d.payload)
	if r != nil {
		return Opened{}, r
	}
	return v.Open(envelope, time.UnixMilli(h.Iat))
}

func (v Verifier) checkSignatures(d decoded) *Rejected {
	identity, head := false, d.place.head(leafOf(d.typ, d.payload))
	for _, s := range d.sigs {
		key, ok := v.Keys[s.key]
		if !ok || len(key.Public) != ed25519.PublicKeySize || s.key == v.Identity && d.typ != KeySet && d.typ != Peer {
			return reject(KeyUnknown, "the signing key does not belong to this connection")
		}
		if !v.Heads.verify(key.Public, head, s.sig) {
			return reject(SigBad, "signature does not match this message's type, content and place")
		}
		identity = identity || s.key == v.Identity
	}
	if d.typ == KeySet && !identity {
		return reject(KeySetSigner, "the identity key has not signed this key set")
	}
	return nil
}

func (v Verifier) checkAddress(h Header, outer KeyID) *Rejected {
	switch {
	case h.Kid != outer:
		return reject(KidMismatch, "the signed header names another key")
	case h.Iss != v.Keys[outer].Owner:
		return reject(IssMismatch, "the issuer does not own the signing key")
	case h.Aud != v.Self:
		return reject(AudMismatch, "the message is for another instance")
	case h.Conn != v.Conn:
		return reject(ConnUnknown, "the message belongs to another connection")
	case h.Epoch != v.Epoch:
		return reject(EpochStale, "the message is of epoch %d, the connection is in epoch %d", h.Epoch, v.Epoch)
	}
	return nil
}

// CompareClocks ends what is said of a message that is refused for its time, for whoever is told of no other remedy.
const CompareClocks = "; compare the clocks of both hosts"

func checkTime(h Header, t Type, now time.Time) *Rejected {
	ms := now.UnixMilli()
	switch {
	case h.Exp <= h.Iat || h.Exp-h.Iat > t.Lifetime().Milliseconds():
		return reject(TimeTTL, "a message of this type may live from 1 ms to %s", t.Lifetime())
	case h.Iat > ms+Skew.Milliseconds():
		return reject(TimeFuture, "issued %s in this host's future"+CompareClocks, time.Duration(h.Iat-ms)*time.Millisecond)
	case ms > h.Exp+Skew.Milliseconds():
		return reject(TimeExpired, "expired %s ago"+CompareClocks+" if that is a surprise", time.Duration(ms-h.Exp)*time.Millisecond)
	}
	return nil
}

func checkBody(h Header, body []byte) *Rejected {
	sum := sha256.Sum256(body)
	if h.Body.Len != len(body) || h.Body.SHA256 != hex.EncodeToString(sum[:]) {
		return reject(BodyDigest, "body does not match the signed digest")
	}
	return nil
}
