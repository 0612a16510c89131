package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A host that has frozen what its hub orders is told so where it looks, with the command that lifts it.
func TestAFreezeOfTheHostIsSaidThere(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	s := hand{t: t, dir: m.Spokes["attic"].Dir}
	for _, scope := range []string{"lane:default", "connection:lab"} {
		s.do("freeze", "--scope", scope, "--reason", "my turn")

		lift := `to lift that: spawnmesh --data-dir \S+ unfreeze --scope ` + scope + ` --reason WHY`
		require.Regexp(t, `(?m)^frozen +here since \S+ \S+ by uid:\d+: my turn; `+lift+`$`, s.do("connections", "show", "lab"))
		require.Regexp(t, `(?m)^lab: nothing that it orders is started: frozen here by uid:\d+: my turn; `+lift+`$`, s.do("connections", "list"))
		require.Regexp(t, `(?m)^hub lab +nothing that it orders is started: frozen here by uid:\d+: my turn; `+lift, s.run("", "doctor").out)
		s.do("unfreeze", "--scope", scope, "--reason", "over")
	}
	require.NotContains(t, s.do("connections", "list")+s.run("", "doctor").out, "frozen")
}
