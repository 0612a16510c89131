package meshtest

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/node"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// A described API is the document of a running instance, and who asks it.
type described struct {
	doc    Document
	client *http.Client
}

// describe reads the document of an instance that runs.
func (i *Instance) describe(t *testing.T) described {
	t.Helper()
	return describeBy(t, control.Transport(i.Dir))
}

// describeAtRest reads that of one that does not.
func (i *Instance) describeAtRest(t *testing.T) described {
	t.Helper()
	in := i.Visit(t)
	t.Cleanup(func() { _ = in.Close(context.WithoutCancel(t.Context())) })
	owner := control.Holder("owner", api.Access{Role: api.Owner, Workspace: api.Everywhere})
	rest := node.AtRest(in)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest.ServeHTTP(w, r.WithContext(control.WithCaller(r.Context(), owner)))
	}))
	t.Cleanup(s.Close)
	there := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}
	return describeBy(t, &http.Transport{DialContext: there})
}

func describeBy(t *testing.T, by http.RoundTripper) described {
	t.Helper()
	d := described{client: &http.Client{Transport: by, Timeout: time.Minute}}
	t.Cleanup(d.client.CloseIdleConnections)
	resp, err := d.client.Get("http://instance" + api.Base + "/openapi.json")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	d.doc = ReadDocument(t, text)
	return d
}

// ask sends a request and requires that the document knows the answer.
func (d described) ask(t *testing.T, method, path, kind, body string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://instance"+path, strings.NewReader(body))
	require.NoError(t, err)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := d.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	asked := method + " " + path + " " + body
	require.NotEqual(t, http.StatusInternalServerError, resp.StatusCode, "%.2000s: %s", asked, text)
	if !d.doc.Knows(t, req, resp.StatusCode, resp.Header, text) { // what is not in the document is refused in its form
		require.GreaterOrEqual(t, resp.StatusCode, 400, asked)
		var p api.Problem
		require.NoError(t, json.Unmarshal(text, &p), asked)
		require.Equal(t, resp.StatusCode, p.Status, asked)
	}
	return resp.StatusCode, text
}

// Every route that is served is in the document, and the other way round; every answer to thousands of requests, of
// which half are nonsense, is one that the document knows, and none is a defect.
func TestTheAPIIsWhatItsDocumentSays(t *testing.T) {
	t.Parallel()
	rounds, seed := scale.Larger(t, "SPAWNMESH_API_REQUESTS", 150, 400), scale.Seed(t, "SPAWNMESH_API_SEED")
	m := Start(t, "attic")
	task := m.Noop(t, "attic")
	m.Wait(t, task)
	for name, describe := range map[string]func(*testing.T) described{"hub": m.Hub.describe, "spoke": m.Spokes["attic"].describe, "at rest": newInstance(t, "rest").describeAtRest} {
		t.Run(name, func(t *testing.T) {
			d := describe(t)
			g := generator{rand.New(rand.NewPCG(seed, 0)), append(odd, task)}
			statuses := map[string][]int{} // of operations that TestTheAPIOfTheBacklog does not walk through
			for range rounds {
				method, path, op := g.operation(d.doc.T)
				status, _ := d.ask(t, g.method(method), g.path(path, d.doc.Paths.Value(path), op), g.kind(op), g.body(op))
				if !walked(op) {
					statuses[op.OperationID] = append(statuses[op.OperationID], status)
				}
			}
			for id, seen := range statuses {
				if name == "hub" && len(seen) > 200 && id != "revokeInvite" && id != "changeGrant" && id != "reloadPolicy" && id != "killTasks" && !lasting[id] { // they name none, or what is right by chance alone, or are asked of spokes
					require.Contains(t, seen, http.StatusOK, "%s was never done", id)
				}
			}
		})
	}
}

// A generator makes requests of the document, most of them nearly right.
type generator struct {
	*rand.Rand
	names []string // of what there is, and is not
}

func (g generator) rarely() bool { return g.IntN(10) == 0 }

func (g generator) operation(doc *openapi3.T) (method, path string, op *openapi3.Operation) {
	paths := doc.Paths.InMatchingOrder()
	path = paths[g.IntN(len(paths))]
	ops := doc.Paths.Value(path).Operations()
	methods := make([]string, 0, len(ops))
	for m := range ops {
		methods = append(methods, m)
	}
	slices.Sort(methods)
	method = methods[g.IntN(len(methods))]
	return method, path, ops[method]
}

