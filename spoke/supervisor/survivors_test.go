package supervisor

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// A process held by a debugger in its very exit cannot be ended by anyone
// else, as little as one in uninterruptible sleep.
func TestKillReportsSurvivors(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	release := holdExit(t, a.Pid())

	err := a.Kill(t.Context(), "it will not work", 0)

	incomplete, ok := errors.AsType[*Incomplete](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, a.Pid(), incomplete.Survivors[0].Pid)
	require.Equal(t, "t", incomplete.Survivors[0].State)
	require.ErrorContains(t, err, strconv.Itoa(a.Pid())+" (sh) in state t")
	select {
	case <-a.Done():
		require.FailNow(t, "an attempt with a survivor is not over")
	default:
	}
	eventually(t, "a provisional record", func() bool {
		provisional, err := readExit(dir)
		require.NoError(t, err)
		return provisional != nil && len(provisional.Survivors) > 0
	})
	require.NoError(t, a.Close())
	again, _ := adopt(t, dir)
	err = again.Kill(t.Context(), "still not", 0)
	require.ErrorAs(t, err, &incomplete, "an adopter hears of the survivor")

	release()

	got := ended(t, again)
	require.Equal(t, Killed, got.Outcome)
	require.Empty(t, got.Survivors)
	require.True(t, contains(got.Reaped, a.Pid()))
}

// stray starts a process in the attempt's name that no one can end until
// release is called, as little as one in uninterruptible sleep. It is not a child
// of the shim, which so does not hear of its end.
func stray(t *testing.T, marker string) (pid int, release func()) {
	t.Helper()
	p := exec.Command("/bin/sleep", "600")
	p.Env = []string{MarkerName + "=" + marker}
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	return p.Process.Pid, holdExit(t, p.Process.Pid)
}

// A kill of what survived another is not put off until the next of the rare
// rounds.
func TestKillOfSurvivorsCanBeHastened(t *testing.T) {
	t.Parallel()
	a, _ := start(t, sh("sleep 600"))
	pid, release := stray(t, a.Marker())
	var incomplete *Incomplete
	require.ErrorAs(t, a.Kill(t.Context(), "first", 0), &incomplete)
	require.Equal(t, pid, incomplete.Survivors[0].Pid)
	release()
	begin := time.Now()

	require.NoError(t, a.Kill(t.Context(), "second", 0))

	require.Less(t, time.Since(begin), attempt.KillRetry/2)
	require.Equal(t, "first", ended(t, a).Reason)
}

// An attempt whose shim is dead is not over before its tree is: no adoption and
// no handle says so while something survives.
func TestSurvivorsOfADeadShim(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	pid, release := stray(t, a.Marker())

	require.NoError(t, a.shim.Kill())

	var incomplete *Incomplete
	require.ErrorAs(t, a.Kill(t.Context(), "it is still there", 0), &incomplete)
	require.Equal(t, pid, incomplete.Survivors[0].Pid)
	agent, exit, err := Adopt(t.Context(), dir, Known{})
	require.ErrorAs(t, err, &incomplete)
	require.Equal(t, pid, incomplete.Survivors[0].Pid)
	require.Nil(t, agent)
	require.Nil(t, exit)
	select {
	case <-a.Done():
		require.FailNow(t, "an attempt with a survivor is not over")
	default:
	}
	release()
	_, found := adopt(t, dir)
	require.Equal(t, Lost, found.Outcome)
	require.Empty(t, found.Survivors)
	require.True(t, contains(found.Reaped, pid), found.Reaped)
	require.Equal(t, cutNote, read(t, dir, "stdout"), "the file says once that it was cut")
	require.NoError(t, a.Kill(t.Context(), "and now it is gone", 0))
	require.Equal(t, Lost, ended(t, a).Outcome)
}

// holdExit keeps a process from ending until release is called.
func holdExit(t *testing.T, pid int) (release func()) {
	ready, let := make(chan error), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // a tracer is a thread
		ready <- unix.PtraceSeize(pid)
		err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACEEXIT)
		if err == unix.ESRCH { // options of a running tracee are set while it stops
			if err = unix.PtraceInterrupt(pid); err == nil {
				_, err = unix.Wait4(pid, nil, unix.WALL, nil)
			}
			if err == nil {
				err = unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACEEXIT)
			}
			if err == nil {
				err = unix.PtraceCont(pid, 0)
			}
		}
		ready <- err
		<-let
		_ = unix.PtraceDetach(pid)
	}()
	require.NoError(t, <-ready)
	require.NoError(t, <-ready, fmt.Sprintf("tracing %d", pid))
	var once bool
	release = func() {
		if !once {
			once = true
			close(let)
			<-done
		}
	}
	t.Cleanup(release)
	return release
}
