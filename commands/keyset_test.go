package commands

import (
	"crypto/ed25519"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/signing"
)

// keysOf are n keys of a set: the first one signs.
func keysOf(t *testing.T, n int) (list []SetKey) {
	t.Helper()
	for i := range n {
		pub, _, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		list = append(list, SetKey{Pub: []byte(pub), ForMS: int64(i) * 1000})
	}
	return list
}

// A set that names too many keys, one twice, or one for too long is refused before anything of it is looked at.
func TestKeySetsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *KeySet){
		"of no version":         func(s *KeySet) { s.Version = 0 },
		"without a key":         func(s *KeySet) { s.Keys = nil },
		"too many keys":         func(s *KeySet) { s.Keys = keysOf(t, MaxSetKeys+1) },
		"too many revoked ones": func(s *KeySet) { s.Revoked = make([]signing.KeyID, MaxSetRevoked+1) },
		"one twice":             func(s *KeySet) { s.Keys[1].Pub = s.Keys[0].Pub },
		"none that signs":       func(s *KeySet) { s.Keys[0].ForMS = 1 },
		"two that sign":         func(s *KeySet) { s.Keys[1].ForMS = 0 },
		"one for 10 years":      func(s *KeySet) { s.Keys[1].ForMS = 3650 * 24 * 3600 * 1000 },
		"a weak one":            func(s *KeySet) { s.Keys[0].Pub = make([]byte, ed25519.PublicKeySize) },
		"one that it revokes":   func(s *KeySet) { s.Revoked = []signing.KeyID{signing.KeyIDOf(ed25519.PublicKey(s.Keys[0].Pub))} },
	} {
		s := &KeySet{Version: 1, Keys: keysOf(t, MaxSetKeys)}
		require.NoError(t, s.Validate())
		change(s)
		require.Error(t, s.Validate(), name)
	}
}
