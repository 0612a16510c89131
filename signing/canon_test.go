package signing

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The oracles: encoding/json reads, writes again, and the bytes are compared.

func headerByJSON(payload []byte) (Header, Code) {
	var h Header
	if err := json.Unmarshal(payload, &h); err != nil {
		return Header{}, HdrJSON
	}
	if again, err := EncodeBody(h); err != nil || !bytes.Equal(again, payload) {
		return Header{}, HdrCanon
	}
	return h, ""
}

func envelopeByJSON(envelope []byte) (envelopeJSON, Code) {
	var e envelopeJSON
	if err := json.Unmarshal(envelope, &e); err != nil {
		return envelopeJSON{}, EnvJSON
	}
	if e.Signatures == nil { // encoding/json writes a list that is not there as null
		return envelopeJSON{}, EnvCanon
	}
	if again, err := EncodeBody(e); err != nil || !bytes.Equal(again, envelope) {
		return envelopeJSON{}, EnvCanon
	}
	return e, ""
}

func sameHeader(t *testing.T, in []byte) {
	want, code := headerByJSON(in)
	got, r := decodeHeader(in)
	if code != "" {
		require.NotNil(t, r, "%q", in)
		require.Equal(t, code, r.Code, "%q", in)
		return
	}
	require.Nil(t, r, "%q", in)
	require.Equal(t, want, got)
	require.Equal(t, string(in), string(appendHeader(nil, got)))
}

func sameEnvelope(t *testing.T, in []byte) {
	want, code := envelopeByJSON(in)
	rd := reader{rest: in}
	d := decoded{typ: rd.payloadType()}
	d.fields(&rd)
	if code != "" {
		require.False(t, rd.done(), "%q", in)
		require.Equal(t, code, unread(in).Code, "%q", in)
		return
	}
	require.True(t, rd.done(), "%q", in)
	got := envelopeJSON{d.typ, string(d.payload), placeJSON{d.place.size, d.place.index, string(d.place.path)}, []signature{}, string(d.body)}
	for _, s := range d.sigs {
		got.Signatures = append(got.Signatures, signature{s.key, string(s.sig)})
	}
	require.Equal(t, want, got)
}

// awkward is what text, numbers and structure can be, in place of something good.
func awkward(in string) (all [][]byte) {
	for _, s := range []string{
		`"\n"`, `"\u000a"`, `"\u0000"`, `"\u001F"`, `"\u001f"`, `"\/"`, `"\u0041"`, `"\""`, `"\\"`, `"\b\f\n\r\t"`, `"\x"`, `"\u00"`, `"\u2028"`, "\"\u2028\"", `"\u2029"`,
		"\"\u2030\"", `"é"`, `"\u00e9"`, "\"\xff\"", "\"\xed\xa0\x80\"", `"\ud800"`, `"\ud83d\ude00"`, `"😀"`, "\"\x7f\"", "\"\ufffd\"", `"\ufffd"`, "\"\x01\"", `"<>&"`, `"\u003c"`,
		`"`, `""`, `null`, `true`, `{}`, `[]`, `1`, `0`, `-0`, `-1`, `01`, `1.0`, `1e0`, `+1`, `9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `--1`, `1-`, ` 1`, ``,
	} {
		for _, at := range []string{`"agent.spawn"`, `42`, `"x"`, `1`} {
			all = append(all, []byte(strings.Replace(in, at, s, 1)))
		}
	}
	for i := range len(in) {
		all = append(all, []byte(in[:i]), []byte(in[:i]+" "+in[i:]), []byte(in[:i]+in[i+1:]))
	}
	return append(all, []byte(in+in), []byte("null"), []byte("[]"))
}

const (
	plainHeader = `{"v":2,"id":"x","kind":"agent.spawn","iss":"a","kid":"b","aud":"c","conn":"d","epoch":1,"seq":42,"iat":1,"exp":2,"wsp":"main","body":{"type":"t","len":3,"sha256":"s","enc":"none"}}`
	answer      = `{"v":2,"id":"x","kind":"agent.spawn","iss":"a","kid":"b","aud":"c","conn":"d","epoch":1,"seq":42,"iat":1,"exp":2,"wsp":"main","re":{"id":"r","sha256":"s","attempt":1,"fence":7},"body":{"type":"t","len":3,"sha256":"s","enc":"none"}}`
	plainOuter  = `{"payloadType":"agent.spawn","payload":"x","tree":{"size":42,"index":1,"path":"p"},"signatures":[{"keyid":"x","sig":"s"},{"keyid":"y","sig":"s"}],"body":"b"}`
)

func TestOneSpellingIsThatOfEncodingJSON(t *testing.T) {
	for _, in := range []string{plainHeader, answer} {
		sameHeader(t, []byte(in))
		for _, bad := range awkward(in) {
			sameHeader(t, bad)
		}
	}
	sameEnvelope(t, []byte(plainOuter))
	for _, bad := range append(awkward(plainOuter), awkward(strings.Replace(plainOuter, `{"keyid":"y","sig":"s"}`, ``, 1))...) {
		sameEnvelope(t, bad)
	}
}

// The header's own re, taken away and null, is not another header.
func TestAHeaderWithoutRe(t *testing.T) {
	sameHeader(t, []byte(strings.Replace(plainHeader, `"body"`, `"re":null,"body"`, 1)))
	sameHeader(t, []byte(strings.Replace(plainHeader, `"body"`, `"re":{},"body"`, 1)))
	sameHeader(t, []byte(strings.Replace(answer, `,"fence":7`, ``, 1)))
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte(plainHeader))
	f.Add([]byte(answer))
	for _, in := range awkward(answer)[:300] {
		f.Add(in)
	}
	f.Fuzz(sameHeader)
}

func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(plainOuter))
	for _, c := range loadVectors(f).Cases {
		if raw, err := base64.StdEncoding.DecodeString(c.WireB64); err == nil {
			f.Add(raw)
		}
	}
	f.Fuzz(sameEnvelope)
}

func FuzzOpen(f *testing.F) {
	envelope, v, now := sealed(f, nil)
	all, _, _ := together(f, 3)
	good := map[string]bool{string(envelope): true}
	f.Add(envelope)
	for _, s := range all {
		good[string(s.Envelope)] = true
		f.Add(s.Envelope)
	}
	for _, c := range loadVectors(f).Cases {
		if raw, err := base64.StdEncoding.DecodeString(c.WireB64); err == nil {
			f.Add(raw)
		}
	}
	v.Heads = &Heads{}
	f.Fuzz(func(t *testing.T, in []byte) {
		_, err := v.Open(in, now)
		require.Equal(t, err == nil, good[string(in)], "a second spelling was accepted, or the first refused: %v", err)
	})
}

func FuzzBase64(f *testing.F) {
	f.Add("QUI=", 2)
	f.Add("QUJ=", 2)
	f.Add("QUI=\n", 2)
	f.Add("QQ", 1)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		raw, err := base64.StdEncoding.DecodeString(text)
		want := err == nil && len(raw) <= limit && base64.StdEncoding.EncodeToString(raw) == text

		got, ok := strictBase64([]byte(text), limit)

		require.Equal(t, want, ok, "%q", text)
		if ok {
			require.Equal(t, string(raw), string(got))
		}
	})
}
