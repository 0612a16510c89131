package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// A spoke isolates its agents without being told, and says so wherever it is shown.
func TestASpokeIsolatesItsAgents(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"], "--heartbeat", "1s"))
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	level := commands.IsolationUserLandlock
	if os.Geteuid() != 0 {
		level = commands.IsolationLandlock
	}

	id := h.spawn("--spoke", "attic", "--isolation", "landlock", "--", "sh", "-c", "exec 2>/dev/null; cat "+filepath.Join(s.dir, "keys")+"/* "+policy.File(s.dir)+"; "+
		"ls "+s.dir+" "+filepath.Join(s.dir, "run")+"; echo own >file; cat file")
	h.ends(id)

	require.Equal(t, "own\n", h.do("logs", id))
	require.Regexp(t, `(?m)^isolation +`+regexp.QuoteMeta(level)+`$`, h.do("status", id))
	require.Regexp(t, `(?m)^isolation +`+regexp.QuoteMeta(level)+`$`, s.do("status", id))
	require.Regexp(t, `(?m)^isolation +`+regexp.QuoteMeta(level)+`$`, h.do("connections", "show", "attic"))
	require.Contains(t, h.do("connections", "list", "-o", "wide"), level)
	require.Regexp(t, `(?m)^isolation +`+regexp.QuoteMeta(level), s.do("doctor"))
	var v struct{ Isolation string }
	require.NoError(t, json.Unmarshal([]byte(h.do("-o", "json", "status", id)), &v))
	require.Equal(t, level, v.Isolation)
	h.refused(exitMisuse, "--isolation bubble is not a level", "spawn", "--spoke", "attic", "--isolation", "bubble", "--", "true")
	requirePrivate(t, m.Hub.Cmd.Process.Pid)
	requirePrivate(t, m.Spokes["attic"].Cmd.Process.Pid)
}