func (g generator) method(right string) string {
	if g.rarely() {
		return []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"}[g.IntN(6)]
	}
	return right
}

func (g generator) kind(op *openapi3.Operation) string {
	if g.rarely() {
		return []string{"", "text/plain", "application/json; charset=utf-8", "application/x-www-form-urlencoded", ";;"}[g.IntN(5)]
	}
	if op.RequestBody != nil && op.RequestBody.Value.Content.Get(bytesKind) != nil {
		return bytesKind
	}
	return "application/json"
}

const bytesKind = "application/octet-stream"

// lasting are the operations after which others have nothing to work on, or that take a minute
// meanwhile. They are asked about what is not there.
var lasting = map[string]bool{"revokeConnection": true, "resyncConnection": true, "getTaskWork": true}

var odd = []string{"", "x", "attic", "..", "%2e%2e", "a/b", "%00", "0193a3c0-2222-7000-8000-000000000001", "%F0%9F%92%A9", strings.Repeat("x", 3000), "current", "-1", "1e9", "\x7f"}

func (g generator) path(path string, of *openapi3.PathItem, op *openapi3.Operation) string {
	base := api.Base
	if len(of.Servers) > 0 && !g.rarely() {
		base = "" // it is beside the API
	}
	query := []string{}
	for _, p := range append(slices.Clone(of.Parameters), op.Parameters...) {
		value := strings.NewReplacer(" ", "%20", "\x7f", "%7F").Replace(g.names[g.IntN(len(g.names))])
		if lasting[op.OperationID] && value == "attic" {
			value = "cellar"
		}
		if s := p.Value.Schema.Value; s.Type.Is("integer") && !g.rarely() {
			value = strconv.Itoa(g.IntN(12000))
		}
		if p.Value.Name == "workspace" && !g.rarely() {
			value = "main"
		}
		if p.Value.In == "path" {
			path = strings.ReplaceAll(path, "{"+p.Value.Name+"}", value)
		} else if g.IntN(2) == 0 {
			query = append(query, p.Value.Name+"="+value)
		}
	}
	if g.rarely() {
		path += "/" + strings.NewReplacer("\x7f", "%7F").Replace(odd[g.IntN(len(odd))])
	}
	if g.rarely() {
		query = append(query, "unknown=1")
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	return base + path
}

func (g generator) body(op *openapi3.Operation) string {
	if op.RequestBody == nil {
		return ""
	}
	if g.rarely() {
		return []string{"", "null", "[]", "{", "{}{}", `"x"`, "\xff", `{"reason":` + strings.Repeat("[", 5000), strings.Repeat(" ", 600<<10), `{"a":1,"a":2}`}[g.IntN(10)]
	}
	if op.RequestBody.Value.Content.Get(bytesKind) != nil {
		return strings.Repeat("\x00a", g.IntN(100))
	}
	raw, _ := json.Marshal(g.value(op.RequestBody.Value.Content.Get("application/json").Schema.Value)) // it is made of what can be one
	return string(raw)
}

// value is one of a schema, rarely one of another type or with a field more or less.
func (g generator) value(s *openapi3.Schema) any {
	if g.rarely() {
		return []any{nil, "", 1.5, -1, true, []any{}, map[string]any{"no": 1}, strings.Repeat("x", 5000), int64(1) << 62}[g.IntN(9)]
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[g.IntN(len(s.Enum))]
	case s.Type.Is("object"):
		v := map[string]any{}
		for name, p := range s.Properties {
			if !g.rarely() {
				v[name] = g.value(p.Value)
			}
		}
		if g.rarely() {
			v["unknown"] = 1
		}
		return v
	case s.Type.Is("array"):
		v := make([]any, g.IntN(4))
		for i := range v {
			v[i] = g.value(s.Items.Value)
		}
		return v
	case s.Type.Is("integer"):
		return g.IntN(1 << 20)
	case s.Type.Is("number"):
		return float64(g.IntN(1000)) / 4
	case s.Format == "date-time":
		return time.Now().Add(time.Duration(g.IntN(1e9)) * time.Second)
	case s.Type.Is("boolean"):
		return g.IntN(2) == 0
	}
	return []string{"attic", "cellar", "the disk was copied", "current", "n" + strconv.Itoa(g.IntN(1e6)), "ü\n", "a\x00b"}[g.IntN(7)]
}
