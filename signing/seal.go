package signing

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// A Digest is the SHA-256 of a signed header; it names one exact message.
type Digest [sha256.Size]byte

// String returns d in lower-case hex, as it appears in [Ref].
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// An Unsealed is a message before it is signed. V, Kid and Body of the header are filled
// in when it is.
type Unsealed struct {
	Type   Type
	Header Header
	Body   []byte
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

// Seal signs header h over body as a message of type t, alone: it is a tree of one. It
// fills V, Kid and Body of h, and refuses a header that no receiver would accept. The keys
// of also sign it too.
func (s *Signer) Seal(t Type, h Header, body []byte, also ...*Signer) (Sealed, error) {
	sealed, err := s.sealTree([]Unsealed{{t, h, body}}, also)
	if err != nil {
		return Sealed{}, err
	}
	return sealed[0], nil
}

// SealAll signs messages together, with one signature for up to [MaxTree] of them, and
// returns them in the same order. Each can be opened without the others, whatever their
// types and receivers are. It refuses all of them where it refuses one.
func (s *Signer) SealAll(list []Unsealed) ([]Sealed, error) {
	all := make([]Sealed, 0, len(list))
	for part := range slices.Chunk(list, MaxTree) {
		sealed, err := s.sealTree(part, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, sealed...)
	}
	return all, nil
}

// sealTree signs the head of the tree of list.
func (s *Signer) sealTree(list []Unsealed, also []*Signer) ([]Sealed, error) {
	sealed := make([]Sealed, len(list))
	payloads, leaves := make([][]byte, len(list)), make([]node, len(list))
	for i := range list {
		var err error
		if sealed[i], payloads[i], err = s.prepare(list[i]); err != nil {
			return nil, err
		}
		leaves[i] = leafOf(list[i].Type, payloads[i])
	}
	tree := treeOf(leaves)
	var sigs []signatureBytes
	for _, by := range append([]*Signer{s}, also...) {
		sigs = append(sigs, signatureBytes{by.id, by.signHead(tree.head())})
	}
	for i, m := range list {
		d := decoded{m.Type, payloads[i], place{len(list), i, tree.path(i)}, sigs, m.Body}
		sealed[i].Envelope = d.encode()
	}
	return sealed, nil
}

// prepare completes the header of m, and returns it as it will be signed.
func (s *Signer) prepare(m Unsealed) (Sealed, []byte, error) {
	h, sum := m.Header, Digest(sha256.Sum256(m.Body))
	h.V, h.Kid = version, s.id
	h.Body = BodyRef{Type: h.Kind + ".v1", Len: len(m.Body), SHA256: sum.String(), Enc: "none"}
	if r := h.check(m.Type); r != nil {
		return Sealed{}, nil, fmt.Errorf("sealing a %s message: %w", h.Kind, r)
	}
	payload := appendHeader(make([]byte, 0, 600), h)
	return Sealed{ID: h.ID, Seq: h.Seq, Exp: time.UnixMilli(h.Exp), Digest: sha256.Sum256(payload), Body: sum}, payload, nil
}
