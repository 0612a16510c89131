package hub

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Of one spoke 256 programs that it refuses are remembered; with one more those before are forgotten, and so they are with its
// next policy.
func TestHowManyRefusalsAreRemembered(t *testing.T) {
	t.Parallel()
	var f refusers
	runs := func(n int) *commands.Spawn {
		return &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{strconv.Itoa(n)}}
	}
	note := func(conn, policy string, n int) {
		f.note(runs(n), store.Refusal{Conn: conn, Policy: policy, Code: commands.Policy})
	}
	remembered := func(policy string) (list int) {
		for n := range maxRefused + 1 {
			if f.refuses("attic", policy, runs(n)) {
				list++
			}
		}
		return list
	}
	note("cellar", "v1", 0)
	for n := range maxRefused {
		note("attic", "v1", n)
	}
	require.Equal(t, 256, remembered("v1"))

	note("attic", "v1", maxRefused)
	require.Equal(t, 1, remembered("v1"))
	require.True(t, f.refuses("attic", "v1", runs(maxRefused)))

	note("attic", "v2", 0)
	require.Equal(t, []int{0, 1}, []int{remembered("v1"), remembered("v2")})
	require.True(t, f.refuses("cellar", "v1", runs(0)))
}
