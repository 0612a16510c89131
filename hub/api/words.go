package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// inWords says what is wrong with a body, or a parameter, of r, without words of this program.
func inWords(err error, r *http.Request) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("%s takes %s and got %s", named(wrong.Field), kindInWords(wrong.Type), valueInWords(wrong.Value))
	}
	if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("it is not JSON at byte %d: %v", bad.Offset, bad)
	}
	if bad, ok := errors.AsType[*InvalidParamFormatError](err); ok {
		return fmt.Sprintf("parameter %s has a value that it does not take", bad.ParamName)
	}
	if wrong := wrongField(r); wrong != "" {
		return wrong
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "its JSON ends too early"
	case errors.Is(err, io.EOF):
		return "it has no body"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func named(field string) string {
	if field == "" {
		return "the body"
	}
	return "field " + field
}

func kindInWords(t reflect.Type) string {
	if t == reflect.TypeFor[json.Number]() {
		return "a number"
	}
	if t == reflect.TypeFor[[]byte]() {
		return "a text in base64"
	}
	if t == reflect.TypeFor[time.Time]() {
		return "a time such as 2006-01-02T15:04:05Z"
	}
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	}
	return "an object"
}

// valueInWords is a value as package json names it.
func valueInWords(value string) string {
	kind, _, _ := strings.Cut(value, " ") // "number 1e9"
	words := map[string]string{"string": "a text", "number": "a number", "array": "a list", "object": "an object", "bool": "true or false"}
	return cmp.Or(words[kind], value)
}
