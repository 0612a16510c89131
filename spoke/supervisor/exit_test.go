package supervisor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

func TestExit(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		want   Exit
	}{
		"success":          {"exit 0", Exit{Outcome: Exited, Code: 0}},
		"a code":           {"exit 3", Exit{Outcome: Exited, Code: 3}},
		"the largest code": {"exit 255", Exit{Outcome: Exited, Code: 255}},
		"a crash":          {"kill -SEGV $$", Exit{Outcome: Signalled, Code: -1, Signal: "SIGSEGV"}},
		"its own TERM":     {"kill -TERM $$", Exit{Outcome: Signalled, Code: -1, Signal: "SIGTERM"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, dir := start(t, sh(tt.script))

			got := ended(t, a)

			require.Equal(t, tt.want, Exit{Outcome: got.Outcome, Code: got.Code, Signal: got.Signal, Reaped: got.Reaped})
			require.WithinDuration(t, time.Now(), got.EndedAt, 10*time.Second)
			require.False(t, got.EndedAt.Before(got.StartedAt))
			require.NoError(t, a.Close()) // waits for the shim, and so for the record
			_, recorded := adopt(t, dir)
			require.Equal(t, got, *recorded)
		})
	}
}

func TestSurroundings(t *testing.T) {
	t.Parallel()
	spec := sh(`umask; ulimit -Hc; pwd
grep -E '^(NoNewPrivs|SigIgn):' /proc/self/status
echo session $$ $(cut -d' ' -f6 /proc/$$/stat)
readlink /proc/$$/fd/0
ls /proc/$$/fd
tr '\0' '\n' </proc/$$/environ`)
	spec.Dir = t.TempDir()
	spec.Env = append(spec.Env, "SPAWNMESH_MARKER=forged", "COLOUR=blue sky=")
	a, dir := start(t, spec)

	ended(t, a)

	got := strings.Fields(ignoring(read(t, dir, "stdout")))
	want := strings.Fields(fmt.Sprintf(`0077 0 %s SigIgn: 0000000000000000 NoNewPrivs: 1 session %d %d /dev/null 0 1 2
		PATH=/usr/bin:/bin COLOUR=blue sky= SPAWNMESH_MARKER=%s`, spec.Dir, a.Pid(), a.Pid(), a.Marker()))
	require.Equal(t, want, got)
	require.Empty(t, read(t, dir, "stderr"))
}

// Nobody may keep a descriptor that the spoke was born with. Processes of
// other tests would, so this test runs alone.
func TestInheritedDescriptorsAreClosed(t *testing.T) {
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer reader.Close()
	leak, err := unix.FcntlInt(writer.Fd(), unix.F_DUPFD, 100) // without close-on-exec
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	start(t, sh("sleep 600"))

	require.NoError(t, unix.Close(leak))

	require.NoError(t, reader.SetReadDeadline(time.Now().Add(15*time.Second)))
	_, err = reader.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "somebody holds the other end")
}

func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	spec := sh("sleep 600")
	spec.Env = append(spec.Env, "KEY=canary-4711")
	a, dir := start(t, spec)
	eventually(t, "the stdout file", func() bool { _, err := os.Stat(filepath.Join(dir, "stdout")); return err == nil })

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)

	require.NotEmpty(t, entries)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		if info.Mode().Type() == os.ModeSymlink {
			continue
		}
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), e.Name())
		if info.Mode().IsRegular() {
			require.NotContains(t, read(t, dir, e.Name()), "canary-4711", e.Name())
		}
	}
	require.NoError(t, a.Kill(t.Context(), "enough", 0))
}

