package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
)

// maxBody bounds the body of a request.
const maxBody = 512 << 10

// An InputError is a request that cannot be what the document says.
type InputError struct {
	Status int // of the answer
	Err    error
}

func (e *InputError) Error() string { return e.Err.Error() }

// Unwrap returns what was wrong.
func (e *InputError) Unwrap() error { return e.Err }

// Plain is what programs ask for by paths of their own, beside the API. What is nil is not
// there.
type Plain struct{ Healthz, Readyz, Metrics http.Handler }

// serve adds what there is to mux.
func (p Plain) serve(mux *http.ServeMux) {
	for at, h := range map[string]http.Handler{"/healthz": p.Healthz, "/readyz": p.Readyz, "/metrics": p.Metrics} {
		if h != nil {
			mux.Handle("GET "+at, h)
		}
	}
}

// Serve is the API with what s does, and p. may refuses who may not ask for what the route of a pattern is
// for, before anything else is looked at; the pattern is empty where there is no such route. fail answers with an
// error: of may, of a request, an [*InputError], or of s.
func Serve(s StrictServerInterface, p Plain, may func(r *http.Request, pattern string) error, fail func(http.ResponseWriter, *http.Request, error)) http.Handler {
	badInput := func(w http.ResponseWriter, r *http.Request, err error) {
		if _, ok := errors.AsType[*InputError](err); !ok {
			err = &InputError{http.StatusBadRequest, fmt.Errorf("the request cannot be read: %s", inWords(err, r))}
		}
		fail(w, r, err)
	}
	strict := NewStrictHandlerWithOptions(s, []StrictMiddlewareFunc{knownFields, knownParameters}, StrictHTTPServerOptions{RequestErrorHandlerFunc: badInput, ResponseErrorHandlerFunc: fail})
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Base+"/openapi.json", func(w http.ResponseWriter, r *http.Request) {
		text, err := Document()
		if err == nil {
			err = onlyParameters(r, nil)
		}
		if err != nil {
			fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	})
	p.serve(mux)
	HandlerWithOptions(strict, StdHTTPServerOptions{BaseURL: Base, BaseRouter: mux, Middlewares: []MiddlewareFunc{jsonOnly(badInput)}, ErrorHandlerFunc: badInput})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		asked := r.URL.EscapedPath()
		clean := strings.HasPrefix(asked, "/") && path.Clean(asked) == asked // else it would be sent elsewhere
		if !clean {
			h, pattern = http.NotFoundHandler(), ""
		}
		if err := may(r, pattern); err != nil {
			fail(w, r, err)
			return
		}
		if pattern != "" {
			if r.Method == http.MethodHead { // it is answered as a GET is; what carries it drops the body
				r = r.WithContext(context.WithValue(r.Context(), headKey{}, true))
			}
			mux.ServeHTTP(w, r)
			return
		}
		said := unsaid{header: w.Header()} // of 405 it says what is allowed
		h.ServeHTTP(&said, r)
		fail(w, r, &InputError{said.status, fmt.Errorf("there is no %s %s in this API; it is described in %s/openapi.json", r.Method, r.URL.Path, Base)})
	})
}

// unsaid keeps the status and the header of an answer.
type unsaid struct {
	header http.Header
	status int
}

func (u *unsaid) Header() http.Header         { return u.header }
func (u *unsaid) WriteHeader(status int)      { u.status = status }
func (u *unsaid) Write(b []byte) (int, error) { return len(b), nil }

type bodyKey struct{}

// jsonOnly reads the body of a request that may have one, and keeps it for knownFields. Where there
// is none its type means nothing.
func jsonOnly(fail func(http.ResponseWriter, *http.Request, error)) MiddlewareFunc {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			query, err := url.ParseQuery(r.URL.RawQuery)
			if err != nil {
				fail(w, r, fmt.Errorf("its parameters are not written as in a URL: %w", err))
				return
			}
			if !isText(r.URL.Path) || !areTexts(query) {
				fail(w, r, errNoText)
				return
			}
			if reads(r) {
				next.ServeHTTP(w, r)
				return
			}
			if Streams(r) {
				if err := checkType(r, "application/octet-stream", "this request"); err != nil {
					fail(w, r, err)
					return
				}
				next.ServeHTTP(w, r)
				return
			}
			raw, err := readBody(w, r)
			if err != nil {
				fail(w, r, err)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, raw))
			r.Body = io.NopCloser(bytes.NewReader(raw))
			next.ServeHTTP(w, r)
		})
	}
}

