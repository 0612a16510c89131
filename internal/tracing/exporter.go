package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/spawnmesh/spawnmesh/internal/streak"
)

// sendTime is how long a collector may take to answer.
const sendTime = 10 * time.Second

// maxReply is how much of an answer is read: none of it is needed.
const maxReply = 64 << 10

// An exporter sends spans by OTLP over HTTP, as JSON (OpenTelemetry Protocol 1.x). The exporter of the
// library brings gRPC: 3.4 MB, and 1.5 ms of every command (decision 31).
type exporter struct {
	url     string
	headers http.Header
	http    *http.Client
	log     *slog.Logger
	failing streak.Failures
}

// CheckEndpoint checks the URL of a collector: spans name tasks and spokes, and go in clear to this
// machine alone.
func CheckEndpoint(endpoint string) error {
	_, err := spansURL(endpoint)
	return err
}

// spansURL is where a collector takes spans: OTLP names the path for an endpoint that has none.
func spansURL(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("it is no URL such as https://collector.example.org:4318")
	case u.User != nil:
		return "", errors.New("it has a password, which others see; put it into OTEL_EXPORTER_OTLP_HEADERS")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return "", errors.New("traces go to other machines by https only")
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func newExporter(endpoint, headers string, log *slog.Logger) (*exporter, error) {
	to, err := spansURL(endpoint)
	if err != nil {
		return nil, err
	}
	e := &exporter{url: to, headers: http.Header{"Content-Type": {"application/json"}}, log: log,
		http: &http.Client{Timeout: sendTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	for pair := range strings.SplitSeq(headers, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS is no list such as authorization=Bearer%20x,tenant=a") // it may be secret
		}
		e.headers.Set(strings.TrimSpace(name), value)
	}
	return e, nil
}

// ExportSpans implements [sdk.SpanExporter]. An error is logged here: the library would write it
// somewhere else.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.send(ctx, spans)
	if e.failing.Note(err) {
		if err != nil {
			e.log.WarnContext(ctx, "traces cannot be sent and are dropped; it is tried again with the next ones", "err", err)
		} else {
			e.log.InfoContext(ctx, "traces are sent again")
		}
	}
	return nil
}

func (e *exporter) send(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	raw, err := json.Marshal(requestOf(spans))
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header = e.headers.Clone()
	resp, err := e.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxReply)) // so that the connection can be used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the collector at %s answered %s", e.url, resp.Status)
	}
	return nil
}

// Shutdown implements [sdk.SpanExporter].
func (e *exporter) Shutdown(context.Context) error {
	e.http.CloseIdleConnections()
	return nil
}
