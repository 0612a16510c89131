package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/store"
)

// keysByHand changes the key of a hub, and revokes the one from before: it may be
// an old one. The spoke follows by itself, and obeys before and after.
func keysByHand(t *testing.T, _ *fleet.Mesh, h, s hand) {
	var before, after store.KeysView
	h.read(&before, 0, "keys", "list")
	first := string(before.Signing[0].ID)
	require.Regexp(t, `(?m)^this instance +signing +current +\S+ \S+ +`+shortKey(first)+` +attic$`, h.do("keys", "list"))

	rotated := h.run("", "keys", "rotate", "--overlap", "1h")
	require.Regexp(t, `^the new signing key is ed25519:[\w-]{43}\n$`, rotated.out)
	require.Contains(t, rotated.err, "a backup of before lacks this key and is out of date; back up again: spawnmesh --data-dir "+h.dir+" backup DIR\n")
	h.read(&after, 0, "keys", "list")
	second := string(after.Signing[0].ID)
	require.NotEqual(t, first, second)
	require.Greater(t, after.Version, before.Version)
	confirmed(h, second)
	require.Zero(t, h.run("", "spawn", "--spoke", "attic", "--wait", "--", "true").code)
	require.Contains(t, s.do("keys", "list"), shortKey(second), "the peer's keys are listed, too")

	h.refused(exitMisuse, "to revoke a key needs a reason", "keys", "revoke", "current")
	h.refused(exitMisuse, "an old key verifies for", "keys", "rotate", "--overlap", "1s")
	h.refused(exitNotFound, "see: spawnmesh --data-dir "+h.dir+" keys list", "keys", "revoke", "nobodys-key", "--reason", "copied")
	var third store.KeysView
	h.read(&third, 0, "keys", "revoke", shortKey(first), "--reason", "the disk was copied")
	var states []string
	for _, k := range third.Signing {
		states = append(states, k.State)
	}
	require.Equal(t, []string{"current", "old", "revoked"}, states)
	require.Equal(t, "the disk was copied", third.Signing[2].Reason)
	confirmed(h, string(third.Signing[0].ID))
	require.Zero(t, h.run("", "spawn", "--spoke", "attic", "--wait", "--", "true").code)
	h.refused(exitConflict, "was revoked before", "keys", "revoke", first, "--reason", "again")
	for _, done := range []string{"keys.rotated", "keys.revoked", "keys.told", "keys.confirmed"} {
		require.Contains(t, h.do("audit", "list"), done)
	}
}

// confirmed waits until the spoke has confirmed a key of the hub.
func confirmed(h hand, key string) {
	h.t.Helper()
	require.NoError(h.t, fleet.Poll(h.t.Context(), time.Minute, "waiting for the spoke to confirm the key", func() (bool, error) {
		var v store.KeysView
		h.read(&v, 0, "keys", "list")
		return string(v.Signing[0].ID) == key && len(v.Waiting) == 0 && len(v.Signing[0].Peers) == 1, nil
	}))
}

// A key that begins like a flag is shown as it can be typed.
func TestAShortKeyIsNoFlag(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abcdefghijkl", shortKey("ed25519:abcdefghijklmnop"))
	require.Equal(t, "ed25519:-bcdefghijkl", shortKey("ed25519:-bcdefghijklmnop"))
}