// reads reports whether a request changes nothing: then it has no body.
func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// Streams reports whether the body of a request is bytes of any length, which are read as they come.
func Streams(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Path == Base+"/blobs" }

// checkType refuses a body that says it is something else than is wanted, which takes is said of.
func checkType(r *http.Request, wanted, takes string) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != wanted {
		return &InputError{http.StatusUnsupportedMediaType, errors.New("the body of " + takes + " is " + wanted)}
	}
	if as := r.Header.Get("Content-Encoding"); as != "" && as != "identity" {
		return &InputError{http.StatusUnsupportedMediaType, errors.New("the body of a request is not compressed")}
	}
	return nil
}

// readBody reads the body of a request, which is JSON if it is anything.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		return nil, &InputError{http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", maxBody)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &InputError{http.StatusRequestTimeout, errors.New("the body did not come to its end in time")}
	case err != nil || len(raw) == 0:
		return nil, err
	}
	if err := checkType(r, "application/json", "a request"); err != nil {
		return nil, err
	}
	if isDeep(raw) {
		return nil, &InputError{http.StatusBadRequest, fmt.Errorf("the request cannot be read: its JSON is more than %d levels deep", maxDepth)}
	}
	return raw, nil
}

type headKey struct{}

// IsHead reports whether only the header of an answer is asked for.
func IsHead(ctx context.Context) bool { return ctx.Value(headKey{}) != nil }

// idempotencyKey is the header that creations take which may be repeated.
const idempotencyKey = "Idempotency-Key"

// knownParameters refuses a parameter that the document does not have, and a key that promises what is not
// done: they would be left out in silence.
func knownParameters(next StrictHandlerFunc, _ string) StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		names, headers := parametersOf(request)
		if err := onlyParameters(r, names); err != nil {
			return nil, err
		}
		if _, keyed := r.Header[idempotencyKey]; keyed && !reads(r) && !slices.Contains(headers, idempotencyKey) {
			return nil, &InputError{http.StatusBadRequest, fmt.Errorf("%s %s takes no %s: its answer has a secret that is shown once, or what it changes has a name, and to ask again changes nothing more", r.Method, r.URL.Path, idempotencyKey)}
		}
		return next(ctx, w, r, request)
	}
}

// parametersOf names the parameters of a generated request, and its headers.
func parametersOf(request any) (names, headers []string) {
	params := reflect.ValueOf(request).FieldByName("Params")
	if !params.IsValid() {
		return nil, nil
	}
	for f := range params.Type().Fields() {
		if name, _, ok := strings.Cut(f.Tag.Get("form"), ","); ok {
			names = append(names, name)
		} else {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			headers = append(headers, name)
		}
	}
	return names, headers
}

func onlyParameters(r *http.Request, names []string) error {
	for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
		if !slices.Contains(names, name) {
			return &InputError{http.StatusBadRequest, fmt.Errorf("the request cannot be read: there is no parameter %q of %s", name, r.URL.Path)}
		}
	}
	return nil
}

// knownFields refuses a body with a field that the document does not have, without one that it
// requires, or with more than one value; where the document has no body, every field is one too many. Generated code has read it by then, and is silent about
// all that.
func knownFields(next StrictHandlerFunc, _ string) StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		body := reflect.ValueOf(request).FieldByName("Body")
		raw, read := ctx.Value(bodyKey{}).([]byte)
		if !read || !body.IsValid() && len(raw) == 0 {
			return next(ctx, w, r, request)
		}
		takes := reflect.TypeFor[struct{}]()
		if body.IsValid() {
			takes = body.Type().Elem()
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		err := dec.Decode(reflect.New(takes).Interface())
		if err == nil && dec.More() {
			err = errors.New("there is more behind the body")
		}
		if err == nil {
			err = checkBody(takes, raw)
		}
		if err != nil {
			return nil, &InputError{http.StatusBadRequest, fmt.Errorf("the request cannot be read: %s", inWords(err, r))}
		}
		return next(ctx, w, r, request)
	}
}
