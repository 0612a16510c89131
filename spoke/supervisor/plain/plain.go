// Package plain does for a shim what strings, fmt, crypto/sha256 and crypto/hmac
// do elsewhere. A program starts with the initialisers of the packages it
// consists of, in an order that these four would delay a shim by: what a shim is
// made of imports os, os/signal and what they import themselves, and this.
//
// It has no state; everything may be used by any goroutine.
package plain

// wrapped is an error with what was being done.
type wrapped struct {
	doing string
	err   error
}

func (e *wrapped) Error() string { return e.doing + ": " + e.err.Error() }
func (e *wrapped) Unwrap() error { return e.err }

// Wrap says what was being done when err occurred. It keeps nil as it is.
func Wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return &wrapped{doing, err}
}

// Cut slices s around the first separator; without one all of s is before it.
func Cut(s, separator string) (before, after string, found bool) {
	for i := 0; i+len(separator) <= len(s); i++ {
		if s[i:i+len(separator)] == separator {
			return s[:i], s[i+len(separator):], true
		}
	}
	return s, "", false
}

// CutPrefix returns s without the prefix, and whether it had it.
func CutPrefix(s, prefix string) (rest string, found bool) {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return s, false
	}
	return s[len(prefix):], true
}

// Fields splits s at blanks and line breaks, as files of /proc are.
func Fields(s string) []string {
	var fields []string
	start := -1
	for i := 0; i <= len(s); i++ {
		blank := i == len(s) || s[i] == ' ' || s[i] == '\n' || s[i] == '\t'
		switch {
		case blank && start >= 0:
			fields, start = append(fields, s[start:i]), -1
		case !blank && start < 0:
			start = i
		}
	}
	return fields
}

// Lines splits s at line breaks; the last line needs none.
func Lines(s string) []string {
	var lines []string
	for s != "" {
		line, rest, _ := Cut(s, "\n")
		lines, s = append(lines, line), rest
	}
	return lines
}

// Join is the name of a file in a directory.
func Join(dir, name string) string {
	if dir == "" || dir[len(dir)-1] != '/' {
		dir += "/"
	}
	return dir + name
}

const hexDigits = "0123456789abcdef"

// Hex writes bytes as lower-case hexadecimal digits.
func Hex(b []byte) string {
	text := make([]byte, 0, 2*len(b))
	for _, c := range b {
		text = append(text, hexDigits[c>>4], hexDigits[c&15])
	}
	return string(text)
}
