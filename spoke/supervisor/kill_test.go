package supervisor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// escape is an agent of five processes, each of which tries to get away in
// another manner; each writes its pid to the file $1.
const escape = `
trap "" TERM INT HUP
echo $$ >>"$1"
setsid sh -c 'trap "" TERM; echo $$ >>"$0"; while :; do sleep 600; done' "$1" &
(nohup sh -c 'trap "" TERM; echo $$ >>"$0"; while :; do sleep 600; done' "$1" >/dev/null 2>&1 &)
env -i setsid sh -c '(trap "" TERM; exec /bin/sh -c "echo \$\$ >>\"\$0\"; while :; do sleep 600; done" "$0") & exit' "$1" &
(cp /bin/sleep "$1.renamed"; exec env -i setsid sh -c 'trap "" TERM; echo $$ >>"$0"; exec "$0.renamed" 600' "$1") &
while :; do sleep 600; done
`

// levels are the ways to end a tree that this host can be made to use.
var levels = map[string]bool{"the host's level": false, "level tree": true}

func escapist(t *testing.T, noCgroup bool) (Spec, string) {
	file := filepath.Join(t.TempDir(), "pids")
	spec := sh("")
	spec.Argv = []string{"/bin/sh", "-c", escape, "agent", file}
	spec.NoCgroup = noCgroup
	return spec, file
}

// An adapter is asked to end before what it has started is.
func TestAnAdapterIsAskedFirst(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{"acp": "adapter\n", "other": "child\n"} {
		dir := t.TempDir()
		file := filepath.Join(dir, "heard")
		script := `sh -c 'trap "echo child >>heard; exit" TERM; echo $$ >>pids; while :; do sleep 0.05; done' &
			trap "echo adapter >>heard; [ $1 != acp ] || kill -KILL $!; exit 0" TERM; echo $$ >>pids; while :; do sleep 0.05; done`
		require.NoError(t, os.WriteFile(filepath.Join(dir, "worker"), []byte(script), 0o600))
		spec := sh("")
		spec.Argv, spec.Dir = []string{"/bin/sh", "worker", arg}, dir
		a, _ := start(t, spec)
		pids(t, filepath.Join(dir, "pids"), 2)

		require.NoError(t, a.Kill(t.Context(), "the test says so", 5*time.Second))

		require.Equal(t, Killed, ended(t, a).Outcome)
		heard, err := os.ReadFile(file)
		require.NoError(t, err)
		if arg == "acp" {
			require.Equal(t, want, string(heard))
		} else {
			require.Contains(t, string(heard), want)
		}
	}
}

func TestKillEndsEscapists(t *testing.T) {
	t.Parallel()
	for name, noCgroup := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, file := escapist(t, noCgroup)
			a, _ := start(t, spec)
			five := pids(t, file, 5)
			begin := time.Now()

			require.NoError(t, a.Kill(t.Context(), "the test says so", 100*time.Millisecond))

			require.Less(t, time.Since(begin), 100*time.Millisecond+attempt.KillPatience)
			got := ended(t, a)
			require.Equal(t, Killed, got.Outcome)
			require.Equal(t, "the test says so", got.Reason)
			require.Equal(t, "SIGKILL", got.Signal)
			require.Empty(t, got.Survivors)
			for _, pid := range five {
				require.False(t, alive(pid), "process %d", pid)
				require.True(t, contains(got.Reaped, pid), "%d is missing in %v", pid, got.Reaped)
			}
		})
	}
}

// As root, and where the spoke's user owns the groups, an agent can leave its
// cgroup. Its shim ends it all the same.
func TestKillEndsWhoLeftItsCgroup(t *testing.T) {
	t.Parallel()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	top := topGroup(string(mounts))
	file := filepath.Join(t.TempDir(), "pids")
	spec := sh(`env -i setsid sh -c 'echo $$ 2>/dev/null >"$1/cgroup.procs"; echo $$ >>"$0"; exec sleep 600' "$1" "$2" & sleep 600`)
	spec.Argv = append(spec.Argv, "agent", file, top)
	a, _ := start(t, spec)
	left := pids(t, file, 1)[0]

	require.NoError(t, a.Kill(t.Context(), "enough", 0))

	require.False(t, alive(left))
	require.True(t, contains(ended(t, a).Reaped, left))
}

func contains(list []Process, pid int) bool {
	for _, p := range list {
		if p.Pid == pid {
			return true
		}
	}
	return false
}

