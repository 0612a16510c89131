package listener_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/listener"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// A page that leads a name of its own to this address, or asks from elsewhere, gets nothing, token or not.
func TestAWebPageGetsNothing(t *testing.T) {
	t.Parallel()
	m := start(t)
	text := token(t, m, "good", api.Owner, api.Everywhere).Token
	at, err := url.Parse(m.Hub.API)
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(at.Host)
	require.NoError(t, err)
	for head, want := range map[string]string{
		"GET /healthz HTTP/1.1\r\nHost: evil.test":                                                                        "421 MISDIRECTED",
		"GET /healthz HTTP/1.1\r\nHost: evil.test:" + port:                                                                "421 MISDIRECTED",
		"GET /healthz HTTP/1.1\r\nHost: localhost.:" + port:                                                               "421 MISDIRECTED",
		"GET /healthz HTTP/1.1\r\nHost: localhost":                                                                        "421 MISDIRECTED",
		"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:1":                                                                      "421 MISDIRECTED",
		"GET /healthz HTTP/1.1\r\nHost: 127.1:" + port:                                                                    "421 MISDIRECTED",
		"GET /healthz HTTP/1.1\r\nHost: ":                                                                                 "421 MISDIRECTED",
		"GET http://evil.test/healthz HTTP/1.1\r\nHost: localhost:" + port:                                                "421 MISDIRECTED",
		"GET http://localhost:" + port + "/healthz HTTP/1.1\r\nHost: localhost:" + port:                                   "421 MISDIRECTED",
		"GET /healthz HTTP/1.1\r\nHost: localhost:" + port + "\r\nOrigin: http://evil.test":                               "403 FORBIDDEN",
		"GET /healthz HTTP/1.1\r\nHost: localhost:" + port + "\r\nOrigin: null":                                           "403 FORBIDDEN",
		"GET /healthz HTTP/1.1\r\nHost: localhost:" + port + "\r\nOrigin: http://localhost:1":                             "403 FORBIDDEN",
		"GET /healthz HTTP/1.1\r\nHost: localhost:" + port + "\r\nOrigin: https://localhost:" + port:                      "403 FORBIDDEN",
		"GET /healthz HTTP/1.1\r\nHost: localhost:" + port + "\r\nSec-Fetch-Site: cross-site":                             "403 FORBIDDEN",
		"GET /healthz HTTP/1.1\r\nHost: localhost:" + port + "\r\nSec-Fetch-Site: same-site":                              "403 FORBIDDEN",
		"OPTIONS /api/v1/tasks HTTP/1.1\r\nHost: localhost:" + port + "\r\nOrigin: http://localhost:" + port:              "405 METHOD_NOT_ALLOWED",
		"GET /healthz HTTP/1.1\r\nHost: localhost:" + port + "\r\nOrigin: http://localhost:" + port:                       "200 ",
		"GET /healthz HTTP/1.1\r\nHost: LOCALHOST:" + port:                                                                "200 ",
		"GET /healthz HTTP/1.1\r\nHost: [::1]:" + port + "\r\nSec-Fetch-Site: none":                                       "200 ",
		"GET /api/v1/instance HTTP/1.1\r\nHost: 127.0.0.1:" + port + "\r\nSec-Fetch-Site: same-origin":                    "200 ",
		"POST /api/v1/policy/reload HTTP/1.1\r\nHost: 127.0.0.1:" + port + "\r\nOrigin: http://evil.test\r\nX: text/html": "403 FORBIDDEN",
	} {
		resp, said := says(t, at.Host, head+"\r\nAuthorization: Bearer "+text+"\r\n\r\n")
		require.Equal(t, want, fmt.Sprint(resp.StatusCode, " ", said.Code), "%q: %s", head, said.Detail)
		for name := range resp.Header {
			require.NotRegexp(t, "^Access-Control", name, "no page may read an answer")
		}
	}
}

// says sends text as it stands and reads the answer.
func says(t *testing.T, address, text string) (*http.Response, api.Problem) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(meshtest.Patience)))
	_, err = c.Write([]byte(text))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	return resp, problemOf(t, resp)
}

