package commands

import (
	"strings"
	"unicode/utf8"
)

// maxWhy bounds a reason, in bytes: why something was refused, and why a person has changed a
// connection or a key. A receiver takes no longer one.
const maxWhy = 1000

// IsText reports whether a message may carry s: UTF-8 without a NUL and without U+FFFD, which
// stands for bytes that were no text.
func IsText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0) && !strings.ContainsRune(s, utf8.RuneError)
}

func checkText(name, s string, limit int) error {
	if len(s) > limit {
		return Refuse(Validation, "%s is %d bytes, limit %d", name, len(s), limit)
	}
	if !IsText(s) {
		return Refuse(Validation, "%s contains a NUL or is not valid UTF-8", name)
	}
	return nil
}

// CheckReason checks why a person changes a connection, a key or an invite: the peer is told,
// and takes nothing else.
func CheckReason(reason string) error { return checkText("the reason", reason, maxWhy) }

// CleanReason makes a reason of before that [CheckReason] refuses one that a peer takes.
func CleanReason(reason string) string { return Clean(reason, maxWhy) }

// Clean makes a text of s that a message may carry, of at most limit bytes: what it may not
// carry becomes a question mark, and no character is cut in two.
func Clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r == 0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}

// CleanLine is Clean for a text of one line: control characters become blanks.
func CleanLine(s string, limit int) string {
	return Clean(strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, s), limit)
}

// OneLine is a text of somebody else in one line: it may not look like lines of ours.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Clip keeps a foreign text short in our own messages: at most 64 bytes of it.
func Clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:61], "") + "..."
	}
	return s
}

// NotAName refuses the name of something that people name: a connection, a token, a schedule, a context.
func NotAName(name string) *Refused {
	return Refuse(Validation, "name %q is not 1 to 63 lower-case letters, digits and dashes", Clip(name))
}
