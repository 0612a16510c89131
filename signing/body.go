package signing

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

const maxDepth = 32

// DecodeBody reads a body into v under the strict rules: valid UTF-8 without
// replacement characters and NULs, every field name in lower case, known and used once,
// nothing null, at most 32 levels, nothing after the value. The error is a
// [*Rejected] with [BodyJSON] that gives the path of the first problem.
func DecodeBody(data []byte, v any) error {
	return decodeBody(data, v, (*json.Decoder).DisallowUnknownFields)
}

// DecodeKnown is [DecodeBody] without regard to fields that v does not have.
func DecodeKnown(data []byte, v any) error { return decodeBody(data, v, func(*json.Decoder) {}) }

func decodeBody(data []byte, v any, rule func(*json.Decoder)) error {
	if err := CheckBody(data); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	rule(dec)
	if err := dec.Decode(v); err != nil {
		return reject(BodyJSON, "the body cannot be read: %v", err)
	}
	return nil
}

// CheckBody checks the rules of [DecodeBody] that hold for every body, whatever it is
// read into.
func CheckBody(data []byte) error {
	if !utf8.Valid(data) {
		return reject(BodyJSON, "the body is not valid UTF-8")
	}
	scan := json.NewDecoder(bytes.NewReader(data))
	scan.UseNumber()
	if err := scanValue(scan, "", 0); err != nil {
		return err
	}
	if _, err := scan.Token(); !errors.Is(err, io.EOF) {
		return reject(BodyJSON, "the body goes on after its end")
	}
	return nil
}

// EncodeBody writes v as a body: compact JSON without HTML escapes, fields in the order
// of their declaration.
func EncodeBody(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func scanValue(dec *json.Decoder, path string, depth int) error {
	tok, err := dec.Token()
	if err != nil {
		return reject(BodyJSON, "at %q: %v", path, err)
	}
	switch t := tok.(type) {
	case nil:
		return reject(BodyJSON, "at %q: null is not allowed", path)
	case string:
		return scanText(t, path)
	case json.Delim:
		if depth >= maxDepth {
			return reject(BodyJSON, "at %q: more than %d levels", path, maxDepth)
		}
		if t == '[' {
			return scanArray(dec, path, depth+1)
		}
		return scanObject(dec, path, depth+1)
	}
	return nil
}

func scanText(s, path string) error {
	if strings.ContainsRune(s, utf8.RuneError) {
		return reject(BodyJSON, "at %q: text with a replacement character or a lone surrogate", path)
	}
	if strings.ContainsRune(s, 0) { // no database stores one: the message would fail for ever
		return reject(BodyJSON, "at %q: text with a NUL", path)
	}
	return nil
}

func scanArray(dec *json.Decoder, path string, depth int) error {
	for i := 0; dec.More(); i++ {
		if err := scanValue(dec, path+"["+strconv.Itoa(i)+"]", depth); err != nil {
			return err
		}
	}
	return closeDelim(dec, path)
}

func scanObject(dec *json.Decoder, path string, depth int) error {
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return reject(BodyJSON, "at %q: %v", path, err)
		}
		name := tok.(string)
		if !lowerName(name) {
			return reject(BodyJSON, "at %q: a field name that is not lower case", path)
		}
		if seen[name] {
			return reject(BodyJSON, "at %q: field used twice", path+"."+name)
		}
		seen[name] = true
		if err := scanValue(dec, path+"."+name, depth); err != nil {
			return err
		}
	}
	return closeDelim(dec, path)
}

func closeDelim(dec *json.Decoder, path string) error {
	if _, err := dec.Token(); err != nil {
		return reject(BodyJSON, "at %q: %v", path, err)
	}
	return nil
}

// lowerName keeps every name to one spelling: encoding/json would take "ARGV"
// for "argv".
func lowerName(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}
