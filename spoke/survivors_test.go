package spoke_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// holdExit keeps a process from ending until release is called: a debugger holds it in its
// exit, where nobody else can end it, as little as one in uninterruptible sleep.
func holdExit(t *testing.T, pid int) (release func()) {
	t.Helper()
	ready, let, done := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // a tracer is a thread
		err := unix.PtraceSeize(pid)
		if err == nil {
			err = unix.PtraceInterrupt(pid) // options are set while it stops
		}
		if err == nil {
			_, err = unix.Wait4(pid, nil, unix.WALL, nil)
		}
		if err == nil {
			err = unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACEEXIT)
		}
		if err == nil {
			err = unix.PtraceCont(pid, 0)
		}
		ready <- err
		<-let
		_ = unix.PtraceDetach(pid)
	}()
	t.Cleanup(func() { <-done })
	over := false
	release = func() {
		if !over {
			over = true
			close(let)
		}
	}
	t.Cleanup(release)
	require.NoError(t, <-ready)
	return release
}

// What cannot be ended keeps its slot and its user, is shown, and is tried again, by the next
// process of the spoke as well; it is told as killed when nothing of it is left.
func TestAKillThatIsIncomplete(t *testing.T) {
	t.Parallel()
	plan := meshtest.Plan{Slots: 1, Passable: true, Policy: policy.Presets["open"]} // with users, as root
	m := plan.Start(t, "attic")
	s := m.Spokes["attic"]
	task := m.Spawn(t, "attic", "sh", "-c", "echo $$; exec sleep 600")
	var pid int
	meshtest.Await(t, "the agent", func() bool {
		var err error
		pid, err = strconv.Atoi(strings.TrimSpace(m.Stdout(t, task, false)))
		return err == nil
	})
	release := holdExit(t, pid)
	shown := func() (v spoke.AgentView) {
		s.Do(t, "GET", "/api/v1/tasks/"+task, nil, &v)
		return v
	}
	require.Empty(t, shown().KillIncomplete)

	kill(t, m, task, 0)

	look := func(when string) {
		meshtest.Await(t, "that it is shown "+when, func() bool { return len(shown().KillIncomplete) > 0 })
		left := shown().KillIncomplete[0]
		require.Equal(t, pid, left.Pid)
		require.Equal(t, "t", left.State)
		require.Contains(t, s.Health(t, "kill_incomplete").Problem, "1 agents do not end although they were killed: of "+task+" process "+strconv.Itoa(pid)+" (")
		require.False(t, m.Agent(t, task).State.Terminal(), "it is not told as killed")
	}
	look("at first")
	waits := m.Spawn(t, "attic", "true")
	meshtest.Await(t, "the order", func() bool { return s.Count(t, `SELECT count(*) FROM ready`) == 1 })
	m.Stop(t, "attic")
	m.Start(t, "attic")
	look("by the next process of the spoke")
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM ready`), "its slot is taken")

	release()

	v := m.Wait(t, task)
	require.Equal(t, commands.Cancelled, v.State)
	require.Equal(t, commands.KillRequested, v.Reason)
	require.Empty(t, shown().KillIncomplete)
	require.Equal(t, commands.Completed, m.Wait(t, waits).State)
	m.Check(t)
}
