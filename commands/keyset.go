package commands

import (
	"crypto/ed25519"

	"github.com/spawnmesh/spawnmesh/signing"
)

// Bounds of a key set.
const (
	MaxSetKeys    = 8
	MaxSetRevoked = 64
	maxOverlapMS  = 90 * 24 * 3600 * 1000
)

// A KeySet is an instance's statement of the keys that its messages are signed
// with. It names all of them: what is not named ends when the set is taken.
type KeySet struct {
	Version int64           `json:"version"` // higher than that of the set before
	Keys    []SetKey        `json:"keys"`    // the first one signs from now on
	Revoked []signing.KeyID `json:"revoked,omitempty"`
	Reason  string          `json:"reason,omitempty"`
}

// A SetKey is a signing key in a [KeySet].
type SetKey struct {
	Pub   []byte `json:"pub"`              // 32 bytes
	ForMS int64  `json:"for_ms,omitempty"` // an old key: how long it still verifies, from when the set is taken
}

// Kind returns [KeySetKind].
func (*KeySet) Kind() Kind { return KeySetKind }

// Validate checks b.
func (b *KeySet) Validate() error {
	if b.Version < 1 || b.Version > maxNumber {
		return Refuse(Validation, "version %d of a key set is outside 1..%d", b.Version, int64(maxNumber))
	}
	if len(b.Keys) < 1 || len(b.Keys) > MaxSetKeys || len(b.Revoked) > MaxSetRevoked {
		return Refuse(Validation, "a key set names 1 to %d keys and at most %d revoked ones", MaxSetKeys, MaxSetRevoked)
	}
	named := map[signing.KeyID]bool{}
	for i, k := range b.Keys {
		if err := signing.AdmitKey(k.Pub); err != nil {
			return err
		}
		if (i == 0) != (k.ForMS == 0) || k.ForMS < 0 || k.ForMS > maxOverlapMS {
			return Refuse(Validation, "the first key of a set signs without an end, every other one verifies for 1 ms to 90 days")
		}
		id := signing.KeyIDOf(ed25519.PublicKey(k.Pub))
		if named[id] {
			return Refuse(Validation, "a key set names a key twice")
		}
		named[id] = true
	}
	for _, id := range b.Revoked {
		if !id.Valid() || named[id] {
			return Refuse(Validation, "a revoked key is a key id that stands for no key of the set")
		}
		named[id] = true
	}
	return CheckReason(b.Reason)
}
