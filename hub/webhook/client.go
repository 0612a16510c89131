package webhook

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

const (
	// tryTime is how long one try takes at most, from the look-up of the name to the end of the answer.
	tryTime = 10 * time.Second
	// mostRead is how much of an answer is read, so that the connection can be used again.
	mostRead = 64 << 10
	// mostSaid is how long the reason is at most why a try failed.
	mostSaid = 300
)

// An answer is what came of a try.
type answer struct {
	status int           // 0 = there was none
	after  time.Duration // for which the receiver wants nothing
	err    string        // why it failed, in a line; "" = it did not
}

// client sends to addresses that may be sent to, and to nothing that an answer or the environment names. The address is
// checked when it is dialled: by then a name has been looked up for the last time.
func (s *Sender) client() *http.Client {
	dialer := net.Dialer{Timeout: tryTime, KeepAlive: -1, Resolver: s.Resolver, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return checkAddress(to.Addr(), s.Allow)
	}}
	return &http.Client{
		Timeout:       tryTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: s.CA, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: tryTime,
			MaxIdleConnsPerHost: 256, MaxIdleConns: 256, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: mostRead, DisableCompression: true},
	}
}

// send tries a delivery once.
func (s *Sender) send(ctx context.Context, t store.Trial) answer {
	keys, err := s.keys(t.Webhook)
	if err != nil {
		return answer{err: clip(err.Error())}
	}
	req, err := request(ctx, t, keys, time.Now())
	if err != nil {
		return answer{err: "its URL cannot be used"}
	}
	res, err := s.http.Do(req)
	if err != nil {
		return answer{err: words(err)}
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, mostRead) // what is in it says nothing
	a := answer{status: res.StatusCode, after: retryAfter(res.Header)}
	switch {
	case a.status >= 300 && a.status < 400:
		a.err = fmt.Sprintf("it answered %d, and redirects are not followed", a.status)
	case a.status < 200 || a.status >= 300:
		a.err = fmt.Sprintf("it answered %d", a.status)
	}
	return a
}

func request(ctx context.Context, t store.Trial, keys []ed25519.PrivateKey, now time.Time) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.Webhook.URL, strings.NewReader(t.Body))
	if err != nil {
		return nil, err
	}
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "spawnmesh")
	h.Set("Webhook-Id", t.ID)
	h.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	h.Set("Webhook-Signature", signature(keys, t.ID, now, t.Body))
	return req, nil
}

// words says why there was no answer, without the URL, which may be known to few.
func words(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		if e.Timeout() {
			return "it did not answer within " + tryTime.String()
		}
		err = e.Err
	}
	return clip(err.Error())
}

// clip is as much of what others may have written as is kept, shown and logged.
func clip(text string) string { return commands.Clean(text, mostSaid) }

// retryAfter is what a header of that name asks for, as seconds or as a date; 0 where it asks for nothing.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return max(0, time.Duration(n)*time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
