package forge

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// set gives a field of a header's text another value. Fields of body come last,
// so the last one with the name is meant there.
func set(header, field, value string) string {
	all := regexp.MustCompile(`"`+field+`":("[^"]*"|[0-9]+|\{"type"[^}]*\})`).FindAllStringSubmatchIndex(header, -1)
	m := all[0]
	if field == "sha256" || field == "type" {
		m = all[len(all)-1]
	}
	return header[:m[2]] + value + header[m[3]:]
}

// numbers are other spellings of a number, or too large.
func (b *bads) numbers() {
	for text, code := range map[string]signing.Code{
		"42.0": signing.HdrJSON, "4.2e1": signing.HdrJSON, `"42"`: signing.HdrJSON, "042": signing.HdrJSON, "+42": signing.HdrJSON,
		"-0": signing.HdrCanon, "0": signing.HdrField, "-1": signing.HdrField,
		"9007199254740992": signing.HdrField, "9223372036854775808": signing.HdrJSON,
	} {
		b.header(code, "seq "+text, func(h string) string { return set(h, "seq", text) })
	}
	b.header(signing.HdrCanon, "exp -0", func(h string) string { return set(h, "exp", "-0") })
	b.header(signing.HdrField, "negative iat", func(h string) string { return set(h, "iat", "-5") })
	b.header(signing.HdrField, "negative exp", func(h string) string { return set(h, "exp", "-5") })
	b.header(signing.HdrField, "negative body length", func(h string) string { return set(h, "len", "-5") })
}

// fields are missing, null, empty, twice or unknown.
func (b *bads) fields() {
	text := []string{"id", "kind", "iss", "kid", "aud", "conn", "wsp", "type", "sha256", "enc"}
	number := []string{"v", "epoch", "seq", "iat", "exp", "len"}
	for _, f := range append(append([]string{"body"}, text...), number...) {
		b.header(signing.HdrCanon, "null "+f, func(h string) string { return set(h, f, "null") })
		b.header(signing.HdrCanon, "missing "+f, func(h string) string {
			gone := set(h, f, "@")
			gone = strings.Replace(gone, `"`+f+`":@,`, "", 1)
			return strings.Replace(gone, `,"`+f+`":@`, "", 1)
		})
	}
	for _, f := range text {
		b.header(signing.HdrField, "empty "+f, func(h string) string { return set(h, f, `""`) })
	}
	for _, f := range number {
		b.header(signing.HdrJSON, "empty "+f, func(h string) string { return set(h, f, `""`) })
	}
	victim := string(signing.InstanceIDOf(bytes.Repeat([]byte{5}, 32)))
	b.header(signing.HdrCanon, "two audiences, the second one right", func(h string) string {
		return strings.Replace(h, `"aud":`, `"aud":"`+victim+`","aud":`, 1)
	})
	b.header(signing.HdrCanon, "AUD beside aud", func(h string) string { return strings.Replace(h, `"conn":`, `"AUD":"`+victim+`","conn":`, 1) })
	b.header(signing.HdrCanon, "unknown field", func(h string) string { return strings.Replace(h, `"conn":`, `"x":1,"conn":`, 1) })
	b.header(signing.HdrCanon, "space in the header", func(h string) string { return strings.Replace(h, `"conn":`, `"conn": `, 1) })
	b.header(signing.HdrCanon, "header of another order", func(h string) string { return strings.Replace(h, `{"v":2,`, `{`, 1)[:len(h)-7] + `,"v":2}` })
	b.header(signing.HdrCanon, "header null", func(string) string { return "null" })
	b.header(signing.HdrJSON, "header a list", func(string) string { return "[]" })
	b.header(signing.HdrJSON, "bytes after the header", func(h string) string { return h + "{}" })
	b.field(signing.HdrField, "version 1", func(h *signing.Header) { h.V = 1 })
	b.header(signing.HdrField, "unknown encryption", func(h string) string { return set(h, "enc", `"rot13"`) })
	b.header(signing.HdrField, "sealed", func(h string) string { return set(h, "enc", `"hpke-x25519-hkdf-sha256-chacha20poly1305"`) })
}

