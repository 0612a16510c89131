package commands

import (
	"fmt"
	"strconv"
	"strings"
)

// MinPrefix is how many characters of the id of a connection, an invite or a key a person
// gives at least in place of all of it, and MinShort how many of a short id.
const MinPrefix, MinShort = 6, 4

// Means reports whether text names id: it is the id, or six or more characters that
// the id begins with.
func Means(text, id string) bool {
	return text == id || len(text) >= MinPrefix && strings.HasPrefix(id, text)
}

// crockford are the digits of Douglas Crockford's base 32, in lower case: those that look
// alike are left out.
const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

const (
	shortDigits = 8  // of a short id, of five bits each
	tailDigits  = 10 // hexadecimal, of the same 40 bits
	wholeLength = 36 // of a UUID as text
)

// ShortID returns the eight characters by which people name a task: the last 40 bits of
// its id, which are random in a UUID of version 4 or 7, in Crockford's base 32. What is no UUID stays
// as it is.
func ShortID(id string) string {
	if len(id) != wholeLength {
		return id
	}
	n, err := strconv.ParseUint(id[wholeLength-tailDigits:], 16, 64)
	if err != nil {
		return id
	}
	var short [shortDigits]byte
	for i := range short {
		short[i] = crockford[n>>(5*(shortDigits-1-i))&31]
	}
	return string(short[:])
}

// An IDRange is the ids of tasks that a person's text names.
type IDRange struct {
	Low, High string
	Tail      bool // they are the last ten hexadecimal digits of the ids, not whole ones
}

// NamedIDs returns the ids that text names: the one of which it is all, those of
// which it is the short id or the first four or more characters of that, or those that begin with
// its nine or more characters. It is not ok when text can be none of these. Capitals count
// as small letters.
func NamedIDs(text string) (r IDRange, ok bool) {
	text = strings.ToLower(text)
	switch n := len(text); {
	case n < MinShort || n > wholeLength:
		return r, false
	case n <= shortDigits:
		return shortRange(text)
	}
	const first, last = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
	for i := range len(text) {
		dash := first[i] == '-'
		if dash != (text[i] == '-') || !dash && !strings.Contains("0123456789abcdef", text[i:i+1]) {
			return r, false
		}
	}
	return IDRange{Low: text + first[len(text):], High: text + last[len(text):]}, true
}

// readAs are characters that a person may read in place of a digit of Crockford's base 32.
var readAs = strings.NewReplacer("o", "0", "i", "1", "l", "1")

// shortRange returns the ids whose short id begins with text.
func shortRange(text string) (r IDRange, ok bool) {
	var n uint64
	for _, c := range readAs.Replace(text) {
		digit := strings.IndexRune(crockford, c)
		if digit < 0 {
			return r, false
		}
		n = n<<5 | uint64(digit)
	}
	free := 5 * (shortDigits - len(text))
	low := n << free
	return IDRange{Low: fmt.Sprintf("%010x", low), High: fmt.Sprintf("%010x", low|(1<<free-1)), Tail: true}, true
}

// NoAgent says that text names no agent.
func NoAgent(text string) *Refused {
	return Refuse(NotFound, "no agent %s", Clip(text)).Hinting("see").Running("agents")
}

// Several says that text names several of what, and which: see [Candidate].
func Several(text, what string, candidates []string) *Refused {
	const most = 5
	list, more := candidates, ""
	if len(list) > most {
		list, more = list[:most], ", and more"
	}
	return Refuse(Ambiguous, "%s names several %s: %s%s", Clip(text), what, strings.Join(list, ", "), more).Hinting("give one of these ids")
}

// Candidate names a task of several that a text fits, with its title, and how and where it stands. Who may name a task may not
// see all that it was given, so what it runs is not told.
func Candidate(id, title, stands string) string {
	return strings.TrimSpace(ShortID(id)+" "+Clip(title)) + " (" + stands + ")"
}
