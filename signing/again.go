package signing

import (
	"crypto/sha256"
	"reflect"
	"time"
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

// Retime issues m now if it is of a time that the peer would refuse: the clock was ahead when it
// was sealed. It lives no longer than before.
func (m *Unsealed) Retime(now time.Time) {
	ms := now.UnixMilli()
	if m.Header.Iat <= ms+Skew.Milliseconds() {
		return
	}
	m.Header.Iat, m.Header.Exp = ms, min(m.Header.Exp, ms+m.Type.Lifetime().Milliseconds())
}

// IssuedBefore reports whether h is of an earlier time than the header of envelope.
func (h Header) IssuedBefore(envelope []byte) bool {
	d, r := decodeEnvelope(envelope)
	if r != nil {
		return false
	}
	was, r := decodeHeader(d.payload)
	return r == nil && h.Iat < was.Iat
}

// retimes reports whether h is of the same time as was, or earlier and lives no longer.
func (h Header) retimes(was Header) bool {
	return h.Iat == was.Iat && h.Exp == was.Exp || h.Iat < was.Iat && h.Exp <= was.Exp
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

// resembles reports whether the header of envelope is h, but for key, number and, where a
// clock was mended in between, time.
func (h Header) resembles(envelope []byte) bool {
	d, r := decodeEnvelope(envelope)
	if r != nil {
		return false
	}
	was, r := decodeHeader(d.payload)
	if r != nil {
		return false
	}
	if !h.retimes(was) && !was.retimes(h) {
		return false
	}
	was.Kid, was.Seq, was.Iat, was.Exp = h.Kid, h.Seq, h.Iat, h.Exp
	return reflect.DeepEqual(h, was)
}