// identifiers are UUIDs in a second spelling, or of a kind that can be guessed.
func (b *bads) identifiers() {
	good := NewID()
	for name, id := range map[string]string{
		"upper-case":  strings.ToUpper(good),
		"in braces":   "{" + good + "}",
		"35 letters":  good[:35],
		"37 letters":  good + "0",
		"nil":         "00000000-0000-0000-0000-000000000000",
		"version 1":   good[:14] + "1" + good[15:],
		"no variant":  good[:19] + "0" + good[20:],
		"without '-'": strings.ReplaceAll(good, "-", ""),
	} {
		b.field(signing.HdrField, name+" id", func(h *signing.Header) { h.ID = id })
	}
	b.field(signing.HdrField, "upper-case conn", func(h *signing.Header) { h.Conn = strings.ToUpper(h.Conn) })
	b.field(signing.HdrField, "upper-case aud", func(h *signing.Header) { h.Aud = signing.InstanceID(strings.ToUpper(string(h.Aud))) })
	b.field(signing.HdrField, "kind with a newline", func(h *signing.Header) { h.Kind += "\n" })
	b.field(signing.HdrField, "workspace that climbs", func(h *signing.Header) { h.Wsp = "../main" })
}

// addresses are of somebody else.
func (b *bads) addresses() {
	other := signing.InstanceIDOf(bytes.Repeat([]byte{5}, 32))
	b.field(signing.IssMismatch, "in another's name", func(h *signing.Header) { h.Iss = other })
	b.field(signing.IssMismatch, "in the receiver's name", func(h *signing.Header) { h.Iss = b.v.Peer })
	b.field(signing.AudMismatch, "for somebody else", func(h *signing.Header) { h.Aud = other })
	b.field(signing.HdrField, "for everybody", func(h *signing.Header) { h.Aud = "*" })
	b.field(signing.ConnUnknown, "of another connection", func(h *signing.Header) { h.Conn = NewID() })
	b.field(signing.EpochStale, "of another epoch", func(h *signing.Header) { h.Epoch++ })
}

// signed adds a message that is wrong in a way that only its sender can have
// made it.
func (b *bads) signed(code signing.Code, name string, envelope []byte) {
	b.list = append(b.list, Bad{Class: b.class, Name: name, Code: code, Signed: true, Envelope: envelope})
}

// workspaces are not the one that the connection's grant names.
func (b *bads) workspaces() {
	b.signed(commands.Grant, "of another workspace", b.parts(func(h *signing.Header) { h.Wsp = "night" }).Envelope())
}

// times are of clocks that differ, and lives that are too long.
func (b *bads) times() {
	at := func(code signing.Code, name string, change func(h *signing.Header, now time.Time)) {
		b.signed(code, name, b.parts(func(h *signing.Header) { change(h, time.Now()) }).Envelope())
	}
	at(signing.TimeFuture, "issued in 140 seconds", func(h *signing.Header, now time.Time) { h.Iat = now.Add(140 * time.Second).UnixMilli() })
	at(signing.TimeFuture, "of a clock that is a day ahead", func(h *signing.Header, now time.Time) {
		h.Iat, h.Exp = now.Add(24*time.Hour).UnixMilli(), now.Add(25*time.Hour).UnixMilli()
	})
	at(signing.TimeExpired, "of a clock that is a day behind", func(h *signing.Header, now time.Time) {
		h.Iat, h.Exp = now.Add(-24*time.Hour).UnixMilli(), now.Add(-23*time.Hour).UnixMilli()
	})
	at(signing.TimeExpired, "expired 121 seconds ago", func(h *signing.Header, now time.Time) {
		h.Iat, h.Exp = now.Add(-time.Hour).UnixMilli(), now.Add(-121*time.Second).UnixMilli()
	})
	at(signing.TimeTTL, "expired before it was issued", func(h *signing.Header, _ time.Time) { h.Exp = h.Iat - 1 })
	at(signing.TimeTTL, "no life at all", func(h *signing.Header, _ time.Time) { h.Exp = h.Iat })
	at(signing.TimeTTL, "a life above the limit", func(h *signing.Header, _ time.Time) { h.Exp = h.Iat + (30 * 24 * time.Hour).Milliseconds() + 1 })
	at(signing.TimeTTL, "the last moment there is", func(h *signing.Header, _ time.Time) { h.Exp = 1<<53 - 1 })
}

