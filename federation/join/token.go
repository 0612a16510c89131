package join

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/signing"
)

// A Token lets one unknown instance ask a hub for a connection. It says where
// the hub is and which keys it must show; its secret never goes over the wire.
type Token struct {
	Address string             `json:"address"` // host:port of the hub's link
	Hub     signing.InstanceID `json:"hub"`
	Pin     string             `json:"pin"` // of the hub's TLS key, see [Pin]
	ID      string             `json:"id"`  // of the invite
	Name    string             `json:"name"`
	Expires int64              `json:"expires"` // ms since 1970

	secret *[32]byte // behind a pointer: fmt prints none of it, also where the token is part of something
}

const tokenPrefix = "amj1."

// ErrToken says that a text is not a join token, or not all of one.
var ErrToken = errors.New("this is not a complete join token; copy the whole line that spawnmesh invite printed")

// NewToken completes t with a random secret.
func NewToken(t Token) Token {
	t.secret = new([32]byte)
	rand.Read(t.secret[:])
	return t
}

// ProofKey is what both sides derive from the secret; a hub stores it in place
// of the secret.
func (t Token) ProofKey() []byte {
	sum := sha256.Sum256(append([]byte("spawnmesh-join-proof-v1"), t.secret[:]...))
	return sum[:]
}

// Text is the token in the one line that a person carries to the other host.
// It is a secret until it is used.
func (t Token) Text() (string, error) {
	raw, err := signing.EncodeBody(t)
	if err != nil {
		return "", err
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(raw) + "." + base64.RawURLEncoding.EncodeToString(t.secret[:]), nil
}

// String keeps the secret out of logs.
func (t Token) String() string { return "join token " + t.ID }

// GoString keeps the secret out of %#v.
func (t Token) GoString() string { return t.String() }

// forms are compiled when a token is read: once in the life of a spoke.
var forms = sync.OnceValue(func() (f struct{ pin, address, name *regexp.Regexp }) {
	f.pin = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	f.address = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}$`)
	f.name = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	return f
})

// ValidAddress reports whether a token can name address, as host:port.
func ValidAddress(address string) bool {
	_, port, _ := strings.Cut(address[strings.LastIndex(address, "]")+1:], ":")
	n, err := strconv.Atoi(port)
	return err == nil && n > 0 && n < 1<<16 && forms().address.MatchString(address)
}

// ParseToken reads a token's text; white space around it is fine.
func ParseToken(text string) (Token, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	head, tail, two := strings.Cut(rest, ".")
	if !ok || !two || len(text) > 4096 {
		return Token{}, ErrToken
	}
	raw, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return Token{}, ErrToken
	}
	var t Token
	if err := signing.DecodeBody(raw, &t); err != nil {
		return Token{}, ErrToken
	}
	secret, err := base64.RawURLEncoding.DecodeString(tail)
	if err != nil || len(secret) != 32 {
		return Token{}, ErrToken
	}
	t.secret = (*[32]byte)(secret)
	if !t.Hub.Valid() || !forms().pin.MatchString(t.Pin) || !signing.ValidUUID(t.ID) || !ValidAddress(t.Address) || !forms().name.MatchString(t.Name) {
		return Token{}, ErrToken
	}
	// One spelling only: what was altered on the way must not pass for the same.
	if again, err := t.Text(); err != nil || again != strings.TrimSpace(text) {
		return Token{}, ErrToken
	}
	return t, nil
}

// MaxLife is how long a token can be used at most.
const MaxLife = 24 * time.Hour

// Left is how long the token can still be used by this host's clock; negative
// when its time has passed. More than [MaxLife] says that the clock is behind
// the hub's by the rest.
func (t Token) Left(now time.Time) time.Duration { return time.UnixMilli(t.Expires).Sub(now) }
