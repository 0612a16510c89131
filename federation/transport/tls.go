package transport

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"
)

// Certificate makes the self-signed certificate under which a hub serves,
// from its TLS key (Ed25519, or ECDSA on P-256). The same key always has the
// same pin, so nothing but the key needs to be kept.
func Certificate(key crypto.Signer) (tls.Certificate, error) {
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("encoding the TLS key: %w", err)
	}
	sum := sha256.Sum256(spki)
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(sum[:16]),
		Subject:      pkix.Name{CommonName: "spawnmesh hub"},
		// Nobody reads these dates: the pin is the whole of the trust, and
		// ends when the key is replaced.
		NotBefore:   time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:    time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making the TLS certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading the TLS certificate back: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Pin is what a peer must know of cert to trust it: the SHA-256 of its public
// key in SubjectPublicKeyInfo form, base64url without padding. It is empty
// for a certificate that does not parse.
func Pin(cert tls.Certificate) string {
	leaf := cert.Leaf
	if leaf == nil {
		if len(cert.Certificate) == 0 {
			return ""
		}
		var err error
		if leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return ""
		}
	}
	return pinOf(leaf)
}

func pinOf(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func checkPins(pins []string) error {
	if len(pins) == 0 {
		return errors.New("no pin of the hub's key")
	}
	for _, pin := range pins {
		if b, err := base64.RawURLEncoding.Strict().DecodeString(pin); err != nil || len(b) != sha256.Size {
			return fmt.Errorf("pin %q is not a SHA-256 in base64url", pin)
		}
	}
	return nil
}

func serverTLS(cert tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{cert},
		SessionTicketsDisabled: true,
	}
}

// clientTLS trusts whoever proves to hold a pinned key, and nobody else.
func clientTLS(pins []string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // names and chains say nothing here; VerifyConnection decides
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !slices.Contains(pins, pinOf(s.PeerCertificates[0])) {
				return ErrPin
			}
			return nil
		},
	}
}

// exporterLabel names what both ends of a joining connection derive from its
// TLS secrets, to tie what they sign to this connection.
const exporterLabel = "EXPORTER-spawnmesh-join"

func exporter(s tls.ConnectionState) ([]byte, error) {
	value, err := s.ExportKeyingMaterial(exporterLabel, nil, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the channel binding: %w", err)
	}
	return value, nil
}

// hostPort reads an address of the form host:port, tls://host:port or
// nats://host:port. All three mean TLS from the first byte.
func hostPort(address string) (string, error) {
	rest := strings.TrimPrefix(strings.TrimPrefix(address, "nats://"), "tls://")
	host, port, err := net.SplitHostPort(rest)
	if err != nil || host == "" || port == "" || strings.ContainsAny(rest, "/,@?#") {
		return "", fmt.Errorf("hub address %q is not of the form host:port", address)
	}
	return net.JoinHostPort(host, port), nil
}

// dialTLS connects to address and has checked the pin when it returns.
// Nothing is sent after a handshake with the wrong key.
func dialTLS(ctx context.Context, address string, pins []string) (*tls.Conn, error) {
	d := tls.Dialer{Config: clientTLS(pins)}
	conn, err := d.DialContext(ctx, "tcp", address)
	switch {
	case errors.Is(err, ErrPin):
		return nil, fmt.Errorf("dialling %s: %w", address, ErrPin)
	case err != nil:
		return nil, fmt.Errorf("dialling %s: %w", address, err)
	}
	return conn.(*tls.Conn), nil
}
