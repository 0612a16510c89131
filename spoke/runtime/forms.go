package runtime

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"
)

// LeastSecret is how many bytes a value has at least that is looked for in output: with a
// shorter one too much of what is there by chance would be taken out.
const LeastSecret = 6

// leastLine is how many a line has that is looked for by itself, of a value with several.
const leastLine = 16

// Hides reports whether a value is looked for in output.
func Hides(value string) bool { return len(strings.TrimSpace(value)) >= LeastSecret }

// Forms returns what is to be taken out of output so that none of the values is in it: the
// values, and what they are in base64, hex, URLs and JSON.
func Forms(values []string) []string {
	var list []string
	for _, v := range values {
		if v = strings.TrimSpace(v); !Hides(v) {
			continue
		}
		list = append(list, formsOf(v)...)
		for line := range strings.Lines(v) {
			if line = strings.TrimSpace(line); len(line) >= leastLine {
				list = append(list, formsOf(line)...)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func formsOf(v string) (list []string) {
	query, hexed := url.QueryEscape(v), hex.EncodeToString([]byte(v))
	list = []string{v, query, strings.ReplaceAll(query, "+", "%20"), url.PathEscape(v), hexed, strings.ToUpper(hexed)}
	list = append(list, jsonForms(v)...)
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			list = append(list, within(enc, before, v))
		}
	}
	return slices.DeleteFunc(list, func(form string) bool { return len(form) < LeastSecret })
}

// within returns what v is in the base64 of a text that has it behind so many bytes, modulo
// 3: without the characters that what stands beside it decides as well.
func within(enc *base64.Encoding, before int, v string) string {
	text := enc.EncodeToString(append(make([]byte, before), v...))
	return text[(8*before+5)/6 : 8*(before+len(v))/6]
}

// jsonForms are what v is in JSON: with as few escapes as may be, with those that keep HTML
// apart, with a slash escaped, and in ASCII only.
func jsonForms(v string) []string {
	encode := func(html bool) string {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(html)
		if enc.Encode(v) != nil {
			return ""
		}
		return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
	}
	few := encode(false)
	var ascii strings.Builder
	for _, r := range few {
		if r < 0x80 {
			ascii.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&ascii, `\u%04x`, unit)
		}
	}
	return []string{few, encode(true), strings.ReplaceAll(few, "/", `\/`), ascii.String()}
}