func TestKill(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		grace  time.Duration
		signal string
		code   int
		max    time.Duration
	}{
		"an agent that obeys":                  {`echo up; exec sleep 600`, 10 * time.Second, "SIGTERM", -1, 2 * time.Second},
		"an agent that says good-bye":          {`trap "exit 9" TERM; echo up; while :; do sleep 0.02; done`, 10 * time.Second, "", 9, 2 * time.Second},
		"an agent that ignores TERM":           {`trap "" TERM; echo up; setsid sleep 600 & sleep 600`, 200 * time.Millisecond, "SIGKILL", -1, 3 * time.Second},
		"no grace":                             {`trap "" TERM; echo up; while :; do sleep 600; done`, 0, "SIGKILL", -1, 2 * time.Second},
		"a stopped agent":                      {`echo up; kill -STOP $$; exec sleep 600`, 10 * time.Second, "SIGTERM", -1, 2 * time.Second},
		"an agent that stops its shim":         {`echo up; until [ -e "$1" ]; do sleep 0.01; done; kill -STOP $PPID; rm "$1"; exec sleep 600`, 200 * time.Millisecond, "SIGTERM", -1, 3 * time.Second},
		"an agent that answers TERM with more": {`trap 'setsid sh -c "trap : TERM; sleep 600 & sleep 600; sleep 600" & ' TERM; echo up; while :; do sleep 0.01; done`, 200 * time.Millisecond, "SIGKILL", -1, 3 * time.Second},
	}
	for name, tt := range tests {
		for level, noCgroup := range levels {
			t.Run(name+" at "+level, func(t *testing.T) {
				t.Parallel()
				gate := filepath.Join(t.TempDir(), "gate")
				spec := sh(tt.script)
				spec.Argv = append(spec.Argv, "agent", gate)
				spec.NoCgroup = noCgroup
				a, dir := start(t, spec)
				eventually(t, "the agent is up", func() bool { return read(t, dir, "stdout") == "up\n" })
				if strings.Contains(tt.script, "$PPID") {
					require.NoError(t, os.WriteFile(gate, nil, 0o600))
					eventually(t, "the shim is stopped", func() bool { _, err := os.Stat(gate); return err != nil })
				}
				begin := time.Now()

				require.NoError(t, a.Kill(t.Context(), "enough", tt.grace))

				require.Less(t, time.Since(begin), tt.max)
				got := ended(t, a)
				require.Equal(t, Killed, got.Outcome)
				require.Equal(t, tt.signal, got.Signal)
				require.Equal(t, tt.code, got.Code)
				left, err := tree.New(a.Marker(), 0, nil).Find(true)
				require.NoError(t, err)
				require.Empty(t, left)
			})
		}
	}
}

func TestKillCanBeHastened(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh(`trap "" TERM; echo up; while :; do sleep 600; done`))
	eventually(t, "the agent is up", func() bool { return read(t, dir, "stdout") == "up\n" })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, a.Kill(ctx, "first", time.Hour), context.DeadlineExceeded)

	require.NoError(t, a.Kill(t.Context(), "second", 0))

	require.Equal(t, "first", ended(t, a).Reason)
	require.NoError(t, a.Kill(t.Context(), "a third one is too late and does no harm", 0))
}

// A spoke that stops while it waits for a kill gets away at once, and the shim
// brings the kill to its end without it.
func TestKillGoesOnWithoutItsSpoke(t *testing.T) {
	t.Parallel()
	for name, noCgroup := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, file := escapist(t, noCgroup)
			a, dir := start(t, spec)
			five := pids(t, file, 5)
			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, stop)

			require.ErrorIs(t, a.Kill(ctx, "and then the spoke went", time.Second), context.Canceled)
			require.NoError(t, a.Close())

			eventually(t, "the end of the shim", func() bool {
				lock, err := attempt.TakeLock(dir)
				require.NoError(t, err)
				return lock != nil && attempt.Release(lock) == nil
			})
			for _, pid := range five {
				require.False(t, alive(pid))
			}
			_, got := adoptKnown(t, dir, Known{Killed: true})
			require.Equal(t, Killed, got.Outcome)
			require.Equal(t, "and then the spoke went", got.Reason)
		})
	}
}