// The agent has the user of its shim, and still cannot read what that one knows:
// the token of its socket and the secrets of the spec.
func TestShimIsNotReadable(t *testing.T) {
	t.Parallel()
	unprivileged(t, func(t *testing.T) {
		a, _ := start(t, sh("sleep 600"))
		shim, agent := fmt.Sprintf("/proc/%d", a.run.Shim), fmt.Sprintf("/proc/%d", a.Pid())

		for _, name := range []string{"environ", "mem", "maps", "fd", "auxv"} {
			f, err := os.Open(filepath.Join(shim, name))
			if err == nil {
				_, err = f.Read(make([]byte, 1)) // some are refused only here
				require.NoError(t, f.Close())
			}
			require.ErrorIs(t, err, os.ErrPermission, name)
		}

		var owner unix.Stat_t
		require.NoError(t, unix.Stat(shim+"/environ", &owner))
		require.Zero(t, owner.Uid, "the kernel gives to root what is not dumpable")
		require.Contains(t, read(t, agent, "environ"), a.Marker(), "that of the agent can be read")
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	for _, noCgroup := range []bool{false, true} {
		spec := sh(`trap "" TERM; echo $$; sleep 600 & sleep 600`)
		spec.Timeout, spec.NoCgroup = 300*time.Millisecond, noCgroup
		a, _ := start(t, spec)

		got := ended(t, a)

		require.Equal(t, TimedOut, got.Outcome)
		require.Equal(t, "SIGKILL", got.Signal)
		require.Contains(t, got.Reason, "300ms")
		require.GreaterOrEqual(t, got.Breach.Measured, int64(300))
		require.Equal(t, Breach{Limit: attempt.DeadlineElapsed, Unit: attempt.Milliseconds, Allowed: 300, Measured: got.Breach.Measured}, got.Breach)
		require.Equal(t, 3, got.ReapedTotal)
		require.GreaterOrEqual(t, got.EndedAt.Sub(got.StartedAt), spec.Timeout+spec.Grace)
		require.Less(t, got.EndedAt.Sub(got.StartedAt), 5*time.Second)
	}
}

func TestLeftoversEndWithTheAgent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		leftover string
		reaped   int
	}{
		"one that obeys TERM":     {"sleep 600", 1},
		"one that ignores TERM":   {`(trap "" TERM; exec sleep 600)`, 1},
		"one that soon ends":      {"sleep 0.05", 0},
		"one with a new session":  {"setsid sleep 600", 1},
		"one that is stopped":     {`sh -c 'kill -STOP $$'`, 1},
		"one that hides its pipe": {"sleep 600 >/dev/null 2>&1", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The leftover has the agent's stdout open, which must not matter.
			a, dir := start(t, sh(tt.leftover+" & echo $! >&2; echo done; exit 7"))

			got := ended(t, a)

			require.Equal(t, Exited, got.Outcome)
			require.Equal(t, 7, got.Code)
			require.Equal(t, tt.reaped, got.ReapedTotal, got.Reaped)
			require.Less(t, got.EndedAt.Sub(got.StartedAt), 5*time.Second)
			require.Equal(t, "done\n", read(t, dir, "stdout"))
			for _, pid := range pids(t, filepath.Join(dir, "stderr"), 1) {
				require.False(t, alive(pid))
			}
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	a, _ := start(t, sh(`i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 600 & sleep 600`))
	var got Usage
	eventually(t, "a tree of three that has worked", func() bool {
		var err error
		got, err = a.Usage()
		require.NoError(t, err)
		return got.Processes == 3 && got.CPU > 0
	})

	require.Greater(t, got.RSS, int64(100<<10))
	require.NoError(t, a.Kill(t.Context(), "enough", 0))
	exit := ended(t, a)
	require.GreaterOrEqual(t, exit.CPU, got.CPU-2*(10*time.Millisecond))
	require.Greater(t, exit.MaxRSS, int64(100<<10))
	require.NoError(t, a.Close())
	_, err := a.Usage()
	require.Error(t, err)
}

func TestFinishedAttemptsLeaveNothing(t *testing.T) {
	fds := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	run := func() {
		a, err := Start(t.Context(), filepath.Join(t.TempDir(), "a"), sh("exit 0"))
		require.NoError(t, err)
		require.Equal(t, Exited, ended(t, a).Outcome)
		require.NoError(t, a.Close())
		group, err := tree.FindGroup(a.Marker(), a.Shim().Cgroup)
		require.NoError(t, err)
		require.Nil(t, group)
	}
	run() // what is kept once is kept now
	children := func() int {
		taken, err := tree.Measure(os.Getpid())
		require.NoError(t, err)
		return taken.Processes
	}
	before, live := fds(), children()

	for range 30 {
		run()
	}

	require.Equal(t, before, fds())
	require.Equal(t, live, children(), "zombies or running shims")
}
