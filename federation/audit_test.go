package federation

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Each time that a peer begins to refuse the audit of this instance is said, once.
func TestEachRefusalOfTheAuditIsSaidOnce(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	x := &Exchange{log: slog.New(slog.NewTextHandler(&said, nil)), witness: witness{read: true}}
	for i, step := range []struct {
		head  *commands.AuditHead
		times int // it was said
	}{
		{&commands.AuditHead{}, 0},
		{&commands.AuditHead{Refused: "rows are gone"}, 1},
		{nil, 1},
		{&commands.AuditHead{Refused: "rows are gone"}, 1},
		{&commands.AuditHead{}, 1},
		{&commands.AuditHead{Refused: "rows are gone"}, 2},
	} {
		require.NoError(t, x.witnessAudit(t.Context(), nil, step.head))

		require.Equal(t, step.times, strings.Count(said.String(), "the peer refuses the audit of this instance"), "step %d", i)
	}
}