// A shim that neither answers nor ends cannot keep a kill waiting for ever.
func TestKillEndsThoughTheShimDoesNot(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	w, shim, run, err := call(t.Context(), dir, a.saved)
	require.NoError(t, err)
	require.NoError(t, shim.Release())
	other := exec.Command("/bin/true") // gets what is meant for the shim
	require.NoError(t, other.Run())
	b := newAgent(t.Context(), dir, a.saved, w, other.Process, false, run)
	require.NoError(t, a.shim.Signal(syscall.SIGSTOP))
	begin := time.Now()

	err = b.Kill(t.Context(), "it will not work", 0)

	require.ErrorAs(t, err, new(*Incomplete))
	require.GreaterOrEqual(t, time.Since(begin), 2*(attempt.KillPatience+shimPatience))
	select {
	case <-b.Done():
		require.FailNow(t, "the attempt is not over")
	default:
	}
	require.NoError(t, a.shim.Signal(syscall.SIGCONT))
	require.Equal(t, "it will not work", ended(t, b).Reason)
	require.NoError(t, b.Close())
}

// forkers is an agent with four lines of processes, each of which lives by
// starting its successor in a new session before it ends. Each adds to a
// file. A line ends after 1500 generations, should nothing else end it.
func forkers(t *testing.T) (spec Spec, file string) {
	file = filepath.Join(t.TempDir(), "generations")
	line := filepath.Join(filepath.Dir(file), "line")
	write(t, filepath.Dir(file), "line", `trap "" TERM; echo >>`+file+`; [ $1 -eq 0 ] || setsid sh "$0" $(($1 - 1)) & exit`)
	return sh(`for i in 1 2 3 4; do setsid sh ` + line + ` 1500 & done; trap "" TERM; while :; do sleep 600; done`), file
}

func generations(t *testing.T, file string) int {
	b, err := os.ReadFile(file)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	return len(b)
}

func TestKillOfFastForkers(t *testing.T) {
	t.Parallel()
	for name, noCgroup := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, file := forkers(t)
			spec.NoCgroup = noCgroup
			a, _ := start(t, spec)
			eventually(t, "many generations", func() bool { return generations(t, file) > 60 })

			require.NoError(t, a.Kill(t.Context(), "enough", 0))

			before := generations(t, file)
			left, err := tree.New(a.Marker(), 0, nil).Find(true)
			require.NoError(t, err)
			require.Empty(t, left)
			require.Equal(t, before, generations(t, file), "a line lives on")
		})
	}
}

// A frozen tree has no successor on its way: all of it is stopped and no line
// lives on. On a busy host one freeze may let a line through and says so.
func TestFreezeOfFastForkers(t *testing.T) {
	t.Parallel()
	spec, file := forkers(t)
	spec.NoCgroup = true
	a, _ := start(t, spec)
	eventually(t, "many generations", func() bool { return generations(t, file) > 20 })
	require.NoError(t, a.shim.Signal(syscall.SIGSTOP)) // it must not help
	tr := tree.New(newMarker(), a.run.Shim, nil)

	before, moved := 0, true
	for deadline := time.Now().Add(15 * time.Second); moved && time.Now().Before(deadline); {
		_, still, err := tr.Freeze()
		require.NoError(t, err)
		before = generations(t, file)
		time.Sleep(50 * time.Millisecond) // many generations
		moved = generations(t, file) != before
		require.False(t, moved && still, "a line lives on in a tree that stands still")
	}

	found, err := tr.Find(false)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(found), 5, "the agent and its lines")
	require.False(t, slices.ContainsFunc(found, tree.Process.Running), "%v", found)
	killed, err := tr.Kill()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(killed), 5)
	require.NoError(t, a.shim.Signal(syscall.SIGCONT))
	require.Equal(t, Signalled, ended(t, a).Outcome)
	require.Equal(t, before, generations(t, file), "a line outlived the kill")
}

func TestTermOfTheShimEndsTheTree(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	second, _ := adopt(t, dir) // it answers, so it has long been listening to signals
	require.NoError(t, second.Close())

	require.NoError(t, a.shim.Signal(syscall.SIGTERM))

	got := ended(t, a)
	require.Equal(t, Stopped, got.Outcome)
	require.Contains(t, got.Reason, "the shim received terminated")
}

// topGroup is where cgroup v2 is mounted, empty where it is not.
func topGroup(mounts string) string {
	for line := range strings.Lines(mounts) {
		if before, _, found := strings.Cut(line, " - cgroup2 "); found {
			return strings.Fields(before)[4]
		}
	}
	return ""
}
