package door

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
)

// hide takes secrets out of what the agent says, before anything of it is stored.
func (d *Door) hide(texts ...*string) {
	for _, text := range texts {
		*text = d.room.Hide(*text)
	}
}

// hideIn is hide for texts and for data, which may be nil, of one request. What does not fit is refused before it is looked
// at, and few are looked at at a time: a search may take as long as the product of what is looked for and of where.
func (d *Door) hideIn(ctx context.Context, fits func() error, data *string, texts ...*string) error {
	if err := fits(); err != nil {
		return err
	}
	leave := d.takeTurn(ctx)
	if leave == nil {
		return ctx.Err()
	}
	defer leave()
	d.hide(texts...)
	if data == nil {
		return nil
	}
	return d.hideData(ctx, data)
}

// scalar is a string, a number or a word of JSON.
var scalar = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[^\s{}\[\]:,"]+`)

// hideData is hide for what is JSON, if it is valid: it stays so. A number or a word that had a secret in it
// becomes a string, and where a secret has structure itself, the whole does. It ends with ctx.
func (d *Door) hideData(ctx context.Context, text *string) error {
	if !json.Valid([]byte(*text)) {
		d.hide(text)
		return ctx.Err()
	}
	var shown, left strings.Builder // left has nothing in the place of what was hidden
	from := 0
	for _, at := range scalar.FindAllStringIndex(*text, -1) {
		if err := ctx.Err(); err != nil {
			return err
		}
		was, between := (*text)[at[0]:at[1]], (*text)[from:at[0]]
		now := d.hideScalar(was)
		shown.WriteString(between + now)
		if now != was {
			was = `""`
		}
		left.WriteString(between + was)
		from = at[1]
	}
	rest := (*text)[from:]
	*text = shown.String() + rest
	if plain := left.String() + rest; d.room.Hide(plain) != plain {
		*text = quoted(d.room.Hide(*text))
	}
	return nil
}

// hideScalar hides in the value, and in what stands for it: bytes that are a secret there are one for who looks for it.
func (d *Door) hideScalar(s string) string {
	inner, value := s, s
	if s[0] == '"' {
		inner = s[1 : len(s)-1]
		_ = json.Unmarshal([]byte(s), &value) // it is valid
	}
	if hidden := d.room.Hide(value); hidden != value {
		return quoted(hidden)
	}
	if inner != value {
		if hidden := d.room.Hide(inner); hidden != inner {
			return quoted(hidden)
		}
	}
	return s
}

func quoted(text string) string {
	raw, _ := json.Marshal(text) // no string fails
	return string(raw)
}
