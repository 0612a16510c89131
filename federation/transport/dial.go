package transport

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

const dialTimeout = 5 * time.Second

// signNonce signs what the server drew to see that we hold the key. The
// server chooses these bytes, so nothing is signed that could be anything
// else than a nonce.
func signNonce(key ed25519.PrivateKey, nonce []byte) ([]byte, error) {
	if !made(string(nonce), 15, 15, alnum+"_-", "") {
		return nil, errors.New("the hub asks for a signature over something that is not a nonce")
	}
	return ed25519.Sign(key, nonce), nil
}

func nkeyLogin(public string, key ed25519.PrivateKey) nats.Option {
	return nats.Nkey(public, func(nonce []byte) ([]byte, error) { return signNonce(key, nonce) })
}

// NKey returns the public key, in the text form that Peer wants, of the link
// key with this 32-byte Ed25519 seed.
func NKey(seed []byte) (string, error) {
	if len(seed) != ed25519.SeedSize {
		return "", fmt.Errorf("the seed of a link key has %d bytes, not %d", len(seed), ed25519.SeedSize)
	}
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	text, err := nkeys.Encode(nkeys.PrefixByteUser, public)
	if err != nil {
		return "", fmt.Errorf("encoding the link key: %w", err)
	}
	return string(text), nil
}

// dialHub opens a connection to a hub whose key is one of pins. The error wraps
// ErrPin, ErrRefused or ErrUnavailable.
func dialHub(ctx context.Context, address string, pins []string, api string, as ...nats.Option) (*natsConn, error) {
	return dialBound(ctx, address, pins, api, func(tls.ConnectionState) ([]nats.Option, error) { return as, nil })
}

// dialBound is dialHub for a login that depends on the connection it is for.
func dialBound(ctx context.Context, address string, pins []string, api string, as func(tls.ConnectionState) ([]nats.Option, error)) (*natsConn, error) {
	host, err := hostPort(address)
	if err != nil {
		return nil, err
	}
	if err := checkPins(pins); err != nil {
		return nil, err
	}
	dialling, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dialTLS(dialling, host, pins)
	if err != nil && !errors.Is(err, ErrPin) {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return nil, err
	}
	login, err := as(conn.ConnectionState())
	if err != nil {
		conn.Close()
		return nil, err
	}
	// What is left, the login, ends with the context too.
	stop := context.AfterFunc(dialling, func() { conn.Close() })
	l, err := openConn(api, func(o ...nats.Option) (*nats.Conn, error) {
		return nats.Connect("tls://"+host, append(append(o, login...),
			nats.SetCustomDialer(dialled{conn}),
			nats.SkipHostLookup(),
			nats.TLSHandshakeFirst(),
			nats.Timeout(dialTimeout),
			nats.PingInterval(15*time.Second),
			nats.MaxPingsOutstanding(2))...)
	})
	stop()
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		err = fmt.Errorf("dialling %s: %w", address, ErrRefused)
	case err != nil:
		err = fmt.Errorf("%w: logging in at %s: %w", ErrUnavailable, address, err)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	l.socket = conn
	return l, nil
}

// dialled hands the NATS client a connection that exists, with TLS on it.
type dialled struct{ conn net.Conn }

func (d dialled) Dial(string, string) (net.Conn, error) { return d.conn, nil }
func (d dialled) SkipTLSHandshake() bool                { return true }
