package shim

// redacted stands in the output for what must not be in it.
const redacted = "[redacted]"

// A redactor takes texts out of a stream, wherever the stream was cut. The shim does it, before
// anything is in a file: so neither the disk, nor `logs` on the host, nor a message, nor the tail
// in a result ever has them, and a spoke that comes back need not know them.
//
// What can become one of the texts is held back until it has or has not: never more than the
// longest of them. All that several texts cover together, or one behind the other, becomes one
// mark.
type redactor struct {
	texts  *[256][]string // by their first byte
	held   []byte         // the end of what came, which may go on as one of the texts
	hidden int            // how much of held belongs to a text that was found before
	marked bool           // the mark stands for the byte that was passed on last
}

// Redacting returns what takes texts out of one that is there as a whole. It may be called by several at once.
func Redacting(texts []string) func(text string) string {
	made := newRedactor(texts)
	if made == nil {
		return func(text string) string { return text }
	}
	return func(text string) string {
		var kept []byte
		keep := func(b []byte) { kept = append(kept, b...) }
		r := redactor{texts: made.texts}
		r.put([]byte(text), keep)
		r.end(keep)
		return string(kept)
	}
}

// newRedactor returns what takes these texts out; nil when there are none.
func newRedactor(texts []string) *redactor {
	if len(texts) == 0 {
		return nil
	}
	r := &redactor{texts: &[256][]string{}}
	for _, text := range texts {
		if text != "" {
			r.texts[text[0]] = append(r.texts[text[0]], text)
		}
	}
	return r
}

// put passes on what of b can be decided. The pieces are keep's only until it returns.
func (r *redactor) put(b []byte, keep func([]byte)) {
	if r == nil {
		keep(b)
		return
	}
	r.pass(append(r.held, b...), false, keep)
}

// end passes on what was held back.
func (r *redactor) end(keep func([]byte)) {
	if r != nil {
		r.pass(r.held, true, keep)
	}
}

func (r *redactor) pass(b []byte, last bool, keep func([]byte)) {
	hidden, from, at := r.hidden, 0, 0
	for ; at < len(b); at++ {
		found, more := r.look(b[at:])
		if more && !last {
			break
		}
		hidden = max(hidden, at+found)
		if at >= hidden {
			r.marked = false
			continue
		}
		if from < at {
			keep(b[from:at])
		}
		if !r.marked {
			keep([]byte(redacted))
		}
		from, r.marked = at+1, true
	}
	if from < at {
		keep(b[from:at])
	}
	r.held, r.hidden = append(r.held[:0], b[at:]...), max(0, hidden-at)
}

// look returns how long the longest text is that b begins with, 0 for none, and whether b is
// the beginning of a longer one.
func (r *redactor) look(b []byte) (found int, more bool) {
	for _, text := range r.texts[b[0]] {
		switch {
		case len(text) > len(b):
			more = more || text[:len(b)] == string(b)
		case len(text) > found && string(b[:len(text)]) == text:
			found = len(text)
		}
	}
	return found, more
}