// kinds do not go with their type.
func (b *bads) kinds() {
	b.header(signing.HdrField, "re where none belongs, or none where one does", func(h string) string {
		re := regexp.MustCompile(`"re":\{[^}]*\},`)
		if re.MatchString(h) {
			return re.ReplaceAllString(h, "")
		}
		return strings.Replace(h, `"body":`, fmt.Sprintf(`"re":{"id":"%s","sha256":"%064d","attempt":0,"fence":0},"body":`, NewID(), 7), 1)
	})
	b.signed(signing.HdrField, "a kind of another type", b.parts(func(h *signing.Header) { h.Kind = string(commands.HeartbeatKind) }).Envelope())
	b.signed(signing.HdrField, "a kind that nobody knows", b.parts(func(h *signing.Header) { h.Kind = "agent.dance" }).Envelope())
	f := b.parts(nil)
	f.Header = []byte(set(string(f.Header), "type", `"agent.dance.v1"`))
	f.Sigs = []Sig{f.Signed(b.v.Keys.Signing)}
	b.signed(signing.HdrField, "a body of another kind", f.Envelope())
}

// bodies differ from what was signed, or are not what a body may be.
func (b *bads) bodies() {
	after := func(name string, change func([]byte) []byte) {
		f := b.parts(nil)
		f.Body = change(f.Body)
		b.signed(signing.BodyDigest, name, f.Envelope())
	}
	after("body swapped", func([]byte) []byte { return b.parts(nil).Body })
	after("body cut short", func(d []byte) []byte { return d[:len(d)-1] })
	after("body extended", func(d []byte) []byte { return append(bytes.Clone(d), ' ') })
	after("body absent", func([]byte) []byte { return nil })
	keys := make([]string, 15_000)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"k%05d":1`, i)
	}
	newer := map[string]bool{"body: unknown field": true, "body: 15,000 names": true}
	for name, raw := range map[string]string{
		"body: a name twice":          `{"task":"x","task":"y"}`,
		"body: a nested name twice":   `{"env":[{"name":"A","name":"B"}]}`,
		"body: another case":          `{"TASK":"x"}`,
		"body: unknown field":         `{"tusk":"x"}`,
		"body: null":                  `null`,
		"body: null inside":           `{"task":null}`,
		"body: 33 levels":             `{"argv":` + strings.Repeat("[", 33) + strings.Repeat("]", 33) + `}`,
		"body: 100,000 levels":        strings.Repeat("[", 100_000),
		"body: NaN":                   `{"priority":NaN}`,
		"body: lone surrogate":        `{"task":"\ud800"}`,
		"body: invalid UTF-8":         "{\"task\":\"\xff\"}",
		"body: 15,000 names":          `{` + strings.Join(keys, ",") + `}`,
		"body: two values":            `{} {}`,
		"body: empty":                 ``,
		"body: a NUL in text":         `{"task":"a\u0000b"}`,
		"body: of the wrong types":    `{"task":{}}`,
		"body: what is not encrypted": "\x00\x01\x02\xff",
	} {
		body, re := b.good()
		h := b.v.Header(body.Kind(), re)
		code := signing.BodyJSON
		if newer[name] && body.Kind().Type() != signing.Command { // a report may have fields that are not known: this one says nothing beside them
			code = commands.Validation
		}
		b.signed(code, name, b.v.Forge(body.Kind().Type(), h, []byte(raw)).Envelope())
	}
}
