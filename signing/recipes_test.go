package signing

import (
	"bytes"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A recipe is how the message of a case is made.
type recipe struct {
	vectorCase
	wire []byte
}

// A scribe writes vectors down: what the hub says, and what is made of it.
type scribe struct {
	t    testing.TB
	f    vectorFile
	list []recipe
}

const (
	vectorBody  = `{"task":"0193a3c0-3333-7aaa-8bbb-000000000001","runtime":"exec","argv":["echo","hello"],"timeout_ms":60000}`
	vectorOther = `{"task":"0193a3c0-3333-7aaa-8bbb-000000000001","runtime":"exec","argv":["echo","other"],"timeout_ms":60000}`
	vectorLog   = `{"task":"0193a3c0-3333-7aaa-8bbb-000000000001","attempt":1,"stream":"stdout","offset":0}` + "\nhello\n"
	vectorEnd   = `{"task":"0193a3c0-3333-7aaa-8bbb-000000000001","state":"completed","attempt":1,"outcome":"succeeded","exit":{"code":0},` +
		`"stdout":{"bytes":6,"size":6,"tail":"hello\n"},"stderr":{"bytes":0},"started_at":1795201198000,"ended_at":1795201199000}`
	vectorNumbers = `{"through":42,"gaps":[{"from":7,"to":9}]}`
	hub, spoke    = 2, 3 // seeds of signing keys; the identities are 1 and 3
	stranger      = 9
	rotated       = 6
	revoked       = 7
	otherPeer     = 5
)

func vectorRecipes(t testing.TB, f vectorFile) []recipe {
	t.Helper()
	s := &scribe{t: t, f: f}
	s.good()
	s.envelopes()
	s.keys()
	s.addresses()
	s.times()
	s.headers()
	s.spellings()
	s.trees()
	s.places()
	s.paths()
	return s.list
}

// says adds a case.
func (s *scribe) says(name, expect, why string, wire []byte) *vectorCase {
	s.list = append(s.list, recipe{vectorCase{Name: name, Expect: expect, Why: why}, wire})
	return &s.list[len(s.list)-1].vectorCase
}

// header is that of the valid command.
func (s *scribe) header(change func(*Header)) Header {
	h := Header{V: version, ID: "0193a3c0-2222-7aaa-8bbb-00000000000a", Kind: "agent.spawn", Iss: s.f.Keys[0].Iss, Kid: seedSigner(s.t, hub).KeyID(),
		Aud: s.f.Self, Conn: s.f.Connection, Epoch: s.f.Epoch, Seq: 42, Iat: s.f.NowMS - 1000, Exp: s.f.NowMS + time.Hour.Milliseconds()*24, Wsp: "main"}
	h.Body = bodyRef(h.Kind, vectorBody)
	if change != nil {
		change(&h)
	}
	return h
}

func bodyRef(kind, body string) BodyRef {
	sum := Digest(sum256(body))
	return BodyRef{Type: kind + ".v1", Len: len(body), SHA256: sum.String(), Enc: "none"}
}

// alone is a message that is a tree of one, with any text as its header.
func (s *scribe) alone(typ Type, header, body string, by ...byte) decoded {
	d := decoded{typ: typ, payload: []byte(header), place: place{size: 1}, body: []byte(body)}
	for _, seed := range by {
		key := seedSigner(s.t, seed)
		d.sigs = append(d.sigs, signatureBytes{key.KeyID(), key.signHead(d.place.head(leafOf(typ, d.payload)))})
	}
	return d
}

// command is a command of the hub with this header.
func (s *scribe) command(change func(*Header)) decoded {
	return s.alone(Command, string(appendHeader(nil, s.header(change))), vectorBody, hub)
}

// text is a command of the hub whose header's text was changed before it was signed.
func (s *scribe) text(old, new string) []byte {
	header := string(appendHeader(nil, s.header(nil)))
	require.Contains(s.t, header, old)
	return s.alone(Command, strings.Replace(header, old, new, 1), vectorBody, hub).encode()
}

// wire is the valid command with its bytes changed after it was signed.
func (s *scribe) wire(old, new string) []byte {
	wire := string(s.command(nil).encode())
	require.Contains(s.t, wire, old)
	return []byte(strings.Replace(wire, old, new, 1))
}

// changed is the valid command with a part changed after it was signed.
func (s *scribe) changed(change func(*decoded)) []byte {
	d := s.command(nil)
	change(&d)
	return d.encode()
}

func (s *scribe) answer(kind, body string, id byte, seq int64, exp time.Duration) string {
	return string(appendHeader(nil, s.header(func(h *Header) {
		h.ID, h.Kind, h.Seq, h.Exp = h.ID[:35]+string(id), kind, seq, s.f.NowMS+exp.Milliseconds()
		h.Re, h.Body = s.re(), bodyRef(kind, body)
	})))
}

// re names the valid command as an answer does: by the digest of its body.
func (s *scribe) re() *Ref {
	return &Ref{ID: "0193a3c0-2222-7aaa-8bbb-00000000000a", SHA256: bodyRef("", vectorBody).SHA256, Attempt: 1, Fence: 7}
}

func (s *scribe) good() {
	valid := s.command(nil).encode()
	s.says("valid command", "OK", "baseline", valid)
	s.says("valid event", "OK", "baseline", s.alone(Event, s.answer("agent.log", vectorLog, 'b', 43, 24*time.Hour), vectorLog, hub).encode())
	s.says("valid result", "OK", "baseline", s.alone(Result, s.answer("agent.result", vectorEnd, 'c', 44, 29*24*time.Hour), vectorEnd, hub).encode())
	s.says("same bytes again", "REPLAY_SAME", "idempotent: re-send the stored receipt, no second effect", valid).Seen = true
	other := s.alone(Command, string(appendHeader(nil, s.header(func(h *Header) { h.Body = bodyRef(h.Kind, vectorOther) }))), vectorOther, hub)
	s.says("same id, other body", "REPLAY_DIFF", "id reuse", other.encode()).Seen = true
	s.says("same seq, other id", "SEQ_REUSE", "cloned or restored hub", s.command(func(h *Header) { h.ID = h.ID[:35] + "d" }).encode()).Seen = true
}

func (s *scribe) envelopes() {
	s.says("type swapped to result", "SIG_BAD", "domain separation", s.changed(func(d *decoded) { d.typ = Result }))
	s.says("version 1", "ENV_TYPE", "an envelope of version 1, as it was: without a tree", s.versionOne())
	s.says("version 3", "ENV_TYPE", "what follows the type is that version's own", s.wire(`.v2+json","payload":"`, `.v3+json","leaf":"`))
	s.says("empty type", "ENV_TYPE", "DSSE empty type", s.changed(func(d *decoded) { d.typ = "" }))
	s.says("type of a tree's head", "ENV_TYPE", "a head is no message", s.changed(func(d *decoded) { d.typ = treeHead }))
	s.says("one bit in body", "BODY_DIGEST", "body tampered", s.changed(func(d *decoded) { d.body[5] ^= 1 }))
	s.says("body dropped", "BODY_DIGEST", "inline body missing", s.changed(func(d *decoded) { d.body = nil }))
	s.says("one bit in payload", "SIG_BAD", "header tampered", s.changed(func(d *decoded) { d.payload[60] ^= 1 }))
	s.says("s+L malleated signature", "SIG_BAD", "RFC 8032 5.1.7", s.changed(func(d *decoded) { d.sigs[0].sig = malleated(d.sigs[0].sig) }))
	s.says("63-byte signature", "ENV_B64", "", s.changed(func(d *decoded) { d.sigs[0].sig = d.sigs[0].sig[:63] }))
	s.says("two signatures", "ENV_SIGCOUNT", "", s.changed(func(d *decoded) { d.sigs = append(d.sigs, d.sigs[0]) }))
	s.says("no signature", "ENV_SIGCOUNT", "", s.changed(func(d *decoded) { d.sigs = nil }))
	s.says("the header itself signed", "SIG_BAD", "as in version 1: what is signed is the head of the tree", s.changed(func(d *decoded) {
		d.sigs[0].sig = seedSigner(s.t, hub).Sign(Command, d.payload)
	}))
	s.says("a bare root signed", "SIG_BAD", "the size belongs to what is signed", s.changed(func(d *decoded) {
		root := d.place.head(leafOf(d.typ, d.payload)).root
		d.sigs[0].sig = seedSigner(s.t, hub).Sign(treeHead, root[:])
	}))
}

// versionOne is the valid command in an envelope of version 1.
func (s *scribe) versionOne() []byte {
	header := string(appendHeader(nil, s.header(func(h *Header) { h.V = 1 })))
	typ := Type("application/vnd.spawnmesh.command.v1+json")
	key := seedSigner(s.t, hub)
	b64 := base64.StdEncoding.EncodeToString
	return []byte(`{"payloadType":"` + string(typ) + `","payload":"` + b64([]byte(header)) + `","signatures":[{"keyid":"` + string(key.KeyID()) +
		`","sig":"` + b64(key.Sign(typ, []byte(header))) + `"}],"body":"` + b64([]byte(vectorBody)) + `"}`)
}

// malleated adds the group's order to the half of a signature that is a number modulo it.
func malleated(sig []byte) []byte {
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	out := bytes.Clone(sig)
	half := out[32:]
	swap := func() {
		for i, j := 0, len(half)-1; i < j; i, j = i+1, j-1 {
			half[i], half[j] = half[j], half[i]
		}
	}
	swap()
	new(big.Int).Add(new(big.Int).SetBytes(half), order).FillBytes(half)
	swap()
	return out
}

func (s *scribe) by(seed byte, change func(*Header)) decoded {
	header := s.header(func(h *Header) {
		h.Kid = seedSigner(s.t, seed).KeyID()
		if change != nil {
			change(h)
		}
	})
	return s.alone(Command, string(appendHeader(nil, header)), vectorBody, seed)
}

func (s *scribe) keys() {
	s.says("unknown key id", "KEY_UNKNOWN", "", s.by(stranger, nil).encode())
	s.says("outer key id differs from signed kid", "SIG_BAD", "key substitution", s.changed(func(d *decoded) { d.sigs[0].key = seedSigner(s.t, otherPeer).KeyID() }))
	s.says("signed kid differs from outer key id", "KID_MISMATCH", "", s.command(func(h *Header) { h.Kid = seedSigner(s.t, rotated).KeyID() }).encode())
	s.says("other peer claims hub as issuer", "ISS_MISMATCH", "cross-peer forgery", s.by(otherPeer, nil).encode())
	s.says("expired rotated-out key", "KEY_WINDOW", "", s.by(rotated, nil).encode())
	s.says("revoked key", "KEY_REVOKED", "", s.by(revoked, nil).encode())
}

func (s *scribe) addresses() {
	other := InstanceIDOf(seedSigner(s.t, 4).Public())
	s.says("audience is another spoke", "AUD_MISMATCH", "cross-spoke replay", s.command(func(h *Header) { h.Aud = other }).encode())
	s.says("wildcard audience", "HDR_FIELD", "", s.command(func(h *Header) { h.Aud = "*" }).encode())
	s.says("other connection", "CONN_UNKNOWN", "", s.command(func(h *Header) { h.Conn = h.Conn[:35] + "2" }).encode())
	s.says("old epoch", "EPOCH_STALE", "message of before the re-handshake", s.command(func(h *Header) { h.Epoch-- }).encode())
	for _, state := range []string{"suspended", "pending", "revoked"} {
		s.says("connection "+state, "CONN_STATE", "", s.command(nil).encode()).State = strings.ToUpper(state)
	}
}

func (s *scribe) times() {
	valid := s.command(nil).encode()
	last := s.header(nil).Exp + Skew.Milliseconds()
	s.says("expired", "TIME_EXPIRED", "", valid).NowMS = last + 1
	s.says("at the last accepted millisecond", "OK", "boundary", valid).NowMS = last
	s.says("issued in the future", "TIME_FUTURE", "", s.command(func(h *Header) { h.Iat = s.f.NowMS + Skew.Milliseconds() + 1 }).encode())
	s.says("ttl too long", "TIME_TTL", "", s.command(func(h *Header) { h.Exp = h.Iat + Command.Lifetime().Milliseconds() + 1 }).encode())
	s.says("exp before iat", "TIME_TTL", "", s.command(func(h *Header) { h.Exp = h.Iat - 1 }).encode())
}

func (s *scribe) headers() {
	field := func(name, why string, change func(*Header)) {
		s.says(name, "HDR_FIELD", why, s.command(change).encode())
	}
	field("seq 0", "", func(h *Header) { h.Seq = 0 })
	field("seq 2^53", "", func(h *Header) { h.Seq = 1 << 53 })
	field("upper-case uuid", "two spellings of one id", func(h *Header) { h.ID = strings.ToUpper(h.ID) })
	field("command with re", "", func(h *Header) { h.Re = s.re() })
	s.says("result without re", "HDR_FIELD", "", s.alone(Result, string(appendHeader(nil, s.header(nil))), vectorBody, hub).encode())
	field("body enc unknown", "algorithm agility without downgrade", func(h *Header) { h.Body.Enc = "aes-cbc" })
	field("v 1", "", func(h *Header) { h.V = 1 })
	field("v 3", "", func(h *Header) { h.V = 3 })

	aud := `"aud":"` + string(s.f.Self) + `",`
	other := `"aud":"` + string(InstanceIDOf(seedSigner(s.t, 4).Public())) + `",`
	s.says("duplicate aud in signed header", "HDR_CANON", "most JSON readers take the last one", s.text(aud, other+aud))
	s.says("unknown signed field", "HDR_CANON", "", s.text(`"wsp"`, `"debug":true,"wsp"`))
	s.says("whitespace in header", "HDR_CANON", "", s.text(`{"v":2,`, `{"v":2, `))
	s.says("escaped letter in header", "HDR_CANON", "", s.text(`"agent.spawn",`, `"\u0061gent.spawn",`))
	s.says("seq as float", "HDR_JSON", "", s.text(`"seq":42,`, `"seq":42.0,`))
	s.says("seq as string", "HDR_JSON", "", s.text(`"seq":42,`, `"seq":"42",`))
	s.says("seq with a leading zero", "HDR_JSON", "", s.text(`"seq":42,`, `"seq":042,`))
	s.says("seq -0", "HDR_CANON", "a second spelling of 0", s.text(`"seq":42,`, `"seq":-0,`))
	s.says("null aud", "HDR_CANON", "many JSON readers take null for nothing", s.text(aud, `"aud":null,`))
	s.says("missing aud", "HDR_CANON", "", s.text(aud, ``))
	s.says("header trailing bytes", "HDR_JSON", "", s.text(`"enc":"none"}}`, `"enc":"none"}}{}`))
	s.says("header is null", "HDR_CANON", "", s.alone(Command, "null", vectorBody, hub).encode())
	s.says("header is array", "HDR_JSON", "", s.alone(Command, "[]", vectorBody, hub).encode())
	long := s.command(func(h *Header) { h.Wsp = strings.Repeat("a", 5000) })
	s.says("header 5000 bytes", "ENV_B64", "", long.encode())
}

func (s *scribe) spellings() {
	valid := string(s.command(nil).encode())
	s.says("outer whitespace", "ENV_CANON", "", []byte(" "+valid))
	s.says("outer trailing newline", "ENV_CANON", "", []byte(valid+"\n"))
	s.says("outer trailing object", "ENV_JSON", "", []byte(valid+valid))
	s.says("outer unknown field", "ENV_CANON", "", []byte(`{"x":1,`+valid[1:]))
	s.says("outer duplicate payload", "ENV_CANON", "", s.wire(`"tree":`, `"payload":"","tree":`))
	s.says("signatures null", "ENV_CANON", "", s.wire(valid[strings.Index(valid, `[{"keyid"`):strings.Index(valid, `,"body"`)], `null`))
	s.says("base64 with a line break", "ENV_B64", "", s.wire(`"payload":"`, `"payload":"\n`))
	s.says("base64 without padding", "ENV_B64", "", s.wire(`=="}],`, `"}],`))
	s.says("empty input", "ENV_JSON", "", nil)
	s.says("300 KiB of spaces", "ENV_SIZE", "", nil).WireB64 = "(generate: see name)"
}
