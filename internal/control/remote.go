package control

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

// CertificateUnknown is the code for a hub that shows a certificate which is not its own as far as is known.
const CertificateUnknown commands.Code = "CERTIFICATE_UNKNOWN"

// A Remote is an instance that is asked over the network.
type Remote struct {
	Context   string // what its user calls it
	URL       string
	Token     string
	Authority *x509.CertPool // of its certificate; nil = those of the system
}

// How long another machine may take for a connection, and until it begins to answer: the longest wait for a task is 60 s.
const (
	dialTime   = 10 * time.Second
	answerTime = 75 * time.Second
)

// NewRemoteClient returns a client of an instance on another machine. It connects when asked.
func NewRemoteClient(r Remote) *Client {
	return r.client(answerTime)
}

func (r Remote) client(within time.Duration) *Client {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
		TLSHandshakeTimeout: dialTime,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: r.Authority},
		MaxIdleConnsPerHost: 128,

		ResponseHeaderTimeout: within,
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token goes nowhere else
	url := strings.TrimRight(r.URL, "/")
	return &Client{url: url, where: "the hub at " + url + " (context " + r.Context + ")", remote: &r, http: &http.Client{Transport: bearer{t, r.Token}, CheckRedirect: stay}}
}

// bearer sends a token with each request.
type bearer struct {
	next  http.RoundTripper
	token string
}

// RoundTrip sends a request with the token.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// unreachable says why there is no answer of another machine, and what to do.
func (r *Remote) unreachable(where string, err error) error {
	_, stranger := errors.AsType[x509.UnknownAuthorityError](err)
	wrong, renamed := errors.AsType[x509.HostnameError](err)
	invalid, bad := errors.AsType[x509.CertificateInvalidError](err)
	_, header := errors.AsType[tls.RecordHeaderError](err)
	noName, unknown := errors.AsType[*net.DNSError](err)
	not := func(code commands.Code, why, hint string) error {
		return (&commands.Refused{Code: code, Why: where + " " + why}).Hinting("%s", hint)
	}
	switch {
	case stranger:
		return not(CertificateUnknown, "shows a certificate of an authority that is not known here", "if that authority is yours, name its certificate: context add "+r.Context+" --ca FILE ...; else somebody may stand between you")
	case renamed && len(wrong.Certificate.DNSNames) > 0:
		return not(CertificateUnknown, "shows a certificate for another host: "+strings.Join(wrong.Certificate.DNSNames, ", "), "use one of these names in the --url of the context; else somebody may stand between you")
	case renamed:
		return not(CertificateUnknown, "shows a certificate for another host", "use the name that the certificate has in the --url of the context; else somebody may stand between you")
	case bad:
		return not(CertificateUnknown, "shows a certificate that cannot be used: "+invalid.Error(), "its operator renews it by putting new files in the place of --api-cert and --api-key; is the clock of this host right?")
	case header || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return not(commands.Unreachable, "does not speak TLS", "is the port that of --api, and was --api-cert given there?")
	case errors.Is(err, syscall.ECONNREFUSED):
		return not(commands.Unreachable, "refuses the connection: nothing listens there", "is it running, with --api, and is the port right?")
	case unknown:
		return not(commands.Unreachable, "cannot be found: there is no host "+noName.Name+", or no answer about it", "look at the --url of the context")
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) || isTimeout(err):
		return not(commands.Unreachable, "does not answer in time", "is it running, and does every firewall in between let this host in?")
	}
	return &commands.Refused{Code: commands.Unreachable, Why: where + " does not answer", Err: err, Hint: "is it running, with --api?"}
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}
