package supervisor

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// An agent of the same user can read the token of its attempt. It cannot prolong
// its own lease with it.
func TestAgentCannotSpeakForItsSpoke(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "attempt")
	spec := sh(`setsid "$0" "$@"`)
	spec.Argv = append(spec.Argv, os.Args[0], traitorArg, dir)
	a, err := Start(t.Context(), dir, spec)
	require.NoError(t, err)
	endAfter(t, a)

	ended(t, a)

	require.Contains(t, read(t, dir, "stdout"), context.DeadlineExceeded.Error())
}

// Nor can the agent of another attempt that has read that token.
func TestAgentCannotSpeakForAnotherAttempt(t *testing.T) {
	t.Parallel()
	victim, dir := start(t, sh("sleep 600"))
	other := filepath.Join(t.TempDir(), "attempt")
	spec := sh(`setsid "$0" "$@"`)
	spec.Argv = append(spec.Argv, os.Args[0], traitorArg, dir)
	a, err := Start(t.Context(), other, spec)
	require.NoError(t, err)
	endAfter(t, a)

	ended(t, a)

	require.Contains(t, read(t, other, "stdout"), context.DeadlineExceeded.Error())
	require.True(t, alive(victim.Pid()))
}

func TestAdoptionAfterAFloodOfConnections(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	limit := unix.Rlimit{Cur: 24, Max: 24}
	require.NoError(t, unix.Prlimit(a.run.Shim, unix.RLIMIT_NOFILE, &limit, nil))
	var flood []net.Conn
	for range 30 { // some of them wait to be accepted
		conn, err := dialShim(dir)
		if err != nil {
			break
		}
		flood = append(flood, conn)
	}
	require.Greater(t, len(flood), 16)
	time.Sleep(200 * time.Millisecond) // the shim runs out of descriptors meanwhile
	for _, conn := range flood {
		require.NoError(t, conn.Close())
	}

	b, _ := adopt(t, dir)

	require.Equal(t, a.Pid(), b.Pid())
}

// An agent of the same user that stops its shim gains nothing by it: whoever has
// to do with the shim wakes it first.
func TestStoppedShimIsWoken(t *testing.T) {
	t.Parallel()
	stopped := func(t *testing.T, spec Spec) (*Agent, string) {
		a, dir := start(t, spec)
		require.NoError(t, a.shim.Signal(syscall.SIGSTOP))
		eventually(t, "a stopped shim", func() bool { p, err := tree.ReadProcess(a.run.Shim); return err == nil && p.State == 'T' })
		return a, dir
	}
	t.Run("by a renewal", func(t *testing.T) {
		t.Parallel()
		gate := filepath.Join(t.TempDir(), "gate") // an agent that ends at once may end before its shim is stopped
		a, _ := stopped(t, sh("until [ -e "+gate+" ]; do sleep 0.02; done"))

		require.NoError(t, a.Renew(Boottime().Add(time.Hour)))
		require.NoError(t, os.WriteFile(gate, nil, 0o600))

		require.Equal(t, Exited, ended(t, a).Outcome)
	})
	t.Run("by an adoption", func(t *testing.T) {
		t.Parallel()
		a, dir := stopped(t, sh("sleep 600"))

		b, _ := adopt(t, dir)

		require.Equal(t, a.Pid(), b.Pid())
	})
	t.Run("at its timeout", func(t *testing.T) {
		t.Parallel()
		spec := sh("sleep 600")
		spec.Timeout = 300 * time.Millisecond
		a, _ := stopped(t, spec)

		require.Equal(t, TimedOut, ended(t, a).Outcome)
	})
}

// A process of the tree that waits for the shim's lock gets it when the shim is
// killed. It does not pass for a shim.
func TestLockTakenByTheTree(t *testing.T) {
	t.Parallel()
	dir, up := filepath.Join(t.TempDir(), "attempt"), filepath.Join(t.TempDir(), "up")
	spec := sh(`setsid flock "$0" sleep 600 & echo $! >"$1"; sleep 600`)
	spec.Argv = append(spec.Argv, filepath.Join(dir, attempt.LockFile), up)
	spec.NoCgroup = true
	a, err := Start(t.Context(), dir, spec)
	require.NoError(t, err)
	endAfter(t, a)
	thief := pids(t, up, 1)[0]
	waits := regexp.MustCompile(fmt.Sprintf(`-> FLOCK +ADVISORY +WRITE %d `, thief))
	eventually(t, "it waits for the lock", func() bool { return waits.MatchString(read(t, "/proc/locks")) })

	require.NoError(t, a.shim.Kill())

	require.Equal(t, Lost, ended(t, a).Outcome)
	require.False(t, alive(thief))
}

