package control

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// away serves h with TLS as a hub on another machine, whose certificate was good until then.
func away(t *testing.T, h http.HandlerFunc, until time.Time, most uint16) (url string, pool *x509.CertPool) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-24 * time.Hour), NotAfter: until, DNSNames: []string{"localhost"}}
	raw, err := x509.CreateCertificate(rand.Reader, c, c, own.Public(), own)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(raw)
	require.NoError(t, err)
	pool = x509.NewCertPool()
	pool.AddCert(leaf)
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: own}}, MaxVersion: most}
	s.StartTLS()
	t.Cleanup(s.Close)
	return "https://localhost:" + s.Listener.Addr().String()[len("127.0.0.1:"):], pool
}

// A token goes to the hub that it is for, and nowhere else.
func TestATokenGoesToItsHubAlone(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 2)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- "other: " + r.Header.Get("Authorization") }))
	defer other.Close()
	url, pool := away(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization")
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}, time.Now().Add(time.Hour), 0)

	resp, err := NewRemoteClient(Remote{Context: "lab", URL: url + "/", Token: "smt_x", Authority: pool}).Send(t.Context(), "GET", "/api/v1/instance", nil)

	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusTemporaryRedirect, resp.StatusCode)
	require.Equal(t, "Bearer smt_x", <-seen)
	require.Empty(t, seen, "who is sent elsewhere does not go there")
}

// What keeps a hub from being reached has its words, and no token in them.
func TestWhyAHubIsNotReached(t *testing.T) {
	t.Parallel()
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }
	good, pool := away(t, answer, time.Now().Add(time.Hour), 0)
	expired, expiredPool := away(t, answer, time.Now().Add(-time.Hour), 0)
	old, oldPool := away(t, answer, time.Now().Add(time.Hour), tls.VersionTLS12)
	plain := httptest.NewServer(http.HandlerFunc(answer))
	defer plain.Close()
	for name, tt := range map[string]struct {
		url  string
		pool *x509.CertPool
		code commands.Code
		says string
	}{
		"nothing":                {good, pool, "", ""},
		"another authority":      {good, oldPool, CertificateUnknown, "of an authority that is not known here"},
		"another name":           {"https://127.0.0.1" + good[len("https://localhost"):], pool, CertificateUnknown, "for another host: localhost"},
		"an old certificate":     {expired, expiredPool, CertificateUnknown, "certificate has expired"},
		"an old TLS":             {old, oldPool, commands.Unreachable, "protocol version"},
		"no TLS":                 {"https" + plain.URL[len("http"):], nil, commands.Unreachable, "does not speak TLS"},
		"nothing that listens":   {"https://127.0.0.1:1", nil, commands.Unreachable, "nothing listens there"},
		"a name that is nowhere": {"https://nowhere.invalid", nil, commands.Unreachable, "there is no host nowhere.invalid"},
	} {
		err := NewRemoteClient(Remote{Context: "lab", URL: tt.url, Token: "smt_secret", Authority: tt.pool}).Do(t.Context(), "GET", "/", nil, nil)

		require.Equal(t, tt.code, commands.CodeOf(err), "%s: %v", name, err)
		if err != nil {
			require.ErrorContains(t, err, tt.says, name)
			require.ErrorContains(t, err, "the hub at "+tt.url+" (context lab)", name)
			require.NotContains(t, err.Error(), "smt_secret")
		}
	}
}
