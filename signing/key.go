package signing

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"strings"
)

// A KeyID names a public key: "ed25519:" and the base64url SHA-256 of its 32
// bytes. The algorithm is a property of the key, never of a message.
type KeyID string

const keyPrefix = "ed25519:"

// KeyIDOf returns the id of pub.
func KeyIDOf(pub ed25519.PublicKey) KeyID {
	sum := sha256.Sum256(pub)
	return KeyID(keyPrefix + base64.RawURLEncoding.EncodeToString(sum[:]))
}

// Valid reports whether id has the form of a key id.
func (id KeyID) Valid() bool {
	rest, ok := strings.CutPrefix(string(id), keyPrefix)
	if !ok || len(rest) != 43 {
		return false
	}
	sum, err := base64.RawURLEncoding.DecodeString(rest)
	return err == nil && base64.RawURLEncoding.EncodeToString(sum) == rest
}

// An InstanceID is the self-certifying name of an instance: "mi1" and the
// base32 of the first 20 bytes of a tagged SHA-256 of its identity key.
type InstanceID string

var instanceEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// InstanceIDOf returns the id of the instance whose identity key is pub.
func InstanceIDOf(pub ed25519.PublicKey) InstanceID {
	sum := sha256.Sum256(append([]byte("spawnmesh-instance-v1"), pub...))
	return InstanceID("mi1" + instanceEncoding.EncodeToString(sum[:20]))
}

// Valid reports whether id has the form of an instance id.
func (id InstanceID) Valid() bool {
	rest, ok := strings.CutPrefix(string(id), "mi1")
	if !ok || len(rest) != 32 {
		return false
	}
	for _, c := range rest {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz234567", c) {
			return false
		}
	}
	return true
}

// Fingerprint is the part of an identity that two people compare by voice: six
// groups of four letters and digits of the key's id.
func Fingerprint(pub ed25519.PublicKey) string {
	sum := sha256.Sum256(pub)
	text := instanceEncoding.EncodeToString(sum[:15])
	groups := make([]string, 0, 6)
	for i := 0; i < len(text); i += 4 {
		groups = append(groups, text[i:i+4])
	}
	return strings.Join(groups, "-")
}

// A Signer holds a private key and signs headers with it. It builds the
// pre-authentication encoding itself, so nobody can have raw bytes signed.
type Signer struct {
	id   KeyID
	priv ed25519.PrivateKey
}

// NewSigner returns the signer of the key with the given 32-byte seed.
func NewSigner(seed []byte) (*Signer, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("a key seed has %d bytes, not %d", ed25519.SeedSize, len(seed))
	}
	priv := ed25519.NewKeyFromSeed(seed)
	return &Signer{id: KeyIDOf(priv.Public().(ed25519.PublicKey)), priv: priv}, nil
}

// KeyID returns the id of the signer's key.
func (s *Signer) KeyID() KeyID { return s.id }

// Public returns the signer's public key.
func (s *Signer) Public() ed25519.PublicKey { return s.priv.Public().(ed25519.PublicKey) }

// Sign signs the pre-authentication encoding of type t and payload.
func (s *Signer) Sign(t Type, payload []byte) []byte {
	return ed25519.Sign(s.priv, pae(t, payload))
}

// String keeps the private key out of anything that prints a Signer.
func (s *Signer) String() string { return string(s.id) }

// GoString keeps the private key out of %#v.
func (s *Signer) GoString() string { return s.String() }

// Verify reports whether sig is pub's signature of payload under type t. Any
// wrong length is a plain false: crypto/ed25519 would panic on a bad key.
func Verify(pub ed25519.PublicKey, t Type, payload, sig []byte) bool {
	return len(pub) == ed25519.PublicKeySize && len(sig) == ed25519.SignatureSize &&
		ed25519.Verify(pub, pae(t, payload), sig)
}
