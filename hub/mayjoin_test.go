package hub

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// Whoever asks for invites that are not there costs one query a second; an invite
// that another process made is known within that time.
func TestUnknownInvitesAreLookedForOnceASecond(t *testing.T) {
	t.Parallel()
	keys, err := signing.CreateKeys(filepath.Join(t.TempDir(), "keys"))
	require.NoError(t, err)
	db, err := store.Open(t.Context(), store.Config{URL: pgtest.URL(t), Self: keys.InstanceID(), Signer: keys.Signing})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	const id, none = "0193a3c0-2222-7aaa-8bbb-00000000000a", "0193a3c0-2222-7aaa-8bbb-00000000000b"
	var k inviteKeys
	_, known := k.get(db, id)
	require.False(t, known)
	first := k.last
	_, err = db.AddInvite(t.Context(), store.Invite{ID: id, Name: "attic", ProofKey: []byte("key"), TTL: time.Minute, Uses: 1, Actor: "another process"})
	require.NoError(t, err)

	for began := time.Now(); !known; {
		_, there := k.get(db, none)
		require.False(t, there)
		_, known = k.get(db, id)
		require.Less(t, time.Since(began), time.Minute)
	}

	require.GreaterOrEqual(t, k.last.Sub(first), time.Second, "the next look at the table")
	v, _ := k.get(db, id)
	require.Equal(t, store.Invite{ID: id, Name: "attic", ProofKey: []byte("key")}, v)
}
