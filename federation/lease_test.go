package federation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A lease that begins anew lets go on what its end has suspended, and nothing that somebody has said since: the connection is known here as
// it was when the heartbeat came.
func TestALeaseThatBeginsAnewUndoesNobodysWord(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		since string // by whom it is suspended meanwhile; "" = by nobody else
		state store.ConnState
		by    string
	}{
		"nobody":   {"", store.Active, "lease"},
		"a person": {"uid:0", store.Suspended, "uid:0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.NewPair(t).Spoke
			suspend := func(by string) store.Connection {
				c, err := s.DB.SetConnectionState(t.Context(), s.Conn.ID, store.Suspended, "not heard", by, nil)
				require.NoError(t, err)
				return c
			}
			known := suspend("lease")
			if tt.since != "" {
				suspend(tt.since)
			}

			require.NoError(t, federation.ResumeLeaseForTest(t.Context(), s.DB, known))

			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM connections WHERE state = $1 AND state_by = $2`, string(tt.state), tt.by))
		})
	}
}
