package main

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// A host that has frozen what its hub orders is told so where it looks, with the command that lifts it.
func TestAFreezeOfTheHostIsSaidThere(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	s := hand{t: t, dir: m.Spokes["attic"].Dir}
	for _, scope := range []string{"lane:default", "connection:lab"} {
		s.do("freeze", "--scope", scope, "--reason", "my turn")

		lift := `run: spawnmesh --data-dir \S+ unfreeze --scope ` + scope + ` --reason WHY`
		require.Regexp(t, `(?m)^trouble +nothing that it orders is started: frozen here by uid:\d+: my turn \(since \S+ \S+\); `+lift+`$`, s.do("connections", "show", "lab"))
		require.Regexp(t, `(?m)^lab: nothing that it orders is started: frozen here by uid:\d+: my turn; `+lift+`$`, s.do("connections", "list"))
		require.Regexp(t, `(?m)^hub lab +nothing that it orders is started: frozen here by uid:\d+: my turn; `+lift, s.run("", "doctor").out)
		require.Regexp(t, `^what keeps orders of lab from being done here:\n  nothing that it orders is started: frozen here by uid:\d+: my turn \(since \S+ \S+\)\n      spawnmesh --data-dir \S+ unfreeze --scope `+scope+` --reason WHY\n$`, s.do("why", "lab"))
		var v connectionView
		s.read(&v, 0, "why", "lab")
		require.Equal(t, commands.CauseFreeze, v.Reasons[0].Code)
		s.do("unfreeze", "--scope", scope, "--reason", "over")
	}
	require.Contains(t, s.do("why", "lab"), "nothing of the connection keeps orders of lab from being done here")
	require.NotContains(t, s.do("connections", "list")+s.run("", "doctor").out, "frozen")
}

// What is said of a freeze names what was typed, also where it is set twice, or not at all.
func TestFreezesInWords(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	for _, scope := range []string{"connection:attic", "instance", "lane:slow"} {
		h.refused(exitNotFound, scope+" is not frozen", "unfreeze", "--scope", scope, "--reason", "over")
		h.do("freeze", "--scope", scope, "--reason", "bad deploy")
		require.Regexp(t, `^`+scope+` is frozen already, by uid:\d+ since \S+ \S+: bad deploy; the reason stays, and nothing was changed\n$`, h.do("freeze", "--scope", scope, "--reason", "another"))
		h.do("unfreeze", "--scope", scope, "--reason", "over")
	}
	h.do("lane", "weight", "slow", "2")
	for scope, note := range map[string]string{
		"lane:typo": "nothing is queued or claimed in the lane typo now; what is: spawnmesh --data-dir " + h.dir + " lane list\n",
		"lane:slow": "", "lane:default": "", "workspace": "",
	} {
		require.Equal(t, note, h.run("", "freeze", "--scope", scope, "--reason", "x").err)
	}
	h.refused(exitMisuse, "the others take a name, as in lane:build or connection:attic\n", "freeze", "--scope", "foo", "--reason", "x")
	hasSaid(t, m.Hub, regexp.MustCompile("target=attic"))
}

// Of connections that had a name, and have all ended, the newest is meant.
func TestANameThatWasRevokedTwice(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	h.do("connections", "revoke", "attic", "--reason", "sold", "--yes")
	text, _ := h.invite("attic")
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting until it can join again", func() (bool, error) {
		return s.run(text, "spoke", "join", "--yes").code == 0, nil
	}))

	h.do("connections", "revoke", "attic", "--reason", "sold again", "--yes")

	require.Regexp(t, `(?m)^why +sold again$`, h.do("connections", "show", "attic"))
	require.Contains(t, h.run("", "spawn", "--spoke", "attic", "--", "true").err, "attic is revoked")
	require.Contains(t, h.run("", "kill", "--spoke", "attic", "--reason", "x", "--yes").err, "no open agents are selected")
}
