package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// bodies are the types of the bodies of requests, by the patterns of their routes.
var bodies = sync.OnceValue(func() map[string]reflect.Type {
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	types := map[string]reflect.Type{}
	if text, err := Document(); err != nil || json.Unmarshal(text, &doc) != nil {
		return types // then errors name no field
	}
	for path, operations := range doc.Paths {
		for method, raw := range operations {
			var about struct {
				ID string `json:"operationId"`
			}
			if json.Unmarshal(raw, &about) != nil || about.ID == "" {
				continue // it is no operation
			}
			does, known := reflect.TypeFor[StrictServerInterface]().MethodByName(strings.ToUpper(about.ID[:1]) + about.ID[1:])
			if !known {
				continue
			}
			if body, takes := does.Type.In(1).FieldByName("Body"); takes && body.Type.Kind() == reflect.Pointer { // one that is no JSON has no fields
				types[strings.ToUpper(method)+" "+Base+path] = body.Type.Elem()
			}
		}
	}
	return types
})

// wrongField says which field of the body of r has a value that it cannot have, "" where none is found. Errors of
// package json name those of a wrong kind, and not texts that are no time or no base64.
func wrongField(r *http.Request) string {
	raw, read := r.Context().Value(bodyKey{}).([]byte)
	takes := bodies()[r.Pattern]
	if !read || takes == nil {
		return ""
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return ""
	}
	field, t := misfit(takes, v, "")
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%s takes %s", named(field), kindInWords(t))
}

// misfit is the first place in v, and what it takes, whose value does not fit t; nil where all do.
func misfit(t reflect.Type, v any, at string) (string, reflect.Type) {
	switch fields, isObject := v.(map[string]any); {
	case fits(t, v):
		return "", nil
	case t.Kind() == reflect.Pointer:
		return misfit(t.Elem(), v, at)
	case t.Kind() == reflect.Struct && isObject:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if value, given := fields[name]; given {
				if in, wrong := misfit(f.Type, value, strings.TrimPrefix(at+"."+name, ".")); wrong != nil {
					return in, wrong
				}
			}
		}
	case t.Kind() == reflect.Map && isObject:
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if in, wrong := misfit(t.Elem(), fields[name], at+"."+name); wrong != nil {
				return in, wrong
			}
		}
	case t.Kind() == reflect.Slice:
		if list, ok := v.([]any); ok {
			if i := slices.IndexFunc(list, func(v any) bool { return !fits(t.Elem(), v) }); i >= 0 {
				return misfit(t.Elem(), list[i], fmt.Sprintf("%s[%d]", at, i))
			}
		}
	}
	return at, t
}

// fits reports whether package json takes a value.
func fits(t reflect.Type, v any) bool {
	raw, err := json.Marshal(v)
	return err == nil && json.Unmarshal(raw, reflect.New(t).Interface()) == nil
}
