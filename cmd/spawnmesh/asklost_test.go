package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
)

// A question that its spoke does not know any more, as its database was put back, is asked once more by who waits for its answer, and gets
// the one that the hub has given.
func TestAQuestionThatARestoreLostIsAskedAgain(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, s, dir := hand{t: t, dir: m.Hub.Dir}, m.Spokes["attic"], t.TempDir()
	restart := func(from, to string) {
		require.NoError(t, s.Stop(t.Context()))
		require.NoError(t, os.RemoveAll(filepath.Join(s.Dir, to)))
		out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(s.Dir, from), filepath.Join(s.Dir, to)).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	id := h.spawn("--spoke", "attic", "--", "sh", "-c", "cd "+dir+"; while [ ! -e go ]; do sleep 0.01; done; echo got $("+program+" worker ask 'deploy now?' --key deploy --option allow --option deny)")
	h.until(id, func(v hub.AgentView) bool { return v.State == commands.Running })
	restart("pg", "backup")
	require.NoError(t, s.Start(t.Context()))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	h.until(id, func(v hub.AgentView) bool { return v.State == commands.AwaitingInput })
	q := strings.Fields(h.do("inbox"))[6]
	restart("backup", "pg")
	h.do("answer", q, "--option", "allow")

	require.NoError(t, s.Start(t.Context()))

	require.Equal(t, commands.Completed, h.ends(id).State)
	require.Contains(t, h.do("logs", id, "-f"), "got allow\n")
}
