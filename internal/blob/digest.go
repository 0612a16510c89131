package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// A Digest is the SHA-256 of the bytes of a blob, and its name.
type Digest [sha256.Size]byte

const prefix = "sha256-"

// Of returns the digest of text.
func Of(text []byte) Digest { return sha256.Sum256(text) }

// Parse reads "sha256-" and 64 lower-case hex digits.
func Parse(text string) (d Digest, err error) {
	digits, ok := strings.CutPrefix(text, prefix)
	if !ok || len(digits) != hex.EncodedLen(len(d)) || strings.ToLower(digits) != digits {
		return Digest{}, fmt.Errorf(`%.80q is no digest: it is "sha256-" and 64 hex digits in lower case`, text)
	}
	if _, err := hex.Decode(d[:], []byte(digits)); err != nil {
		return Digest{}, fmt.Errorf(`%.80q is no digest: %w`, text, err)
	}
	return d, nil
}

// String returns what [Parse] reads.
func (d Digest) String() string { return prefix + d.hex() }

func (d Digest) hex() string { return hex.EncodeToString(d[:]) }

// MarshalText returns what [Parse] reads.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is [Parse].
func (d *Digest) UnmarshalText(text []byte) (err error) {
	*d, err = Parse(string(text))
	return err
}
