package signing

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
)

// The envelope as encoding/json knows it: to say why one cannot be read.
type envelopeJSON struct {
	PayloadType Type        `json:"payloadType"`
	Payload     string      `json:"payload"`
	Tree        placeJSON   `json:"tree"`
	Signatures  []signature `json:"signatures"`
	Body        string      `json:"body"`
}

type placeJSON struct {
	Size  int    `json:"size"`
	Index int    `json:"index"`
	Path  string `json:"path"`
}

type signature struct {
	KeyID KeyID  `json:"keyid"`
	Sig   string `json:"sig"`
}

// decoded is an envelope whose form was checked and whose signatures were not.
type decoded struct {
	typ     Type
	payload []byte
	place   place
	sigs    []signatureBytes
	body    []byte
}

type signatureBytes struct {
	key KeyID
	sig []byte
}

// decodeEnvelope checks size, type, spelling, place, count and base64 of envelope.
func decodeEnvelope(envelope []byte) (decoded, *Rejected) {
	if len(envelope) > MaxMessage {
		return decoded{}, reject(EnvSize, "message is %d bytes, limit %d", len(envelope), MaxMessage)
	}
	for _, c := range envelope {
		if c < 0x20 || c > 0x7e {
			return decoded{}, reject(EnvCanon, "a byte that no spawnmesh envelope contains")
		}
	}
	r := reader{rest: envelope}
	d := decoded{typ: r.payloadType()}
	// Only the beginning is the same in all versions: what follows is of this one.
	if !r.bad && d.typ.Lifetime() == 0 {
		return decoded{}, reject(EnvType, "%s; this node speaks version %d", strange(d.typ), version)
	}
	d.fields(&r)
	if !r.done() {
		return decoded{}, unread(envelope)
	}
	if r := d.check(); r != nil {
		return decoded{}, r
	}
	return d, nil
}

// strange says what a type is that this node does not speak.
func strange(t Type) string {
	kind, v, _ := cutLast(strings.TrimSuffix(string(t), "+json"), ".v")
	n, err := strconv.Atoi(v)
	if err != nil || Type(kind+".v"+strconv.Itoa(version)+"+json").Lifetime() == 0 {
		return "unknown message type"
	}
	return "a message of version " + strconv.Itoa(n)
}

// unread says why an envelope is not in its one spelling.
func unread(envelope []byte) *Rejected {
	if err := json.Unmarshal(envelope, &envelopeJSON{}); err != nil {
		return reject(EnvJSON, "not a spawnmesh envelope: %v", err)
	}
	return reject(EnvCanon, "bytes after, before or inside the envelope that do not belong to it")
}

// check decodes what d holds as base64 text.
func (d *decoded) check() *Rejected {
	if n := len(d.sigs); n < 1 || n > d.typ.maxSignatures() {
		return reject(EnvSigCount, "%d signatures, a message of this type has 1 to %d", n, d.typ.maxSignatures())
	}
	if !d.place.valid() {
		return reject(EnvCanon, "leaf %d of a tree of %d: there are 1 to %d leaves, counted from 0", d.place.index, d.place.size, MaxTree)
	}
	var ok bool
	if d.payload, ok = strictBase64(d.payload, MaxHeader); !ok {
		return reject(EnvB64, "the header is not canonical base64 of at most %d bytes", MaxHeader)
	}
	if d.place.path, ok = strictBase64(d.place.path, d.place.length()); !ok || len(d.place.path) != d.place.length() {
		return reject(EnvB64, "the path is not canonical base64 of %d bytes, as it is for leaf %d of %d", d.place.length(), d.place.index, d.place.size)
	}
	if d.body, ok = strictBase64(d.body, MaxBody); !ok {
		return reject(EnvB64, "the body is not canonical base64 of at most %d bytes", MaxBody)
	}
	seen := map[KeyID]bool{}
	for i, s := range d.sigs {
		if d.sigs[i].sig, ok = strictBase64(s.sig, 64); !ok || len(d.sigs[i].sig) != 64 {
			return reject(EnvB64, "a signature is not canonical base64 of 64 bytes")
		}
		if seen[s.key] {
			return reject(EnvSigCount, "one key signed twice")
		}
		seen[s.key] = true
	}
	return nil
}

// strictBase64 decodes text, of whose spellings only one is taken.
func strictBase64(text []byte, limit int) ([]byte, bool) {
	if base64.StdEncoding.DecodedLen(len(text)) > limit+2 {
		return nil, false
	}
	raw := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(raw, text)
	// The decoder passes over line breaks: then the text is longer than it has to be.
	if err != nil || n > limit || base64.StdEncoding.EncodedLen(n) != len(text) {
		return nil, false
	}
	return raw[:n], true
}

func (r *reader) payloadType() Type {
	r.must(`{"payloadType":`)
	return Type(r.text())
}

// fields reads what stands behind the type. What is base64 stays it.
func (d *decoded) fields(r *reader) {
	d.payload = r.field("payload")
	r.must(`,"tree":{"size":`)
	d.place.size = r.small()
	r.must(`,"index":`)
	d.place.index = r.small()
	d.place.path = r.field("path")
	r.must(`},"signatures":[`)
	for !r.bad && !r.has(`]`) {
		if len(d.sigs) > 0 {
			r.must(`,`)
		}
		r.must(`{"keyid":`)
		key := KeyID(r.text())
		d.sigs = append(d.sigs, signatureBytes{key, r.field("sig")})
		r.must(`}`)
	}
	d.body = r.field("body")
	r.must(`}`)
}

// encode writes d as it travels.
func (d decoded) encode() []byte {
	size := 400 + len(d.typ) + base64.StdEncoding.EncodedLen(len(d.payload)) + base64.StdEncoding.EncodedLen(len(d.place.path)) +
		base64.StdEncoding.EncodedLen(len(d.body)) + 200*len(d.sigs)
	b := appendText(append(make([]byte, 0, size), `{"payloadType":`...), string(d.typ))
	b = appendBase64(appendName(b, "payload"), d.payload)
	b = strconv.AppendInt(append(b, `,"tree":{"size":`...), int64(d.place.size), 10)
	b = appendNumber(b, "index", int64(d.place.index))
	b = appendBase64(appendName(b, "path"), d.place.path)
	b = append(b, `},"signatures":[`...)
	for i, s := range d.sigs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"keyid":`...), string(s.key))
		b = append(appendBase64(appendName(b, "sig"), s.sig), '}')
	}
	b = append(b, ']')
	return append(appendBase64(appendName(b, "body"), d.body), '}')
}

func appendBase64(b, raw []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), raw), '"')
}
