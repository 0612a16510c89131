package signing

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// What only its receiver may read is encrypted to the receiver's sealing key, with HPKE
// (RFC 9180) in base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305. Who
// sent it is proven by the signature of the message that it is in, not by the encryption.

// EncryptOverhead is how much longer a ciphertext is than what was encrypted.
const EncryptOverhead = 32 + 16

// A SealingKeyID names a sealing key: "x25519:" and the base64url SHA-256 of its 32 bytes.
type SealingKeyID string

const sealingPrefix = "x25519:"

// SealingKeyIDOf returns the id of pub.
func SealingKeyIDOf(pub []byte) SealingKeyID {
	sum := sha256.Sum256(pub)
	return SealingKeyID(sealingPrefix + base64.RawURLEncoding.EncodeToString(sum[:]))
}

// Valid reports whether id has the form of a sealing key's id.
func (id SealingKeyID) Valid() bool {
	rest, ok := strings.CutPrefix(string(id), sealingPrefix)
	return ok && KeyID(keyPrefix+rest).Valid()
}

// A Place is where a ciphertext belongs: it opens nowhere else. No part of it holds a |.
type Place struct {
	Aud     InstanceID // who may read it
	Conn    string     // of the message; "" for what never leaves its instance
	Message string     // id of the message, or of what else it belongs to
	Field   string     // of the body
}

func (p Place) info() []byte {
	return []byte("spawnmesh/seal/v1|" + string(p.Aud) + "|" + p.Conn + "|" + p.Message + "|" + p.Field)
}

// lowOrder are the X25519 public keys with which every exchange gives zero (RFC 7748,
// section 6.1), in all spellings below 2^255: whoever sends such a key lets everybody read.
var lowOrder = [][]byte{
	unhex("0000000000000000000000000000000000000000000000000000000000000000"),
	unhex("0100000000000000000000000000000000000000000000000000000000000000"),
	unhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
	unhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
	unhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
	unhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
	unhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
}

// AdmitSealingKey checks a foreign sealing key: 32 bytes, in its one spelling, not of low
// order. It returns a [Rejected] with [KeyWeak] otherwise.
func AdmitSealingKey(pub []byte) error {
	if len(pub) != 32 {
		return reject(KeyWeak, "a sealing key has 32 bytes, not %d", len(pub))
	}
	// RFC 7748 has the highest bit ignored: with and without it is the same key.
	u := bytes.Clone(pub)
	u[31] &= 0x7f
	for _, bad := range lowOrder {
		if bytes.Equal(u, bad) {
			return reject(KeyWeak, "this sealing key is not acceptable (low order): what is encrypted to it, everybody reads")
		}
	}
	if !lessThanPrime(pub) {
		return reject(KeyWeak, "this sealing key is not acceptable (not in canonical form)")
	}
	return nil
}

// Encrypt returns what the owner of the sealing key pub can read, at this place and with the
// same aad only.
func Encrypt(pub []byte, at Place, aad, plaintext []byte) ([]byte, error) {
	if err := AdmitSealingKey(pub); err != nil {
		return nil, err
	}
	key, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(pub)
	if err != nil {
		return nil, fmt.Errorf("encrypting to a sealing key: %w", err)
	}
	enc, sender, err := hpke.NewSender(key, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), at.info())
	if err != nil {
		return nil, fmt.Errorf("encrypting to a sealing key: %w", err)
	}
	ciphertext, err := sender.Seal(aad, plaintext)
	if err != nil {
		return nil, fmt.Errorf("encrypting to a sealing key: %w", err)
	}
	return append(enc, ciphertext...), nil
}

// A Decrypter holds the sealing key of an instance.
type Decrypter struct {
	id   SealingKeyID
	pub  []byte
	key  hpke.PrivateKey
	mark []byte // secret of marks
}

// NewDecrypter returns what opens ciphertexts for the owner of key.
func NewDecrypter(key *ecdh.PrivateKey) (*Decrypter, error) {
	private, err := hpke.NewDHKEMPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("using the sealing key: %w", err)
	}
	mark, err := hkdf.Key(sha256.New, key.Bytes(), nil, "spawnmesh/mark/v1", 32)
	if err != nil {
		return nil, fmt.Errorf("using the sealing key: %w", err)
	}
	pub := key.PublicKey().Bytes()
	return &Decrypter{SealingKeyIDOf(pub), pub, private, mark}, nil
}

// KeyID returns the id of the key.
func (d *Decrypter) KeyID() SealingKeyID { return d.id }

// Public returns the public key.
func (d *Decrypter) Public() []byte { return d.pub }

// Open decrypts what was encrypted to the sealing key id. It returns a [Rejected] with
// [SealOpen] for another key, another place or aad, and whatever was changed.
func (d *Decrypter) Open(id SealingKeyID, at Place, aad, ciphertext []byte) ([]byte, error) {
	if id != d.id {
		return nil, reject(SealOpen, "it is encrypted to the sealing key %.60s; this instance has %s", id, d.id)
	}
	if len(ciphertext) < EncryptOverhead {
		return nil, reject(SealOpen, "a ciphertext has at least %d bytes, this one has %d", EncryptOverhead, len(ciphertext))
	}
	recipient, err := hpke.NewRecipient(ciphertext[:32], d.key, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), at.info())
	if err != nil {
		return nil, reject(SealOpen, "it cannot be decrypted: its key share is not acceptable")
	}
	plaintext, err := recipient.Open(aad, ciphertext[32:])
	if err != nil {
		return nil, reject(SealOpen, "it cannot be decrypted: it was changed, or encrypted for another message")
	}
	return plaintext, nil
}

// Mark names a plaintext to the owner of the key alone: the same for the same one, and
// nobody else can test a guess with it.
func (d *Decrypter) Mark(plaintext []byte) []byte {
	mac := hmac.New(sha256.New, d.mark)
	mac.Write(plaintext)
	return mac.Sum(nil)
}

// String keeps the private key out of anything that prints a Decrypter.
func (d *Decrypter) String() string { return string(d.id) }

// GoString keeps the private key out of %#v.
func (d *Decrypter) GoString() string { return d.String() }
