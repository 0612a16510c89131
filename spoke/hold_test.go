package spoke

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What could be claimed is not while its host starts nothing, and then nobody could have it.
func TestWhyAHostStartsNothing(t *testing.T) {
	t.Parallel()
	ready := func() backlog.Why { return backlog.Why{Claimable: true, By: []backlog.Claimer{{Owner: "this one"}}} }
	for name, tt := range map[string]struct {
		desk Desk
		says []string
	}{
		"no spoke":             {Desk{dir: "D", lacks: func() string { return "" }}, []string{"no spoke runs here"}},
		"no spoke and no room": {Desk{dir: "D", lacks: func() string { return "is full" }}, []string{"no spoke runs here", "the disk of the data directory is full"}},
		"no room":              {Desk{dir: "D", lacks: func() string { return "is full" }, live: &live{}, slots: 1}, []string{"the disk of the data directory is full"}},
		"no slot":              {Desk{dir: "D", lacks: func() string { return "" }, live: &live{}}, []string{"no slot is free, of 0"}},
		"nothing":              {Desk{dir: "D", lacks: func() string { return "" }, live: &live{}, slots: 1}, nil},
	} {
		why := ready()
		tt.desk.hold(&why, nil)
		var said []string
		for _, r := range why.Reasons {
			said = append(said, r.Text)
			require.NotEmpty(t, r.Fix)
		}
		require.Equal(t, tt.says, said, name)
		require.Equal(t, tt.says == nil, why.Claimable, name)
		require.Equal(t, tt.says == nil, len(why.By) == 1, name)
	}
}
