package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

func (a *app) printJSON(v any) error { return encode(a.out, v, "  ") }

// printLine writes v as JSON on one line.
func (a *app) printLine(v any) error { return encode(a.out, v, "") }

// encode writes v as JSON that a terminal may show.
func encode(w io.Writer, v any, indent string) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(plainJSON(text.Bytes()))
	return err
}

// plainJSON escapes what a terminal would obey: the value stays the same. JSON has such
// characters in strings only, and all of them are below U+10000.
func plainJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if r == harmless(r) {
			out = append(out, string(r)...)
		} else {
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}
