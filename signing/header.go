package signing

import (
	"strconv"
	"strings"
)

// Limits of a message, in bytes and counts. docs/protocol.md explains them.
const (
	MaxMessage = 256 << 10
	MaxHeader  = 4 << 10
	MaxBody    = 180 << 10
	maxSeq     = 1<<53 - 1
)

// A Header is the signed part of a message. Field order is the wire order, which
// [reader.header] and [appendHeader] know too.
type Header struct {
	V     int        `json:"v"`     // always 2
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

// The forms are checked by hand, not by regular expressions: compiling those
// would cost every start of every shim more than all its own work.

// ValidUUID reports whether s is a UUID of version 4 or 7 in its lower-case form.
func ValidUUID(s string) bool {
	if len(s) != 36 || s[14] != '4' && s[14] != '7' || !strings.Contains("89ab", s[19:20]) {
		return false
	}
	for i := range len(s) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (s[i] == '-') || !dash && !hexDigit(s[i]) {
			return false
		}
	}
	return true
}

func hexDigit(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

func validDigest(s string) bool {
	for i := range len(s) {
		if !hexDigit(s[i]) {
			return false
		}
	}
	return len(s) == 64
}

// validKind wants two or three lower-case words with dots between them.
func validKind(s string) bool {
	words := strings.Split(s, ".")
	for _, w := range words {
		if w == "" || len(w) > 32 || w[0] < 'a' || w[0] > 'z' || !lowerName(w) {
			return false
		}
	}
	return len(words) == 2 || len(words) == 3
}

// validBodyType wants a kind and a version from v1 to v99.
func validBodyType(s string) bool {
	kind, version, ok := cutLast(s, ".v")
	n, err := strconv.Atoi(version)
	return ok && err == nil && n >= 1 && n <= 99 && strconv.Itoa(n) == version && validKind(kind)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// validWorkspace wants 1 to 63 lower-case letters, digits and dashes, no dash first.
func validWorkspace(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0) {
			return false
		}
	}
	return s != "" && len(s) <= 63
}

// check applies the rules of each field for a message of type t.
func (h Header) check(t Type) *Rejected {
	rules := []struct {
		name string
		ok   bool
	}{
		{"v", h.V == version},
		{"id", ValidUUID(h.ID)},
		{"kind", validKind(h.Kind)},
		{"iss", h.Iss.Valid()},
		{"kid", h.Kid.Valid()},
		{"aud", h.Aud.Valid()},
		{"conn", ValidUUID(h.Conn)},
		{"epoch", h.Epoch >= 1 && h.Epoch <= maxSeq},
		{"seq", h.Seq >= 1 && h.Seq <= maxSeq},
		{"iat", h.Iat >= 0 && h.Iat <= maxSeq},
		{"exp", h.Exp >= 0 && h.Exp <= maxSeq},
		{"wsp", validWorkspace(h.Wsp)},
		{"re", t.answers() == (h.Re != nil) && h.Re.valid()},
		{"body.type", validBodyType(h.Body.Type)},
		{"body.len", h.Body.Len >= 0 && h.Body.Len <= MaxBody},
		{"body.sha256", validDigest(h.Body.SHA256)},
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
	return r == nil || ValidUUID(r.ID) && validDigest(r.SHA256) && r.Attempt >= 0 && r.Fence >= 0
}
