package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// collector answers with status, and keeps what it was sent.
func collector(t *testing.T, status *atomic.Int32) (url string, sent chan *http.Request, bodies chan []byte) {
	sent, bodies = make(chan *http.Request, 16), make(chan []byte, 16)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		sent <- r
		bodies <- raw
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(s.Close)
	return s.URL, sent, bodies
}

func open(t *testing.T, url, headers string, to io.Writer) *Tracer {
	tr, err := Open(url, Who{Instance: "mi1x", Version: "v1", Headers: headers}, slog.New(slog.NewTextHandler(to, nil)))
	require.NoError(t, err)
	return tr
}

// A request is what OTLP 1.x says of its form in JSON.
func TestASpanAsACollectorGetsIt(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	status.Store(200)
	url, sent, bodies := collector(t, &status)
	var log bytes.Buffer
	tr := open(t, url, "authorization=Bearer%20secret, tenant=a", &log)
	from := time.Unix(1700000000, 5)
	self := Named(parent, "run 1")

	tr.Tell(Span{Name: "run", Self: self, Parent: parent, From: from, To: from.Add(time.Second), About: []string{"task", "t1"}, Problem: "failed"})
	tr.Tell(Span{Name: "nobody's"})
	require.NoError(t, tr.Close(t.Context()))

	r := <-sent
	require.Equal(t, "/v1/traces", r.URL.Path)
	require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	require.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
	require.Equal(t, "a", r.Header.Get("Tenant"))
	var got, want any
	require.NoError(t, json.Unmarshal(<-bodies, &got))
	require.NoError(t, json.Unmarshal([]byte(`{"resourceSpans":[{
		"resource":{"attributes":[{"key":"service.instance.id","value":{"stringValue":"mi1x"}},{"key":"service.name","value":{"stringValue":"spawnmesh"}},{"key":"service.version","value":{"stringValue":"v1"}}]},
		"scopeSpans":[{"scope":{"name":"spawnmesh"},"spans":[{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"`+strings.Split(self, "-")[2]+`","parentSpanId":"b7ad6b7169203331","flags":1,
			"name":"run","kind":1,"startTimeUnixNano":"1700000000000000005","endTimeUnixNano":"1700000001000000005",
			"attributes":[{"key":"spawnmesh.task","value":{"stringValue":"t1"}}],"status":{"code":2,"message":"failed"}}]}]}]}`), &want))
	require.Equal(t, want, got)
	require.Empty(t, sent, "a span without a context is not told")
	require.Empty(t, log.String())
}

// Who began a trace and does not want it recorded is heard.
func TestATraceThatIsNotSampledIsNotTold(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	status.Store(200)
	url, sent, _ := collector(t, &status)
	tr := open(t, url, "", io.Discard)
	quiet := strings.TrimSuffix(parent, "01") + "00"

	tr.Tell(Span{Name: "run", Self: Begin(quiet), Parent: quiet, From: time.Now(), To: time.Now()})

	require.NoError(t, tr.Close(t.Context()))
	require.Empty(t, sent)
}

// A collector that does not take traces is said once, and so is that it does again; what the requests
// carry is not.
func TestACollectorThatFailsIsSaidOnce(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	url, sent, _ := collector(t, &status)
	var log bytes.Buffer
	e, err := newExporter(url, "authorization=secret", slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	for _, code := range []int32{503, 503, 307, 500, 500, 200, 200} {
		status.Store(code)
		require.NoError(t, e.ExportSpans(t.Context(), nil))
		<-sent
	}
	require.Equal(t, 1, strings.Count(log.String(), "traces cannot be sent and are dropped"))
	require.Equal(t, 1, strings.Count(log.String(), "traces are sent again"))
	require.NotContains(t, log.String(), "secret")
}

func TestContexts(t *testing.T) {
	t.Parallel()
	below := Begin(parent)
	require.Regexp(t, `^00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-01$`, below)
	require.NotEqual(t, parent, below)
	require.Regexp(t, `^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`, Begin(""))
	require.NotEqual(t, Begin(""), Begin(""))
	require.Equal(t, Named(parent, "run 1"), Named(parent, "run 1"), "the same after a restart")
	require.NotEqual(t, Named(parent, "run 1"), Named(parent, "run 2"))
	require.NotEqual(t, Named(parent, "run 1"), Named(below, "run 1"))
	require.Empty(t, Named("", "run 1"))
	require.Equal(t, parent, ParentOf(WithParent(t.Context(), parent)))
	for _, later := range []string{"01" + parent[2:], "fe" + parent[2:], "01" + parent[2:] + "-what-is-new"} {
		require.Equal(t, parent, ParentOf(WithParent(t.Context(), later)), later)
	}
	for _, none := range []string{"", "x", "00-00000000000000000000000000000000-b7ad6b7169203331-01", parent + "x", "ff" + parent[2:], strings.ToUpper(parent)} {
		require.Empty(t, ParentOf(WithParent(t.Context(), none)), none)
	}
	var nobody *Tracer
	nobody.Tell(Span{Name: "x", Self: parent})
	require.False(t, nobody.On())
	require.NoError(t, nobody.Close(context.Background()))
}

func TestWhereTracesGo(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{"http://127.0.0.1:4318": "http://127.0.0.1:4318/v1/traces", "http://localhost:4318/": "http://localhost:4318/v1/traces",
		"http://[::1]:1": "http://[::1]:1/v1/traces", "https://c.example.org/otlp/v1/traces": "https://c.example.org/otlp/v1/traces"} {
		got, err := spansURL(endpoint)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for endpoint, want := range map[string]string{"": "no URL", "127.0.0.1:4318": "no URL", "ftp://x/": "no URL", "http:///x": "no URL", "https://c.example.org?x=1": "no URL",
		"https://u:p@c.example.org": "has a password", "http://c.example.org": "by https only", "http://127.0.0.1.example.org": "by https only"} {
		require.ErrorContains(t, CheckEndpoint(endpoint), want, endpoint)
	}
	_, err := newExporter("http://127.0.0.1:1", "authorization", nil)
	require.EqualError(t, err, "OTEL_EXPORTER_OTLP_HEADERS is no list such as authorization=Bearer%20x,tenant=a")
}
