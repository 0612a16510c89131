package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// A receiver takes what webhooks are told, on this machine, for all of them.
type receiver struct {
	address *net.TCPAddr
	dir     string // of its certificate
	server  *http.Server

	mu   sync.Mutex // guards the rest
	told int
	late []float64 // from the change until it is here, ms
}

// receive starts a receiver.
func receive() (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for webhooks: %w", err)
	}
	r := &receiver{address: l.Addr().(*net.TCPAddr)}
	cert, err := r.certify()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	r.server = &http.Server{Handler: http.HandlerFunc(r.take), ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})) }()
	return r, nil
}

// certify makes a certificate of its own, and writes it where hubs may read it.
func (r *receiver) certify() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making the key of the receiver: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, IPAddresses: []net.IP{r.address.IP},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making the certificate of the receiver: %w", err)
	}
	if r.dir, err = os.MkdirTemp("", "spawnmesh-bench-"); err != nil {
		return tls.Certificate{}, fmt.Errorf("making a directory for the certificate: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(r.ca(), text, 0o600); err != nil {
		return tls.Certificate{}, fmt.Errorf("writing the certificate of the receiver: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func (r *receiver) ca() string { return filepath.Join(r.dir, "receiver.pem") }

func (r *receiver) close() error { return errors.Join(r.server.Close(), os.RemoveAll(r.dir)) }

// take takes one delivery. Signatures are not verified: the processor is that of the hub.
func (r *receiver) take(w http.ResponseWriter, q *http.Request) {
	var b struct{ Timestamp time.Time }
	text, err := io.ReadAll(io.LimitReader(q.Body, 1<<20))
	if err != nil || json.Unmarshal(text, &b) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told++
	r.late = append(r.late, ms(time.Since(b.Timestamp)))
}

// taken is how many deliveries came since the last call, and how late they were.
func (r *receiver) taken() (int, []float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	told, late := r.told, r.late
	r.told, r.late = 0, nil
	return told, late
}

// quiet is how long nothing comes once all is delivered: a delivery that failed is tried again after less.
const quiet = 10 * time.Second

// drained waits until nothing is delivered any more: what was left by one measurement is not of the next one.
func (r *receiver) drained(ctx context.Context) error {
	return fleet.Poll(ctx, 10*time.Minute, "waiting for the deliveries that are left", func() (bool, error) {
		r.taken()
		err := wait.For(ctx, quiet)
		left, _ := r.taken()
		return left == 0, err
	})
}

// create makes n webhooks of a hub that all go to r.
func (r *receiver) create(ctx context.Context, m *fleet.Mesh, n int) error {
	for i := range n {
		h := map[string]any{"name": fmt.Sprintf("hook-%d", i), "url": fmt.Sprintf("https://%s/", r.address), "port": r.address.Port}
		if err := m.Ctl.Do(ctx, http.MethodPost, "/api/v1/webhooks", h, nil); err != nil {
			return fmt.Errorf("creating a webhook: %w", err)
		}
	}
	return nil
}
