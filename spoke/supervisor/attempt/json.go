package attempt

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// An object writes the members of a JSON object, one after the other.
type object []byte

func (o *object) name(name string) {
	switch {
	case len(*o) == 0:
		*o = append(*o, '{')
	case (*o)[len(*o)-1] != '{':
		*o = append(*o, ',')
	}
	*o = append(append(append(*o, '"'), name...), '"', ':')
}

func (o *object) text(name, s string) {
	o.name(name)
	*o = appendText(*o, s)
}

func (o *object) number(name string, n int64) {
	o.name(name)
	*o = strconv.AppendInt(*o, n, 10)
}

func (o *object) moment(name string, t time.Time) {
	o.text(name, t.Format(time.RFC3339Nano))
}

// list writes n members of an array, each by element; there is none without.
func (o *object) list(name string, n int, element func(o *object, i int)) {
	if n == 0 {
		return
	}
	o.name(name)
	*o = append(*o, '[')
	for i := range n {
		if i > 0 {
			*o = append(*o, ',')
		}
		var e object
		element(&e, i)
		*o = append(*o, e.end()...)
	}
	*o = append(*o, ']')
}

func (o *object) end() []byte {
	if len(*o) == 0 {
		return []byte("{}")
	}
	return append(*o, '}')
}

// appendText quotes s. What is not UTF-8 is replaced, as JSON has to be.
func appendText(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			b = append(b, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
