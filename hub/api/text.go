package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// A body was read by then: what was no text in it is U+FFFD.
var errNoText = errors.New("a text in it holds a NUL, U+FFFD or what is not UTF-8")

// isText reports whether a database can store it, and a message may carry it.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsAny(s, "\x00\uFFFD") }

func areTexts(q url.Values) bool {
	for name, values := range q {
		if !isText(name) || !allOf(values, isText) {
			return false
		}
	}
	return true
}

// checkBody looks at all texts of a body, and whether what its type requires is there: the fields
// that are never left out.
func checkBody(t reflect.Type, raw []byte) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	if !onlyTexts(v) {
		return errNoText
	}
	if name, twice := nameTwice(json.NewDecoder(bytes.NewReader(raw))); twice {
		return fmt.Errorf("%q is there twice, and one of its values would be left out", name)
	}
	fields, _ := v.(map[string]any)
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if fields[name] == nil && !strings.Contains(options, "omitempty") {
			return fmt.Errorf("it lacks the field %s", name)
		}
	}
	return nil
}

// nameTwice returns a name that an object has twice, of the value that dec reads next, which is valid.
func nameTwice(dec *json.Decoder) (name string, twice bool) {
	first, _ := dec.Token()
	names := map[string]bool{}
	for object := first == json.Delim('{'); (object || first == json.Delim('[')) && dec.More(); {
		if object {
			token, _ := dec.Token()
			name, _ = token.(string)
			if names[name] {
				return name, true
			}
			names[name] = true
		}
		if name, twice := nameTwice(dec); twice {
			return name, true
		}
	}
	if _, nested := first.(json.Delim); nested {
		_, _ = dec.Token() // its end
	}
	return "", false
}

// onlyTexts looks at a value of JSON and at all that is in it.
func onlyTexts(v any) bool {
	switch v := v.(type) {
	case string:
		return isText(v)
	case []any:
		return allOf(v, onlyTexts)
	case map[string]any:
		return allOf(slices.Collect(maps.Values(v)), onlyTexts)
	}
	return true
}

// maxDepth bounds how deep objects and lists of a body are in each other.
const maxDepth = 32

// isDeep reports whether JSON is deeper than maxDepth. What is none is found out by who reads it.
func isDeep(raw []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

func allOf[T any](list []T, holds func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !holds(v) })
}
