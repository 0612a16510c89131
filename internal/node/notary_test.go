package node

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// An audit that was changed is said to be so until it is found whole, and once, whatever else fails in between.
func TestAChangedAuditIsNotForgotten(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	n := &Node{Log: slog.New(slog.NewTextHandler(&said, nil)), notary: &notary{}}
	changed, down := commands.Refuse(commands.AuditBroken, "row 7 was changed"), errors.New("the database is down")
	for i, step := range []struct {
		err   error
		known bool
	}{{nil, false}, {down, false}, {changed, true}, {down, true}, {down, true}, {changed, true}, {nil, false}} {
		n.noteAudit(t.Context(), step.err)

		require.Equal(t, step.known, n.notary.broken.Load() != nil, "step %d: %v", i, step.err)
	}
	require.Equal(t, 1, strings.Count(said.String(), "the audit was changed"))

	n.noteAudit(t.Context(), changed)

	require.Equal(t, 2, strings.Count(said.String(), "the audit was changed"), "after it was found whole")
}
