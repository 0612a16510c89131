package node

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A tree is signed at once, and then after a thousand new leaves, or five minutes while there are any.
func TestWhenTheAuditIsSigned(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		size, signed int64
		ago          time.Duration
		due          bool
	}{
		"empty":                   {0, 0, time.Hour, false},
		"at first":                {1, 0, 0, true},
		"nothing new":             {7, 7, time.Hour, false},
		"some new, and soon":      {1006, 7, 5*time.Minute - time.Second, false},
		"many new":                {1007, 7, 0, true},
		"some new, after a while": {8, 7, 5 * time.Minute, true},
	} {
		require.Equal(t, tt.due, dueToSign(tt.size, tt.signed, tt.ago), name)
	}
}

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
