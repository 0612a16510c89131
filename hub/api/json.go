package api

import "regexp"

// JSON is a value of any kind, as somebody has stored it. What encoders write differently for web pages is
// read back as it was.
type JSON []byte

// forPages are the escapes that package json writes for web pages, and any other that begins with a
// backslash, so that an escaped backslash is read together with what it escapes.
var forPages = regexp.MustCompile(`\\(?:u003c|u003e|u0026|u2028|u2029|.)`)

var asWritten = map[string]string{`\u003c`: "<", `\u003e`: ">", `\u0026`: "&", `\u2028`: "\u2028", `\u2029`: "\u2029"}

// MarshalJSON writes the value.
func (j JSON) MarshalJSON() ([]byte, error) {
	if j == nil {
		return []byte("null"), nil
	}
	return j, nil
}

// UnmarshalJSON keeps a copy of the value.
func (j *JSON) UnmarshalJSON(raw []byte) error {
	*j = forPages.ReplaceAllFunc(raw, func(escape []byte) []byte {
		if plain, known := asWritten[string(escape)]; known {
			return []byte(plain)
		}
		return escape
	})
	return nil
}
