package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// A digest covers the newest numbers alone, however few of their messages have time left: the walk to one that has could be as long as
// the history. Its receiver compares as many.
func TestADigestLooksAtTheNewestNumbersAlone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		through int64
		from    int64 // of the digest
	}{"the first one is among them": {20_000, 1}, "it is not": {20_001, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			p.Order(t, nil)
			_, err := p.Spoke.DB.TakeIn(t.Context(), p.Spoke.Conn.ID, 20, p.Spoke.Read(t, p.Hub.Due(t)...), nothing)
			require.NoError(t, err)
			require.NoError(t, p.Spoke.Exec(`UPDATE sequences SET stored = int8multirange(int8range(1, $1::bigint + 1))`, tt.through))
			require.NoError(t, p.Hub.Exec(`UPDATE sequences SET last = $1`, tt.through))

			n, err := p.Spoke.DB.Numbering(t.Context(), p.Spoke.Conn.ID, true, nil)

			require.NoError(t, err)
			require.Equal(t, tt.through, n.Stored.Through)
			require.Equal(t, tt.from, n.Digest.From)
			a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, n, 0, 20)
			require.NoError(t, err)
			require.True(t, a.Agrees, a.Differs)
		})
	}
}
