package commands

import "strings"

// MinPrefix is how many characters of an id a person gives at least in place of all of it.
const MinPrefix = 6

// Means reports whether text names id: it is the id, or six or more characters that
// the id begins with.
func Means(text, id string) bool {
	return text == id || len(text) >= MinPrefix && strings.HasPrefix(id, text)
}

// IDRange returns the first and the last UUID that text names: one UUID if it is
// whole, otherwise all that begin with its six or more characters. It is not ok
// when no UUID in lower case begins so.
func IDRange(text string) (low, high string, ok bool) {
	const first, last = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
	if len(text) < MinPrefix || len(text) > len(first) {
		return "", "", false
	}
	for i := range len(text) {
		dash := first[i] == '-'
		if dash != (text[i] == '-') || !dash && !strings.Contains("0123456789abcdef", text[i:i+1]) {
			return "", "", false
		}
	}
	return text + first[len(text):], text + last[len(text):], true
}
