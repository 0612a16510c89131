package signing

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"slices"
)

// The y coordinates, little endian and with the sign bit clear, of the points
// of small order: a signature under such a key verifies for messages that its
// owner never saw. From RFC 8032's curve; C2SP/CCTV lists them in its README.
var smallOrder = [][]byte{
	unhex("0000000000000000000000000000000000000000000000000000000000000000"),
	unhex("0100000000000000000000000000000000000000000000000000000000000000"),
	unhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
	unhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
	unhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
}

// fieldPrime is 2^255-19, little endian.
var fieldPrime = unhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f")

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// AdmitKey checks a foreign key before it enters a key set: 32 bytes, a
// canonical y coordinate, not of small order. It returns a [Rejected] with
// [KeyWeak] otherwise. Keys that passed may be handed to [Verify].
func AdmitKey(pub ed25519.PublicKey) error {
	if len(pub) != ed25519.PublicKeySize {
		return reject(KeyWeak, "an Ed25519 key has %d bytes, not %d", ed25519.PublicKeySize, len(pub))
	}
	y := bytes.Clone(pub)
	y[31] &= 0x7f
	if !lessThanPrime(y) {
		return reject(KeyWeak, "this Ed25519 key is not acceptable (not in canonical form)")
	}
	for _, bad := range smallOrder {
		if bytes.Equal(y, bad) {
			return reject(KeyWeak, "this Ed25519 key is not acceptable (small order)")
		}
	}
	return nil
}

func lessThanPrime(y []byte) bool {
	a, p := slices.Clone(y), slices.Clone(fieldPrime)
	slices.Reverse(a)
	slices.Reverse(p)
	return bytes.Compare(a, p) < 0
}
