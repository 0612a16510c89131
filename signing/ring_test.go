package signing

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAKeySetIsSignedByTheIdentityKey(t *testing.T) {
	first, identity := seedSigner(t, 2), seedSigner(t, 4)
	envelope, v, now := sealed(t, nil)
	v.Keys[identity.KeyID()] = PeerKey{identity.KeyID(), v.Keys[first.KeyID()].Owner, identity.Public()}
	v.Identity = identity.KeyID()
	m, err := Unseal(envelope, 1)
	require.NoError(t, err)
	h := m.Header
	h.Re = nil
	for name, c := range map[string]struct {
		typ  Type
		by   []*Signer
		want Code
	}{
		"a key set by both":                   {KeySet, []*Signer{first, identity}, ""},
		"a key set by the identity key alone": {KeySet, []*Signer{identity}, ""},
		"a key set by the signing key alone":  {KeySet, []*Signer{first}, KeySetSigner},
		"a heartbeat by the identity key":     {Peer, []*Signer{identity}, ""},
		"a heartbeat by the signing key":      {Peer, []*Signer{first}, ""},
		"another message by the identity key": {Command, []*Signer{identity}, KeyUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := c.by[0].Seal(c.typ, h, []byte("{}"), c.by[1:]...)
			require.NoError(t, err)

			_, err = v.Open(s.Envelope, now)

			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, string(c.want), codeOf(err))
		})
	}
}

func TestSigningKeysComeAndGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	keys, err := CreateKeys(dir)
	require.NoError(t, err)
	next, err := keys.Ring.Make()
	require.NoError(t, err)
	again, err := LoadKeys(dir)
	require.NoError(t, err)
	found, err := again.Ring.Signer(next.KeyID())
	require.NoError(t, err)

	err = keys.Ring.Settle(next.KeyID(), []KeyID{keys.Signing.KeyID()})

	require.NoError(t, err)
	require.Equal(t, next.Public(), found.Public())
	require.NoError(t, keys.Ring.Settle(next.KeyID(), []KeyID{keys.Signing.KeyID()}), "as after a crash in between")
	settled, err := LoadKeys(dir)
	require.NoError(t, err)
	require.Equal(t, next.KeyID(), settled.Signing.KeyID())
	_, err = settled.Ring.Signer(keys.Signing.KeyID())
	require.ErrorContains(t, err, "is missing; restore the key directory")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 4)
	info, err := os.Stat(filepath.Join(dir, signingFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}
