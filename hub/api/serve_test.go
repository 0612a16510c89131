package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// keys serves one operation.
type keys struct{ StrictServerInterface }

func (keys) RevokeKey(_ context.Context, r RevokeKeyRequestObject) (RevokeKeyResponseObject, error) {
	return RevokeKey200JSONResponse{KeysJSONResponse{Fingerprint: r.Body.Key}}, nil
}

func (keys) ListAudit(context.Context, ListAuditRequestObject) (ListAuditResponseObject, error) {
	return nil, errors.New("asked for")
}

func (keys) ReloadPolicy(context.Context, ReloadPolicyRequestObject) (ReloadPolicyResponseObject, error) {
	return ReloadPolicy200JSONResponse{Policy: "p"}, nil
}

// ask sends a request to it and returns the status and what was said.
func ask(t *testing.T, method, path, kind, body string) (int, string) {
	t.Helper()
	anybody := func(*http.Request, string) error { return nil }
	h := Serve(keys{}, Plain{}, anybody, func(w http.ResponseWriter, _ *http.Request, err error) {
		status := http.StatusInternalServerError
		if bad, ok := errors.AsType[*InputError](err); ok {
			status = bad.Status
		}
		http.Error(w, err.Error(), status)
	})
	r := httptest.NewRequestWithContext(t.Context(), method, Base+path, strings.NewReader(body))
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// What cannot be a request is said with its status, in words without those of this program.
func TestWhatIsNoRequestIsRefused(t *testing.T) {
	t.Parallel()
	const as, right = "application/json", `{"key":"current","reason":"it was copied"}`
	for name, tt := range map[string]struct {
		method, path, kind, body string
		status                   int
		says                     string
	}{
		"right":                {"POST", "/keys/revoke", as, right, 200, `"fingerprint":"current"`},
		"with a character set": {"POST", "/keys/revoke", as + "; charset=utf-8", right, 200, "current"},
		"an unknown field":     {"POST", "/keys/revoke", as, `{"key":"current","reason":"r","why":1}`, 400, `the request cannot be read: unknown field "why"`},
		"a number":             {"POST", "/keys/revoke", as, `{"key":1,"reason":"r"}`, 400, "field key takes a text and got a number"},
		"no base64":            {"POST", "/tasks", as, `{"files":[{"path":"x","content":12345}]}`, 400, "takes a text in base64 and got a number"},
		"base64 with a fault":  {"POST", "/tasks", as, `{"runtime":"exec","stdin":"aGk=","files":[{"path":"x","content":"aGk="},{"path":"y","content":"a_"}]}`, 400, "field files[1].content takes a text in base64\n"},
		"input of that kind":   {"POST", "/tasks", as, `{"stdin":"not base64"}`, 400, "field stdin takes a text in base64\n"},
		"no time":              {"PATCH", "/connections/attic/grant", as, `{"expires":"yesterday"}`, 400, "field expires takes a time such as 2006-01-02T15:04:05Z\n"},
		"a number for a time":  {"PATCH", "/connections/attic/grant", as, `{"weight":1,"expires":5}`, 400, "field expires takes a time such as 2006-01-02T15:04:05Z\n"},
		"a time in a list":     {"POST", "/workspaces/main/tasks", as, `{"items":[{"title":"a"},{"title":"b","not_before":"2026-13-01T00:00:00Z"}]}`, 400, "field items[1].not_before takes a time"},
		"no amount":            {"POST", "/workspaces/main/tasks", as, `{"items":[{"estimate":{"usd":"many"}}]}`, 400, "field items[0].estimate.usd takes a number\n"},
		"a list":               {"POST", "/keys/revoke", as, `[]`, 400, "the body takes an object and got a list"},
		"a field twice":        {"POST", "/keys/revoke", as, `{"key":"a","reason":"r","key":"b"}`, 400, `"key" is there twice`},
		"one in it twice":      {"POST", "/tasks", as, `{"runtime":"exec","files":[{"path":"x","content":"aGk=","path":"y"}]}`, 400, `"path" is there twice`},
		"two values":           {"POST", "/keys/revoke", as, right + right, 400, "there is more behind the body"},
		"a field too few":      {"POST", "/keys/revoke", as, `{"key":"current"}`, 400, "it lacks the field reason"},
		"null for a field":     {"POST", "/keys/revoke", as, `{"key":null,"reason":"r"}`, 400, "it lacks the field key"},
		"half":                 {"POST", "/keys/revoke", as, `{"key":`, 400, "its JSON ends too early"},
		"nothing":              {"POST", "/keys/revoke", as, "", 400, "it has no body"},
		"no JSON":              {"POST", "/keys/revoke", as, "key=current", 400, "it is not JSON at byte 1"},
		"another type":         {"POST", "/keys/revoke", "text/plain", right, 415, "the body of a request is application/json"},
		"no type":              {"POST", "/keys/revoke", "", right, 415, "application/json"},
		"too large":            {"POST", "/keys/revoke", as, `{"key":"` + strings.Repeat("x", 512<<10) + `"}`, 413, "larger than 524288 bytes"},
		"nothing, of no type":  {"POST", "/keys/revoke", "", "", 400, "it has no body"},
		"takes no body":        {"POST", "/policy/reload", "", "", 200, `"policy":"p"`},
		"nothing in a body":    {"POST", "/policy/reload", as, "{}", 200, `"policy":"p"`},
		"a body too many":      {"POST", "/policy/reload", as, `{"now":true}`, 400, `unknown field "now"`},
		"a list too many":      {"POST", "/policy/reload", as, `[1]`, 400, "the body takes an object and got a list"},
		"a form of nothing":    {"POST", "/policy/reload", "application/x-www-form-urlencoded", "", 200, `"policy":"p"`},
		"an unknown parameter": {"GET", "/audit?limit=1&limits=2", "", "", 400, `there is no parameter "limits" of /api/v1/audit`},
		"one of a POST":        {"POST", "/policy/reload?now=1", "", "", 400, `there is no parameter "now" of /api/v1/policy/reload`},
		"one of the document":  {"GET", "/openapi.json?x", "", "", 400, `there is no parameter "x"`},
		"the name of a header": {"GET", "/tasks/x/logs?Last-Event-ID=1", "", "", 400, `there is no parameter "Last-Event-ID"`},
		"no parameters":        {"GET", "/audit?a;b", "", "", 400, "its parameters are not written as in a URL"},
		"a header only":        {"HEAD", "/audit", "", "", 500, "asked for"},
		"not a number":         {"GET", "/audit?limit=many", "", "", 400, "parameter limit has a value that it does not take"},
		"a NUL":                {"POST", "/keys/revoke", as, `{"key":"a\u0000","reason":"r"}`, 400, "a text in it holds a NUL"},
		"a NUL in a parameter": {"GET", "/audit?object=%00", "", "", 400, "a text in it holds a NUL"},
		"no UTF-8":             {"GET", "/audit?object=%ff", "", "", 400, "is not UTF-8"},
		"bytes that are none":  {"POST", "/keys/revoke", as, "{\"key\":\"a\",\"reason\":\"cl\xe9\"}", 400, "is not UTF-8"},
		"half of a character":  {"POST", "/keys/revoke", as, `{"key":"a","reason":"cl\ud800"}`, 400, "is not UTF-8"},
		"another method":       {"DELETE", "/keys", "", "", 405, "there is no DELETE /api/v1/keys in this API"},
		"a path that leads up": {"GET", "/audit/../keys", "", "", 404, "there is no GET /api/v1/audit/../keys in this API"},
		"another path":         {"GET", "/nothing", "", "", 404, "there is no GET /api/v1/nothing in this API; it is described in /api/v1/openapi.json"},
		"a deep body":          {"POST", "/keys/revoke", as, `{"key":` + strings.Repeat("[", 32), 400, "its JSON is more than 32 levels deep"},
		"a body less deep":     {"POST", "/keys/revoke", as, `{"key":` + strings.Repeat("[", 31), 400, "its JSON ends too early"},
		"a text with brackets": {"POST", "/keys/revoke", as, `{"key":"\"` + strings.Repeat("[", 99) + `","reason":"r"}`, 200, "[[["},
		"a fault":              {"GET", "/audit", "", "", 500, "asked for"},
	} {
		status, said := ask(t, tt.method, tt.path, tt.kind, tt.body)
		require.Equal(t, tt.status, status, "%s: %s", name, said)
		require.Contains(t, said, tt.says, name)
	}
}

// A field is found in the body of each operation that has one.
func TestTheBodiesOfAllOperationsAreKnown(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	text, err := Document()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(text), &doc))
	with := 0
	for path, operations := range doc.Paths {
		for method, about := range operations {
			if strings.Contains(string(about), `"requestBody"`) && !strings.Contains(string(about), `"application/octet-stream"`) {
				require.NotNil(t, bodies()[strings.ToUpper(method)+" "+Base+path], path)
				with++
			}
		}
	}
	require.Len(t, bodies(), with)
}

func TestTheDocumentIsServed(t *testing.T) {
	t.Parallel()
	status, text := ask(t, "GET", "/openapi.json", "", "")
	require.Equal(t, http.StatusOK, status)
	var doc struct {
		OpenAPI string                    `json:"openapi"`
		Paths   map[string]map[string]any `json:"paths"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &doc))
	require.Equal(t, "3.0.3", doc.OpenAPI)
	require.Contains(t, doc.Paths, "/openapi.json")
	require.Contains(t, doc.Paths["/keys/revoke"], "post")
}
