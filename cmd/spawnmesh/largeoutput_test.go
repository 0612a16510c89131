package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// mostOfAShim is what a shim may take of memory, whatever its agent writes, in KiB.
const mostOfAShim = 32 << 10

// An agent that writes one binary line without an end, of SPAWNMESH_OUTPUT_BYTES, and closes its outputs then is still known to run, by what it does after that. Its
// shim keeps head and tail, counts the rest, and stays small.
func TestTheShimOfAnEndlessLineStaysSmall(t *testing.T) {
	t.Parallel()
	size := int64(200_000_000)
	if text := os.Getenv("SPAWNMESH_OUTPUT_BYTES"); text != "" {
		var err error
		size, err = strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
	}
	m := startMesh(t)
	h, notes := hand{t: t, dir: m.Hub.Dir}, t.TempDir()
	note := func(name string) string { return filepath.Join(notes, name) }
	id := h.spawn("--spoke", "attic", "--", "/bin/sh", "-c", `echo $PPID >"$0/shim"; head -c "$1" /dev/zero; exec >&- 2>&-; echo >"$0/closed"; until [ -e "$0/end" ]; do sleep 0.05; done`,
		notes, strconv.FormatInt(size, 10))
	require.NoError(t, fleet.Poll(t.Context(), 10*time.Minute, "waiting for the end of the line", func() (bool, error) {
		_, err := os.Stat(note("closed"))
		return err == nil, ignoreAbsent(err)
	}))

	pid, err := os.ReadFile(note("shim"))
	require.NoError(t, err)
	exe, err := os.Readlink(filepath.Join("/proc", strings.TrimSpace(string(pid)), "exe"))
	require.NoError(t, err)
	require.Equal(t, program, exe)
	status, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "status"))
	require.NoError(t, err)
	peak := regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`).FindSubmatch(status)
	require.NotNil(t, peak, "%s", status)
	kib, err := strconv.Atoi(string(peak[1]))
	require.NoError(t, err)
	require.Less(t, kib, mostOfAShim, "KiB at most")
	for range 2 { // that it runs may be known from before, and what is told of it first may be, too
		was := h.until(id, func(v hub.AgentView) bool { return v.State == commands.Running }).CPUMS
		h.until(id, func(v hub.AgentView) bool { return v.State == commands.Running && v.CPUMS > was })
	}

	require.NoError(t, os.WriteFile(note("end"), nil, 0o600))

	v := h.ends(id)
	require.Equal(t, commands.Completed, v.State)
	r, ok := commands.ReadResult(v.Result)
	require.True(t, ok)
	require.Equal(t, size, r.Stdout.Bytes)
	require.Positive(t, r.Stdout.Dropped)
	require.Less(t, r.Stdout.Size, size)
	t.Logf("the shim took %d KiB at most beside %d bytes of output", kib, size)
}
