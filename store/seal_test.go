package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A message that its receiver must refuse is an error of the transaction that decides it.
func TestWhatAPeerMustRefuseIsNotSealed(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	for name, body := range map[string]commands.Body{
		"by the rules of its kind":  &commands.Kill{Task: storetest.NewID()},
		"by those of every message": &commands.RefusedBody{Code: commands.Policy, Why: "cl\uFFFD"},
		"by its size":               &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{strings.Repeat(`"`, 120_000)}},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.Hub.DB.Tx(t.Context(), "sending", func(_ context.Context, tx *store.Tx) error {
				tx.Send(store.Draft{Conn: p.Hub.Conn.ID, Body: body})
				tx.Audit(store.AuditRow{Actor: "test", Action: "test.sent"})
				return nil
			})

			require.ErrorContains(t, err, "that its receiver would refuse")
			require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM outbox`))
			require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'test.sent'`))
		})
	}
}

// After a restore a key set that revokes the key which signs towards the peer is sealed again as
// it was: by the identity key alone. Signed by the revoked key it would be refused for ever.
func TestARevocationIsSealedAgainByTheIdentityAlone(t *testing.T) {
	t.Parallel()
	p := &keySets{Pair: storetest.NewPair(t)}
	require.NoError(t, p.Hub.DB.ChangeKey(t.Context(), store.KeyChange{Revoke: "current", Reason: "stolen", Actor: "test"}))
	_, _, err := p.Hub.DB.TendKeys(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Spoke.Exec(`UPDATE keys SET revoked_at = clock_timestamp() WHERE use = 'signing'`))
	other := commands.Numbering{Stored: commands.Numbers{Through: 2}, Held: []commands.Held{{Seq: 1, SHA256: strings.Repeat("0", 64)}}}

	did, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, other, 0, 20)

	require.NoError(t, err)
	require.Equal(t, 1, did.Renumbered)
	p.Hub.Out.Rewind()
	envelopes := p.Hub.Due(t)
	require.Len(t, envelopes, 1)
	m := p.take(t, envelopes[0])
	require.Empty(t, m.Code, m.Why)
	require.Equal(t, p.Hub.Identity.KeyID(), m.Header.Kid)
}
