package signing

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The one spelling of envelopes and headers is JSON as encoding/json writes it without
// HTML escapes: fields in a fixed order, no white space, whole numbers, and text escaped
// as little as JSON allows, but for U+2028 and U+2029. What is written here by hand is
// read by hand, too: a reader that knows the order needs neither a second pass nor a
// comparison. FuzzHeader and FuzzEnvelope hold both against encoding/json.

// A reader takes the one spelling apart from its beginning. The first thing that is not
// as it must be makes it bad for good; what is read from then on means nothing.
type reader struct {
	rest []byte
	bad  bool
}

// has reports whether what comes next is s, and passes it.
func (r *reader) has(s string) bool {
	if len(r.rest) < len(s) || string(r.rest[:len(s)]) != s {
		return false
	}
	r.rest = r.rest[len(s):]
	return true
}

// must passes s, and nothing else.
func (r *reader) must(s string) {
	if !r.has(s) {
		r.bad = true
	}
}

// done reports whether all was as it must be and nothing is left.
func (r *reader) done() bool { return !r.bad && len(r.rest) == 0 }

// int reads a whole number without superfluous signs and zeros.
func (r *reader) int() int64 {
	n := 0
	for n < len(r.rest) && (r.rest[n] == '-' || r.rest[n] >= '0' && r.rest[n] <= '9') {
		n++
	}
	text := string(r.rest[:n])
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(v, 10) != text {
		r.bad = true
	}
	r.rest = r.rest[n:]
	return v
}

// small reads a number that an int holds, also where an int has 32 bits.
func (r *reader) small() int {
	v := r.int()
	if v < math.MinInt || v > math.MaxInt {
		r.bad = true
	}
	return int(v)
}

// text reads a string. What it returns may be part of what is read.
func (r *reader) text() []byte {
	r.must(`"`)
	for i, c := range r.rest {
		switch {
		case c == '"':
			text := r.rest[:i]
			r.rest = r.rest[i+1:]
			return text
		case c == '\\' || c < 0x20 || c >= utf8.RuneSelf:
			return r.escaped()
		}
	}
	r.bad = true
	return nil
}

// escaped reads a string with anything but plain letters in it, behind its quotation mark.
func (r *reader) escaped() []byte {
	var text []byte
	for len(r.rest) > 0 && !r.bad {
		c, n := utf8.DecodeRune(r.rest)
		switch {
		case c == '"':
			r.rest = r.rest[1:]
			return text
		case c == '\\':
			c = r.escape()
		case mustEscape(c), c == utf8.RuneError && n == 1:
			r.bad = true
		default:
			r.rest = r.rest[n:]
		}
		text = utf8.AppendRune(text, c)
	}
	r.bad = true
	return nil
}

// escape reads an escape, if it is the one that its letter has.
func (r *reader) escape() rune {
	for i, c := range shortEscapes {
		if r.has(`\` + string(shortLetters[i])) {
			return c
		}
	}
	if len(r.rest) < len(`\u0000`) {
		r.bad = true
		return 0
	}
	escape := r.rest[:len(`\u0000`)]
	c, err := strconv.ParseUint(string(escape[2:]), 16, 16)
	if err != nil || string(appendRune(nil, rune(c))) != string(escape) {
		r.bad = true
	}
	r.rest = r.rest[len(escape):]
	return rune(c)
}

// The letters that have an escape of two bytes, and what stands behind the backslash.
const (
	shortEscapes = "\"\\\b\f\n\r\t"
	shortLetters = `"\bfnrt`
)

func mustEscape(c rune) bool {
	return c < 0x20 || c == '"' || c == '\\' || c == '\u2028' || c == '\u2029'
}

// appendRune writes a letter of a string.
func appendRune(b []byte, c rune) []byte {
	if !mustEscape(c) {
		return utf8.AppendRune(b, c)
	}
	if i := strings.IndexRune(shortEscapes, c); i >= 0 {
		return append(b, '\\', shortLetters[i])
	}
	b = append(b, `\u`...)
	for shift := 12; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[c>>shift&15])
	}
	return b
}

// appendText writes a string, which is valid UTF-8.
func appendText(b []byte, text string) []byte {
	b = append(b, '"')
	for _, c := range text {
		b = appendRune(b, c)
	}
	return append(b, '"')
}
