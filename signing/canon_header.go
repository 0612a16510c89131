package signing

import (
	"encoding/json"
	"strconv"
)

// decodeHeader reads a header in its one spelling.
func decodeHeader(payload []byte) (Header, *Rejected) {
	r := reader{rest: payload}
	h := r.header()
	if r.done() {
		return h, nil
	}
	if err := json.Unmarshal(payload, &Header{}); err != nil {
		return Header{}, reject(HdrJSON, "the signed header cannot be read: %v", err)
	}
	return Header{}, reject(HdrCanon, "the signed header is not in canonical form")
}

func (r *reader) header() Header {
	var h Header
	r.must(`{"v":`)
	h.V = r.small()
	h.ID = string(r.field("id"))
	h.Kind = string(r.field("kind"))
	h.Iss = InstanceID(r.field("iss"))
	h.Kid = KeyID(r.field("kid"))
	h.Aud = InstanceID(r.field("aud"))
	h.Conn = string(r.field("conn"))
	h.Epoch = r.number("epoch")
	h.Seq = r.number("seq")
	h.Iat = r.number("iat")
	h.Exp = r.number("exp")
	h.Wsp = string(r.field("wsp"))
	if r.has(`,"re":{"id":`) {
		h.Re = r.ref()
	}
	r.must(`,"body":{"type":`)
	h.Body.Type = string(r.text())
	r.must(`,"len":`)
	h.Body.Len = r.small()
	h.Body.SHA256 = string(r.field("sha256"))
	h.Body.Enc = string(r.field("enc"))
	r.must(`}}`)
	return h
}

func (r *reader) ref() *Ref {
	var re Ref
	re.ID = string(r.text())
	re.SHA256 = string(r.field("sha256"))
	r.must(`,"attempt":`)
	re.Attempt = r.small()
	re.Fence = r.number("fence")
	r.must(`}`)
	return &re
}

// name passes the name of a field that is not the first one of its object.
func (r *reader) name(name string) {
	r.must(`,"`)
	r.must(name)
	r.must(`":`)
}

func (r *reader) field(name string) []byte {
	r.name(name)
	return r.text()
}

func (r *reader) number(name string) int64 {
	r.name(name)
	return r.int()
}

// appendHeader writes h in its one spelling.
func appendHeader(b []byte, h Header) []byte {
	b = strconv.AppendInt(append(b, `{"v":`...), int64(h.V), 10)
	b = appendField(b, "id", h.ID)
	b = appendField(b, "kind", h.Kind)
	b = appendField(b, "iss", string(h.Iss))
	b = appendField(b, "kid", string(h.Kid))
	b = appendField(b, "aud", string(h.Aud))
	b = appendField(b, "conn", h.Conn)
	b = appendNumber(b, "epoch", h.Epoch)
	b = appendNumber(b, "seq", h.Seq)
	b = appendNumber(b, "iat", h.Iat)
	b = appendNumber(b, "exp", h.Exp)
	b = appendField(b, "wsp", h.Wsp)
	if h.Re != nil {
		b = appendText(append(b, `,"re":{"id":`...), h.Re.ID)
		b = appendField(b, "sha256", h.Re.SHA256)
		b = appendNumber(b, "attempt", int64(h.Re.Attempt))
		b = appendNumber(b, "fence", h.Re.Fence)
		b = append(b, '}')
	}
	b = appendText(append(b, `,"body":{"type":`...), h.Body.Type)
	b = appendNumber(b, "len", int64(h.Body.Len))
	b = appendField(b, "sha256", h.Body.SHA256)
	b = appendField(b, "enc", h.Body.Enc)
	return append(b, `}}`...)
}

func appendName(b []byte, name string) []byte {
	return append(append(append(b, `,"`...), name...), `":`...)
}

func appendField(b []byte, name, value string) []byte { return appendText(appendName(b, name), value) }

func appendNumber(b []byte, name string, value int64) []byte {
	return strconv.AppendInt(appendName(b, name), value, 10)
}
