// Package token makes and reads the text of tokens for the API of an instance.
//
// A text is smt_<id>_<secret><sum>. The id finds the token, the secret proves it, and the sum tells a
// text that was cut or mistyped from one that is not known. An instance keeps a digest of the text.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"regexp"
	"strings"
)

// ErrText is the error for a text that is no token.
var ErrText = errors.New("it is not a token as it was shown: smt_, an id, _ and 34 characters; it was cut or mistyped")

const (
	idLength  = 12 // 60 bits
	sumLength = 8
)

// form has the id and the secret, which is what [rand.Text] makes.
var form = regexp.MustCompile(`^smt_([a-z2-7]{12})_[A-Z2-7]{26}[0-9a-f]{8}$`)

// maxText is longer than a token, and short enough to be looked at.
const maxText = 128

// A Token is the text of one. It is printed without its secret.
type Token struct {
	ID   string
	text string
}

// New makes a token that nobody can guess.
func New() Token {
	id := strings.ToLower(rand.Text()[:idLength])
	text := "smt_" + id + "_" + rand.Text()
	return Token{id, text + sum(text)}
}

// Parse reads the text of a token.
func Parse(text string) (Token, error) {
	if len(text) > maxText {
		return Token{}, ErrText
	}
	parts := form.FindStringSubmatch(text)
	if parts == nil || sum(text[:len(text)-sumLength]) != text[len(text)-sumLength:] {
		return Token{}, ErrText
	}
	return Token{parts[1], text}, nil
}

func sum(text string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text))) }

// Text returns the whole of it. It is for who made it, and for requests.
func (t Token) Text() string { return t.text }

// Digest returns what an instance keeps. The secret is random: no slow hash has to protect it.
func (t Token) Digest() []byte {
	d := sha256.Sum256([]byte(t.text))
	return d[:]
}

// String returns the token without its secret.
func (t Token) String() string { return "smt_" + t.ID + "_..." }

// GoString is String.
func (t Token) GoString() string { return t.String() }

// LogValue is String, for logs.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }
