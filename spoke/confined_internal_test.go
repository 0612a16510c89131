package spoke

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/isolation"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// confiner is a spoke with what it needs to confine programs, and nothing else.
func confiner(t *testing.T) *Spoke {
	t.Helper()
	dir := filepath.Join("/dev/shm", "spawnmesh-test-confined-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	require.NoError(t, os.Mkdir(dir, 0o711))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.WriteFile(policy.File(dir), []byte(policy.Presets["open"]), 0o600))
	live, err := policy.Open(dir)
	require.NoError(t, err)
	s := &Spoke{Dir: dir, Policy: live, isolates: isolation.Open(dir, 0)}
	t.Cleanup(func() { require.NoError(t, s.isolates.Close()) })
	return s
}

// over is an attempt that is over, whose agent was confined at a level.
func (s *Spoke) over(t *testing.T, level string) *run {
	t.Helper()
	r := &run{dir: filepath.Join(s.Dir, "agents", strings.ReplaceAll(level, "+", "-"), "1"), level: level, leave: make(chan struct{})}
	require.NoError(t, r.makeDirs())
	if level != commands.IsolationNone {
		c, err := s.isolates.Take(level, r.own(), isolation.Reach{})
		require.NoError(t, err)
		r.user = c.User
		t.Cleanup(func() { s.isolates.Release(r.user, r.own()) })
	}
	return r
}

// A program that looks at what an agent has left is confined as the agent was: it has its user and its files, and neither the host's files
// nor the network.
func TestAProgramIsConfinedAsTheAgentWas(t *testing.T) {
	t.Parallel()
	s := confiner(t)
	held := 0
	for _, level := range commands.IsolationLevels {
		if level == commands.IsolationNone || s.isolates.Fault(level) != nil {
			continue
		}
		held++
		r := s.over(t, level)
		out := filepath.Join(r.own().Temp, "out")

		err := s.runConfined(t.Context(), r, []string{"/bin/sh", "-c", `{ id -u; pwd; cat "$1" 2>/dev/null || echo denied; } >"$0"`, out, policy.File(s.Dir)}, time.Minute)

		require.NoError(t, err, level)
		said, err := os.ReadFile(out)
		require.NoError(t, err)
		user := int64(os.Geteuid())
		if r.user.ID != 0 {
			user = r.user.ID
		}
		require.Equal(t, strconv.FormatInt(user, 10)+"\n"+r.own().Work+"\ndenied\n", string(said), level)
	}
	require.Positive(t, held, "no level of isolation holds on this host")
}

// What goes wrong is said in the words of the program; what takes too long is ended; where it is not known how the agent was confined nothing is
// run, and neither is anything in a place that the agent has put a link in.
func TestAConfinedProgramThatFails(t *testing.T) {
	t.Parallel()
	s := confiner(t)
	r := s.over(t, commands.IsolationNone)
	sh := func(script string, within time.Duration) error {
		return s.runConfined(t.Context(), r, []string{"/bin/sh", "-c", script}, within)
	}

	require.ErrorContains(t, sh("echo no such branch >&2; exit 3", time.Minute), "sh, as the agent was confined: it ended with exit code 3: no such branch")
	require.ErrorContains(t, sh("sleep 60", time.Second), "timeout: still running after 1s")
	require.NoError(t, sh("true", time.Minute), "after one that was ended")

	level := r.level
	r.level = ""
	require.ErrorContains(t, s.runConfined(t.Context(), r, []string{"/bin/true"}, time.Minute), "level")
	r.level = level

	require.NoError(t, os.Remove(r.own().Work))
	require.NoError(t, os.Symlink(s.Dir, r.own().Work))
	require.ErrorContains(t, sh("touch here", time.Minute), "working directory")
	require.NoFileExists(t, filepath.Join(s.Dir, "here"))
}

// What a process that stopped has begun is ended before it is begun again.
func TestAConfinedProgramOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	s := confiner(t)
	r := s.over(t, commands.IsolationNone)
	pidFile := filepath.Join(r.own().Temp, "pid")
	ctx, stop := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		left <- s.runConfined(ctx, r, []string{"/bin/sh", "-c", `echo $$ >"$0.new"; mv "$0.new" "$0"; exec sleep 60`, pidFile}, time.Minute)
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(pidFile); return err == nil }, 20*time.Second, 10*time.Millisecond)
	stop()
	require.ErrorIs(t, <-left, context.Canceled)
	text, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	proc := filepath.Join("/proc", strings.TrimSpace(string(text)), "comm")
	require.FileExists(t, proc, "it goes on, under its shim")

	require.NoError(t, s.runConfined(t.Context(), r, []string{"/bin/true"}, time.Minute))

	require.NoFileExists(t, proc)
}
