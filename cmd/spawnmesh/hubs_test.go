package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// A spoke that runs joins a second hub, by hand: both are listed, both are served,
// and what each may ask for is changed apart.
func TestASecondHubByHand(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	other := startHub(t, "--name", "shop")
	s, h := hand{t: t, dir: m.Spokes["attic"].Dir}, hand{t: t, dir: other.Hub.Dir}
	text, _ := h.invite("attic")

	joined := s.run(text, "spoke", "join", "--yes")

	require.Zero(t, joined.code, joined.err)
	require.Contains(t, joined.out, "joined hub shop as attic")
	require.NotContains(t, joined.err, "then start the spoke", "it runs, and takes up the hub by itself")
	require.NoError(t, other.AwaitLink(t.Context(), "attic"))
	require.NoError(t, fleet.Poll(t.Context(), 30*time.Second, "waiting for the links", func() (bool, error) {
		var list []connectionView
		s.read(&list, 0, "connections", "list")
		return len(list) == 2 && list[0].Linked && list[1].Linked, nil
	}))
	require.Regexp(t, `(?m)^lab +active +up .*\n^shop +active +up `, s.do("connections", "list"))
	require.Contains(t, s.run(text, "spoke", "join", "--yes").err, "this instance has joined that hub already")

	require.Contains(t, s.do("connections", "grant", "shop", "--runtimes", "exec", "--weight", "3", "--expires", "30d"), "shop may now ask for: agent.spawn agent.status agent.kill agent.answer agent.pause agent.review; runtimes exec; weight 3; until 2")
	require.Regexp(t, `(?m)^grant +agent.spawn agent.status agent.kill agent.answer agent.pause agent.review; runtimes exec noop; weight 1$`, s.do("connections", "show", "lab"))
	require.Contains(t, s.do("audit", "list", "--object", "shop"), "connection.grant")
	s.refused(exitMisuse, "nothing is to be changed", "connections", "grant", "shop")
	s.refused(exitMisuse, "weight 1001 is outside 1..1000", "connections", "grant", "shop", "--weight", "1001")
	s.refused(exitMisuse, `no runtime is called "magic"`, "connections", "grant", "shop", "--runtimes", "magic")
	s.refused(exitMisuse, `"soon" is neither a time`, "connections", "grant", "shop", "--expires", "soon")
	h.refused(exitMisuse, "is decided by the host of the spoke", "connections", "grant", "attic", "--weight", "2")
	require.Equal(t, exitRefused, h.run("", "spawn", "--spoke", "attic", "--wait", "--runtime", "noop").code)
	require.Zero(t, h.run("", "spawn", "--spoke", "attic", "--wait", "--", "true").code)
	s.do("connections", "grant", "shop", "--runtimes", "exec,noop", "--expires", "never")
	require.Zero(t, h.run("", "spawn", "--spoke", "attic", "--wait", "--runtime", "noop").code)
	require.Regexp(t, `(?m)^\S+ +shop +completed`, s.do("agents"))
}
