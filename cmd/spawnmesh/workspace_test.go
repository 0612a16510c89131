package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// Workspaces are listed at rest and where an instance runs; a token for one of them does not learn of others.
func TestWorkspacesAreListed(t *testing.T) {
	t.Parallel()
	rests := fresh(t)
	require.Contains(t, rests.run("", "backlog", "create", "--id", "A1", "--title", "first").out, "A1")
	rests.do("backlog", "create", "--id", "A2", "--title", "waits", "--depends-on", "A1")
	rests.do("backlog", "create", "--id", "B1", "--title", "elsewhere", "--workspace", "zoo")
	rests.do("backlog", "create", "--id", "C1", "--title", "over", "--workspace", "barn")
	rests.do("backlog", "cancel", "C1", "--workspace", "barn", "--reason", "x")

	require.Equal(t, "WORKSPACE  READY\nbarn       0\nmain       1\nzoo        1\n", rests.do("workspace", "list"))
	require.Equal(t, "barn\nmain\nzoo\n", rests.do("workspace", "list", "-o", "name"))

	m := startHub(t, "--api", "127.0.0.1:0")
	h := hand{t: t, dir: m.Hub.Dir}
	require.Contains(t, h.run("", "workspace", "list").err, "no workspaces yet; the first task makes one: spawnmesh --data-dir "+h.dir+" backlog create --title TEXT")
	h.do("backlog", "create", "--title", "elsewhere", "--workspace", "zoo")
	require.Equal(t, "WORKSPACE  READY\nzoo        1\n", h.do("workspace", "list"))
	at := hasSaid(t, m.Hub, apiAt)
	require.NotNil(t, at)
	o := away{t, t.TempDir()}
	for name, workspace := range map[string]string{"all": "*", "one": "zoo"} {
		h.do("token", "create", "--name", name, "--role", string(api.Viewer), "--workspace", workspace, "--out", o.config+"/"+name)
		o.do("context", "add", name, "--url", "http://127.0.0.1:"+at[2], "--token-file", o.config+"/"+name)
	}
	require.Equal(t, "zoo\n", o.do("--context", "all", "workspace", "list", "-o", "name"))
	s := o.run("", "--context", "one", "workspace", "list")
	require.Equal(t, exitUntrusted, s.code, s.err)
	require.Contains(t, s.err, "is about the whole instance")
}