// The same at a start that goes wrong.
func TestLockTakenAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := sh("exit 0")
	spec.Marker = markerOf(dir)
	saved, err := saveSpec(dir, spec)
	require.NoError(t, err)
	thief := exec.Command("flock", filepath.Join(dir, attempt.LockFile), "sh", "-c", "echo up; exec sleep 600")
	thief.Env = []string{"PATH=/usr/bin:/bin", MarkerName + "=" + saved.Marker}
	out, err := thief.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, thief.Start())
	t.Cleanup(func() { _ = thief.Process.Kill(); _ = thief.Wait() })
	_, err = fmt.Fscanln(out, new(string))
	require.NoError(t, err)

	exit, err := conclude(t.Context(), dir, saved, nil, nil)

	require.NoError(t, err)
	require.Equal(t, NeverStarted, exit.Outcome)
	require.False(t, alive(thief.Process.Pid))
}

// Who has the lock of an attempt and does not answer an adopter is ended.
func TestAdoptionOfWhatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	prepare := func(t *testing.T) (string, savedSpec) {
		dir := t.TempDir()
		spec := sh("exit 0")
		spec.Marker = markerOf(dir)
		saved, err := saveSpec(dir, spec)
		require.NoError(t, err)
		return dir, saved
	}
	run := func(t *testing.T, env string, argv ...string) *exec.Cmd {
		c := exec.Command(argv[0], argv[1:]...)
		c.Env = []string{"PATH=/usr/bin:/bin", env}
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		var said string
		_, err = fmt.Fscanln(out, &said)
		require.NoError(t, err)
		return c
	}
	t.Run("a shim that hangs", func(t *testing.T) {
		t.Parallel()
		dir, saved := prepare(t)
		deaf := run(t, "A=B", os.Args[0], attempt.ShimArg, dir, saved.Marker, deafArg)

		_, exit, err := adoptWithin(t.Context(), dir, Known{}, 100*time.Millisecond)

		require.NoError(t, err)
		require.Equal(t, NeverStarted, exit.Outcome)
		require.False(t, alive(deaf.Process.Pid))
	})
	t.Run("a process of the tree", func(t *testing.T) {
		t.Parallel()
		dir, saved := prepare(t)
		thief := run(t, MarkerName+"="+saved.Marker, "flock", filepath.Join(dir, attempt.LockFile), "sh", "-c", "echo up; exec sleep 600")

		_, exit, err := adoptWithin(t.Context(), dir, Known{}, 100*time.Millisecond)

		require.NoError(t, err)
		require.Equal(t, NeverStarted, exit.Outcome)
		require.False(t, alive(thief.Process.Pid))
	})
	t.Run("a process of the tree, whose shim has ended: it is not waited for", func(t *testing.T) {
		t.Parallel()
		dir, saved := prepare(t)
		shim := run(t, "A=B", "sh", "-c", "echo up; exec sleep 600")
		was, err := tree.ReadProcess(shim.Process.Pid)
		require.NoError(t, err)
		require.NoError(t, shim.Process.Kill())
		require.Error(t, shim.Wait())
		thief := run(t, MarkerName+"="+saved.Marker, "flock", filepath.Join(dir, attempt.LockFile), "sh", "-c", "echo up; exec sleep 600")
		ctx, done := context.WithTimeout(t.Context(), time.Minute)
		defer done()

		_, exit, err := adoptWithin(ctx, dir, Known{Shim: Shim{Pid: was.Pid, Start: was.Start}}, time.Hour)

		require.NoError(t, err)
		require.Equal(t, NeverStarted, exit.Outcome)
		require.False(t, alive(thief.Process.Pid))
	})
}

// The name of the cgroup lies in a directory that an agent of the same user can
// write to. It cannot make its spoke kill others.
func TestForgedCgroup(t *testing.T) {
	t.Parallel()
	innocent := exec.Command("/bin/sleep", "600")
	require.NoError(t, innocent.Start())
	t.Cleanup(func() { _ = innocent.Process.Kill(); _ = innocent.Wait() })
	dir := t.TempDir()
	saved, err := saveSpec(dir, Spec{Marker: markerOf(dir), Argv: []string{"/bin/true"}, Dir: "/"})
	require.NoError(t, err)
	forged := filepath.Join(t.TempDir(), saved.Marker)
	require.NoError(t, os.Mkdir(forged, 0o700))
	write(t, forged, "cgroup.procs", strconv.Itoa(innocent.Process.Pid)+"\n")
	write(t, forged, "cgroup.kill", "")
	write(t, forged, "cgroup.events", "populated 0\n")
	require.NoError(t, os.Symlink(forged, filepath.Join(dir, attempt.CgroupLink)))
	saved.shim.Cgroup = forged // not even then
	group, err := tree.FindGroup(saved.Marker, saved.shim.Cgroup)
	require.NoError(t, err)
	require.Nil(t, group)

	_, exit := adopt(t, dir)

	require.Empty(t, exit.Reaped)
	require.True(t, alive(innocent.Process.Pid))
	require.Empty(t, read(t, forged, "cgroup.kill"))
}
