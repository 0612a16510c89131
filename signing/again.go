package signing

import (
	"crypto/sha256"
	"reflect"
)

// Unseal takes a message of the same instance apart, which is to be sealed once more as
// number seq. Everything else stays: its id, what it says, and until when it is accepted.
// Nothing is verified.
func Unseal(envelope []byte, seq int64) (Unsealed, error) {
	d, r := decodeEnvelope(envelope)
	if r != nil {
		return Unsealed{}, r
	}
	h, r := decodeHeader(d.payload)
	if r != nil {
		return Unsealed{}, r
	}
	h.Seq = seq
	return Unsealed{d.typ, h, d.body}, nil
}

// Renumber signs a message of the same instance once more and alone, as number seq.
func (s *Signer) Renumber(envelope []byte, seq int64, also ...*Signer) (Sealed, error) {
	m, err := Unseal(envelope, seq)
	if err != nil {
		return Sealed{}, err
	}
	return s.Seal(m.Type, m.Header, m.Body, also...)
}

// SealedAnew reports whether h, the header of envelope now, seals the same message as
// envelope was, which was opened before: by another key, under another number, or in
// another tree. It is not the same where now has not the body that h names.
func (h Header) SealedAnew(now, was []byte) bool {
	return h.hasBody(now) && h.resembles(was)
}

func (h Header) hasBody(envelope []byte) bool {
	d, r := decodeEnvelope(envelope)
	return r == nil && Digest(sha256.Sum256(d.body)).String() == h.Body.SHA256
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
