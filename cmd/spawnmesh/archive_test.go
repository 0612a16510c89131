package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

func TestArchiveByHand(t *testing.T) {
	t.Parallel()
	h := hand{t: t, dir: startMesh(t).Hub.Dir}
	first, second := h.spawn("--spoke", "attic", "--label", "app=web", "--", "true"), h.spawn("--spoke", "attic", "--", "true")
	h.ends(first)
	h.ends(second)

	h.refused(2, "name agents, and so do --older-than and -l", "archive", first, "-l", "app")
	h.refused(2, "no agent is named", "archive")
	require.Contains(t, h.do("archive", first, "-o", "json"), `"archived_at": "`)
	require.Equal(t, second+"\n", h.do("agents", "-o", "name"))
	require.Equal(t, first+"\n", h.do("agents", "--archived", "-o", "name"))
	require.Contains(t, h.do("status", first), "archived")
	h.do("unarchive", first)
	require.Contains(t, h.do("label", first, "ticket=4711", "-o", "json"), `"ticket": "4711"`)
	require.Contains(t, h.do("archive", "-l", "ticket", "-o", "json"), `"archived": 1`)
	require.Contains(t, h.do("archive", "--older-than", "1d", "-o", "json"), `"archived": 0`)
	require.Equal(t, second+"\n", h.do("agents", "-o", "name"))
	h.refused(exitMisuse, "--older-than is above 0", "archive", "--older-than", "0")
	h.refused(exitMisuse, "--older-than is above 0", "backlog", "archive", "--older-than", "0s")
	require.NotContains(t, h.do("why", second), "archived")
	h.do("archive", second)
	require.Contains(t, h.run("", "agents").err, "no agents but those that are archived, 2; list them: spawnmesh --data-dir "+h.dir+" agents --archived\n")
	require.Regexp(t, `(?m)^it is archived, and lists leave it out: spawnmesh .* unarchive `+commands.ShortID(second)+"$", h.do("why", second))
}
