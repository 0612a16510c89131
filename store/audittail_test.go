package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// The newest rows are held against the checkpoint, wherever the part begins; what does not fit is named.
func TestTheEndOfTheAuditIsHeldAgainstItsCheckpoint(t *testing.T) {
	t.Parallel()
	wipe := `DELETE FROM audit_leaves WHERE leaf > 95; DELETE FROM audit WHERE seq > 96`
	for name, tt := range map[string]struct{ sql, why string }{
		"whole":             {`SELECT 1`, ""},
		"a row changed":     {`UPDATE audit SET why = 'nothing' WHERE seq = 100`, "row 100 (test.row by ann) is not what it was"},
		"a row before that": {`UPDATE audit SET why = 'nothing' WHERE seq = 50`, ""},
		"the last rows cut": {wipe, "leaves of the checkpoint"},
		"a row deleted":     {`DELETE FROM audit WHERE seq = 100`, "row 100 is gone, and retention has removed none"},
		"the tree changed":  {`UPDATE audit_hashes SET hash = sha256('x') WHERE place <= 126`, "are not those of the checkpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.NewSide(t, 1, 2)
			v, err := s.DB.CheckAuditTail(t.Context(), s.Identity, 10)
			require.NoError(t, err)
			require.Zero(t, v.Of, "nothing was signed")
			audit(t, s, 100)
			c := checkpoint(t, s)
			audit(t, s, 5)
			tamper(t, s, tt.sql)
			for _, most := range []int64{1, 10, 17, 32} {
				v, err = s.DB.CheckAuditTail(t.Context(), s.Identity, most)
				if tt.why == "" {
					require.NoError(t, err)
					require.Equal(t, []int64{most, c.Size}, []int64{v.Leaves, v.Of})
				}
			}
			if tt.why != "" {
				require.Equal(t, commands.AuditBroken, commands.CodeOf(err), "%v", err)
				require.ErrorContains(t, err, tt.why)
			}
			if _, err = s.DB.CheckAuditTail(t.Context(), s.Identity, 1000); name != "whole" {
				require.Error(t, err, "the whole of it")
			}
		})
	}
}
