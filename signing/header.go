package signing

import (
	"bytes"
	"encoding/json"
	"regexp"
)

// Limits of a message, in bytes and counts. docs/protocol.md explains them.
const (
	MaxMessage = 256 << 10
	MaxHeader  = 4 << 10
	MaxBody    = 180 << 10
	maxSeq     = 1<<53 - 1
)

// A Header is the signed part of a message. Field order is the wire order.
type Header struct {
	V     int        `json:"v"`     // always 1
	ID    string     `json:"id"`    // UUIDv7 or v4: the key of deduplication
	Kind  string     `json:"kind"`  // what is said, "agent.spawn"
	Iss   InstanceID `json:"iss"`   // who says it
	Kid   KeyID      `json:"kid"`   // the key that signs
	Aud   InstanceID `json:"aud"`   // the one instance it is for
	Conn  string     `json:"conn"`  // UUID of the connection
	Epoch int64      `json:"epoch"` // grows with every handshake
	Seq   int64      `json:"seq"`   // per connection and direction, never reused
	Iat   int64      `json:"iat"`   // issued at, ms since 1970
	Exp   int64      `json:"exp"`   // last moment of acceptance, ms since 1970
	Wsp   string     `json:"wsp"`   // workspace
	Re    *Ref       `json:"re,omitempty"`
	Body  BodyRef    `json:"body"`
}

// A Ref ties an answer to the exact command and attempt it is about.
type Ref struct {
	ID      string `json:"id"`
	SHA256  string `json:"sha256"`
	Attempt int    `json:"attempt"`
	Fence   int64  `json:"fence"`
}

// A BodyRef names the body that a header belongs to.
type BodyRef struct {
	Type   string `json:"type"`
	Len    int    `json:"len"`
	SHA256 string `json:"sha256"`
	Enc    string `json:"enc"`
}

var (
	uuidForm      = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	kindForm      = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}(\.[a-z][a-z0-9_]{0,31}){1,2}$`)
	typeForm      = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}(\.[a-z][a-z0-9_]{0,31}){1,2}\.v[1-9][0-9]?$`)
	workspaceForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	digestForm    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ValidUUID reports whether s is a UUID of version 4 or 7 in its lower-case form.
func ValidUUID(s string) bool { return uuidForm.MatchString(s) }

// decodeHeader applies the one-spelling rule to payload.
func decodeHeader(payload []byte) (Header, *Rejected) {
	var h Header
	if err := json.Unmarshal(payload, &h); err != nil {
		return h, reject(HdrJSON, "the signed header cannot be read: %v", err)
	}
	again, err := encode(h)
	if err != nil || !bytes.Equal(again, payload) {
		return h, reject(HdrCanon, "the signed header is not in canonical form")
	}
	return h, nil
}

// check applies the rules of each field for a message of type t.
func (h Header) check(t Type) *Rejected {
	rules := []struct {
		name string
		ok   bool
	}{
		{"v", h.V == 1},
		{"id", ValidUUID(h.ID)},
		{"kind", kindForm.MatchString(h.Kind)},
		{"iss", h.Iss.Valid()},
		{"kid", h.Kid.Valid()},
		{"aud", h.Aud.Valid()},
		{"conn", ValidUUID(h.Conn)},
		{"epoch", h.Epoch >= 1 && h.Epoch <= maxSeq},
		{"seq", h.Seq >= 1 && h.Seq <= maxSeq},
		{"iat", h.Iat >= 0 && h.Iat <= maxSeq},
		{"exp", h.Exp >= 0 && h.Exp <= maxSeq},
		{"wsp", workspaceForm.MatchString(h.Wsp)},
		{"re", t.answers() == (h.Re != nil) && h.Re.valid()},
		{"body.type", typeForm.MatchString(h.Body.Type)},
		{"body.len", h.Body.Len >= 0 && h.Body.Len <= MaxBody},
		{"body.sha256", digestForm.MatchString(h.Body.SHA256)},
		{"body.enc", h.Body.Enc == "none"},
	}
	for _, r := range rules {
		if !r.ok {
			return reject(HdrField, "header field %s is missing or not allowed here", r.name)
		}
	}
	return nil
}

func (r *Ref) valid() bool {
	return r == nil || ValidUUID(r.ID) && digestForm.MatchString(r.SHA256) && r.Attempt >= 0 && r.Fence >= 0
}

// encode is the one encoder: compact JSON, fields in declaration order.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
