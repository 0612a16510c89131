package store_test

import (
	"context"
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