// A machine that others reach serves nobody without TLS, whatever its address is called.
func TestTokensDoNotTravelInTheClear(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	cert, key := (&authority{}).issue(t, t.TempDir(), 1)
	refused := func(c listener.Config) error {
		t.Helper()
		l, err := listener.Open(t.Context(), c, log)
		if err == nil {
			require.NoError(t, l.Close())
		}
		return err
	}
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	wide := []string{":0", "0.0.0.0:0", "[::]:0"}
	for _, a := range addresses {
		if ip := a.(*net.IPNet).IP; !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			wide = append(wide, net.JoinHostPort(ip.String(), "0"))
		}
	}
	for _, address := range wide {
		require.ErrorContains(t, refused(listener.Config{Address: address}), "tokens would travel in the clear", address)
		require.NoError(t, refused(listener.Config{Address: address, Cert: cert, Key: key}), address)
	}
	for _, address := range []string{"127.0.0.1:0", "localhost:0", "127.9.9.9:0"} {
		require.NoError(t, refused(listener.Config{Address: address}), address)
	}
	require.NoError(t, os.Chmod(key, 0o644))
	for name, c := range map[string]listener.Config{
		"no port":                  {Address: "127.0.0.1"},
		"no such host":             {Address: "nowhere.invalid:0"},
		"a certificate alone":      {Address: "127.0.0.1:0", Cert: cert},
		"a key alone":              {Address: "127.0.0.1:0", Key: key},
		"no certificate":           {Address: "127.0.0.1:0", Cert: key, Key: cert},
		"a key that others read":   {Address: "127.0.0.1:0", Cert: cert, Key: key},
		"a file that is not there": {Address: "127.0.0.1:0", Cert: cert + "s", Key: key},
	} {
		require.Error(t, refused(c), name)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	require.Equal(t, commands.Conflict, commands.CodeOf(refused(listener.Config{Address: taken.Addr().String()})))
}

// With a certificate it is TLS 1.3 and nothing less. A certificate is renewed by putting its files in
// place; one that cannot be used changes nothing.
func TestACertificateIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := &authority{}
	cert, key := ca.issue(t, dir, 1)
	m := meshtest.Plan{API: &listener.Config{Address: "127.0.0.1:0", Cert: cert, Key: key, Hosts: []string{"hub.test"}}}.Start(t)
	at, err := url.Parse(m.Hub.API)
	require.NoError(t, err)
	require.Equal(t, "https", at.Scheme)
	trust := &tls.Config{RootCAs: ca.pool(), ServerName: "hub.test"}
	serial := func() string {
		c, err := tls.Dial("tcp", at.Host, trust)
		require.NoError(t, err)
		defer c.Close()
		require.EqualValues(t, tls.VersionTLS13, c.ConnectionState().Version)
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	require.Equal(t, "1", serial())
	old := trust.Clone()
	old.MaxVersion = tls.VersionTLS12
	_, err = tls.Dial("tcp", at.Host, old)
	require.ErrorContains(t, err, "protocol version")

	ca.issue(t, dir, 2)

	meshtest.Await(t, "the new certificate", func() bool { return serial() == "2" })
	require.NoError(t, os.WriteFile(key, []byte("half of a key"), 0o600))
	meshtest.Await(t, "a line in the log", func() bool { return serial() == "2" && strings.Contains(m.Hub.Log.String(), "the one before is used") })
	ca.issue(t, dir, 3)
	meshtest.Await(t, "the third one", func() bool { return serial() == "3" })
	p := &program{url: "https://hub.test:" + at.Port(), token: token(t, m, "good", api.Viewer, api.Everywhere).Token,
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: trust, DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", at.Host) }}}}
	p.gets(t, api.Base+"/instance", new(api.Instance))
}

// An authority issues certificates for tests.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// issue puts a certificate for hub.test and its key into dir.
func (a *authority) issue(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	if a.key == nil {
		a.key, a.cert = a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	}
	own, leaf := a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"hub.test"}, KeyUsage: x509.KeyUsageDigitalSignature})
	raw, err := x509.MarshalPKCS8PrivateKey(own)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: leaf.Raw}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		require.NoError(t, os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	return cert, key
}

func (a *authority) sign(t *testing.T, c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	by, parent := a.key, a.cert
	if by == nil {
		by, parent = own, c
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, own.Public(), by)
	require.NoError(t, err)
	made, err := x509.ParseCertificate(raw)
	require.NoError(t, err)
	return own, made
}

// Who shows no token is answered before the end of what it sends.
func TestABodyOfNobodyIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	m := start(t)
	at, err := url.Parse(m.Hub.API)
	require.NoError(t, err)
	c, err := net.Dial("tcp", at.Host)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(control.BodyTime/2)))
	_, err = fmt.Fprintf(c, "POST /api/v1/tasks HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n", at.Host)
	require.NoError(t, err)

	line, err := bufio.NewReader(c).ReadString('\n')

	require.NoError(t, err)
	require.Contains(t, line, "401")
}
