package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// An invite can be shown at once, however many there were before.
func TestANewInviteIsKnownBesideManyOldOnes(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	require.NoError(t, s.Exec(`INSERT INTO invites (id, name, proof_key, uses_left, expires_at, created_by, created_at)
		SELECT gen_random_uuid(), 'old', 'k', 1, now(), 'test', now() - n * interval '1 second' FROM generate_series(1, 10000) AS n`))
	id := storetest.NewID()
	_, err := s.DB.AddInvite(t.Context(), store.Invite{ID: id, Name: "attic", ProofKey: []byte("k"), TTL: time.Minute, Uses: 1, Actor: "test"})
	require.NoError(t, err)

	keys, err := s.DB.InviteKeys(t.Context())

	require.NoError(t, err)
	require.Len(t, keys, 10_000)
	require.Equal(t, "attic", keys[id].Name)
}

func TestTheNewestRowsOfTheAudit(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	for _, action := range []string{"first", "second", "third"} {
		require.NoError(t, s.DB.Audit(t.Context(), store.AuditRow{Actor: "ann", Action: action, Object: "x"}))
	}
	for what, object := range map[string]string{"of all": "", "of one thing": "x"} {
		rows, err := s.DB.AuditTrail(t.Context(), object, 0, 2)

		require.NoError(t, err, what)
		require.Len(t, rows, 2, what)
		require.Equal(t, []string{"second", "third"}, []string{rows[0].Action, rows[1].Action}, what)
		rows, err = s.DB.AuditTrail(t.Context(), object, rows[1].Seq, 1)
		require.NoError(t, err, what)
		require.Equal(t, "second", rows[0].Action, what)
	}
}
