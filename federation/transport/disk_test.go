//go:build unix

package transport

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// fillDisk lets no file of this process grow until the returned function is
// called. To a server that is a full disk, under another error number.
func fillDisk(t *testing.T) (free func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	free = func() {
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
		signal.Reset(syscall.SIGXFSZ)
	}
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 0, Max: limit.Max}))
	return free
}

// apart runs the calling test in a process of its own, because the limit is the
// whole process's, test log included. It reports whether this is that process.
func apart(t *testing.T) bool {
	t.Helper()
	const here = "SPAWNMESH_TEST_APART"
	if os.Getenv(here) == t.Name() {
		return true
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), here+"="+t.Name())
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	return false
}

func TestAHubRecoversFromAFullDisk(t *testing.T) {
	if !apart(t) {
		return
	}
	log, lines := newTestLog(t)
	h := startHub(t, func(h *Hub) {
		h.Log = log
		h.prepare()
		h.engine.every = 250 * time.Millisecond // a server under load takes a while to make a queue
	})
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueRun, "c-0")))
	requireSent(t, k.Publish(t.Context(), events("r-0")))

	free := fillDisk(t)
	t.Cleanup(free)
	brief, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, h.Publish(brief, spawns("attic", commands.QueueRun, "c-1"))[0], ErrUnavailable)
	require.ErrorIs(t, h.Healthy(t.Context()), ErrUnavailable)
	eventually(t, func() bool { return strings.Contains(lines.String(), "takes no writes") }, "a line in the log")
	require.NotContains(t, lines.String(), "restarted")
	free()
	began := time.Now()
	eventually(t, func() bool { return h.Healthy(t.Context()) == nil && k.State().Up }, "recovery")
	t.Logf("recovered in %v", time.Since(began))

	requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueRun, "c-1")))
	requireSent(t, k.Publish(t.Context(), events("r-1")))
	var cmds basket[Command]
	var reports basket[Report]
	run(t, func(ctx context.Context) error { return k.Commands(ctx, commands.QueueRun, most(10), cmds.add) })
	run(t, h.reports("attic", &reports))
	require.Equal(t, []string{"c-0", "c-1"}, commandIDs(cmds.await(t, 2)))
	require.Equal(t, []string{"r-0", "r-1"}, reportIDs(reports.await(t, 2)))
	require.Equal(t, 1, strings.Count(lines.String(), "server was restarted"))
}
