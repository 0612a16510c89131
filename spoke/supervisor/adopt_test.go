package supervisor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

func TestAdoptionAfterTheSpokeWasKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "attempt")
	pid := killedSpoke(t, dir, sh("echo up; sleep 600"))

	a, _ := adopt(t, dir)

	require.Equal(t, pid, a.Pid())
	require.True(t, alive(pid))
	// Its spoke ignored some signals, as one started by nohup does.
	require.Contains(t, ignoring(read(t, "/proc", strconv.Itoa(pid), "status")), "SigIgn:\t0000000000000000\n")
	usage, err := a.Usage()
	require.NoError(t, err)
	require.Positive(t, usage.Processes)
	require.NoError(t, a.Kill(t.Context(), "adopted", time.Second))
	got := ended(t, a)
	require.Equal(t, Killed, got.Outcome)
	require.Equal(t, "SIGTERM", got.Signal)
	require.False(t, alive(pid))
}

func TestAdoptionOfAnEndedAttempt(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "attempt")
	gate := filepath.Join(t.TempDir(), "gate")
	killedSpoke(t, dir, sh("until [ -e "+gate+" ]; do sleep 0.01; done; echo bye; exit 4"))
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	var first *Exit
	eventually(t, "an exit record", func() bool {
		var a *Agent
		if a, first = adopt(t, dir); a != nil {
			require.NoError(t, a.Close())
		}
		return first != nil
	})

	_, second := adopt(t, dir)

	require.Equal(t, Exited, first.Outcome)
	require.Equal(t, 4, first.Code)
	require.Equal(t, int64(4), first.Stdout.Bytes)
	require.Equal(t, first, second)
}

// copied returns a copy of a directory, as cp -a makes it.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	out, err := exec.CommandContext(t.Context(), "cp", "-a", dir, to).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to
}

// loseToken leaves a directory whose shim proves nothing to a spoke any more.
func loseToken(t *testing.T, dir string) {
	t.Helper()
	write(t, dir, attempt.SpecFile, "{}")
}

// Where its shim goes on after its directory was moved, it is adopted there, whatever has its name.
func TestAdoptionOfAMovedDirectory(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		then func(t *testing.T, dir, moved string)
		ends bool
	}{
		"its shim answers":         {func(*testing.T, string, string) {}, false},
		"its shim is not believed": {func(t *testing.T, _, moved string) { loseToken(t, moved) }, true},
		"a copy has its name":      {func(t *testing.T, dir, moved string) { require.NoError(t, os.Rename(copied(t, moved), dir)) }, false},
		"a copy has its name, and loses to it": {func(t *testing.T, dir, moved string) {
			require.NoError(t, os.Rename(copied(t, moved), dir))
			loseToken(t, moved)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, dir := start(t, sh("sleep 600"))
			moved := filepath.Join(t.TempDir(), "moved")
			require.NoError(t, os.Rename(dir, moved))
			test.then(t, dir, moved)

			known := Known{Marker: a.saved.Marker, Shim: a.Shim(), Began: true}
			if test.ends {
				eventually(t, "the end of what ends", func() bool { // on a busy machine it is proven later
					_, _, err := Adopt(t.Context(), moved, known)
					_, again := errors.AsType[*Incomplete](err)
					return !again
				})
			}
			b, exit := adoptKnown(t, moved, known)

			require.Equal(t, test.ends, exit != nil)
			require.Equal(t, !test.ends, b != nil)
			require.Equal(t, !test.ends, alive(a.Pid()))
		})
	}
}

func TestTwoSpokesAtOnce(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	b, _ := adopt(t, dir)

	require.NoError(t, b.Kill(t.Context(), "the second", 0))

	require.Equal(t, ended(t, b), ended(t, a))
}

func TestShimKilled(t *testing.T) {
	t.Parallel()
	for name, noCgroup := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pids")
			spec := sh(`trap "" TERM HUP; echo $$ >>"$1"; setsid sh -c 'echo $$ >>"$0"; exec sleep 600' "$1" & sleep 600`)
			spec.Argv = append(spec.Argv, "agent", file)
			spec.NoCgroup = noCgroup
			if !noCgroup && hostLevel(t) == attempt.LevelCgroup { // only then it can be found
				spec.Argv[2] = `env -i setsid sh -c 'echo $$ >>"$0"; exec sleep 600' "$1" & ` + spec.Argv[2]
			} else {
				spec.Argv[2] = `echo $$ >>"$1"; ` + spec.Argv[2]
			}
			a, dir := start(t, spec)
			three := pids(t, file, 3)

			require.NoError(t, a.shim.Kill())

			got := ended(t, a)
			require.Equal(t, Lost, got.Outcome)
			require.Equal(t, -1, got.Code)
			require.Empty(t, got.Survivors)
			require.Equal(t, a.StartedAt(), got.StartedAt)
			for _, pid := range three {
				require.False(t, alive(pid), pid)
			}
			require.True(t, contains(got.Reaped, three[2]) || contains(got.Reaped, three[1]), got.Reaped)
			require.NoFileExists(t, filepath.Join(dir, attempt.CgroupLink, "cgroup.procs"))
			_, again := adopt(t, dir)
			require.Equal(t, Lost, again.Outcome)
		})
	}
}

// With spoke and shim both gone nobody is there to end the agent.
func TestAgentDiesWithItsShim(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "attempt")
	pid := killedSpoke(t, dir, sh(`trap "" TERM HUP; while :; do sleep 600; done`))
	agent, err := tree.ReadProcess(pid)
	require.NoError(t, err)
	shim, err := tree.ReadProcess(agent.Parent)
	require.NoError(t, err)

	require.NoError(t, shim.Signal(unix.SIGKILL))

	eventually(t, "the end of the agent", func() bool { return !alive(pid) })
	_, got := adopt(t, dir) // ends the sleep
	require.Equal(t, Lost, got.Outcome)
}

func hostLevel(t *testing.T) string {
	level, err := Level()
	require.NoError(t, err)
	return level
}

func TestLevelIsTheOneAgentsGet(t *testing.T) {
	t.Parallel()
	a, _ := start(t, sh("exit 0"))
	spec := sh("exit 0")
	spec.NoCgroup = true
	b, _ := start(t, spec)

	require.Equal(t, hostLevel(t), a.Level())
	require.Equal(t, attempt.LevelTree, b.Level())
	require.Equal(t, attempt.LevelTree, ended(t, b).Level)
}

// lateShim runs a shim in dir by hand, as one that was forked before its
// spoke died and gets the processor only now.
func lateShim(t *testing.T, dir string, saved savedSpec) (exitCode int) {
	t.Helper()
	w, shim, err := forkShim(dir, saved.Spec)
	require.NoError(t, err)
	_ = w.SendAttempt(saved.Attempt, time.Second) // it may have ended already
	state, err := shim.Wait()
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return state.ExitCode()
}

func TestShimFindsTheTombstone(t *testing.T) {
	t.Parallel()
	dir, trace := filepath.Join(t.TempDir(), "attempt"), filepath.Join(t.TempDir(), "trace")
	spec := sh("echo ran >" + trace)
	spec.Marker = newMarker()
	saved, err := saveSpec(dir, spec)
	require.NoError(t, err)
	_, got := adopt(t, dir)
	require.Equal(t, NeverStarted, got.Outcome)

	require.Equal(t, 0, lateShim(t, dir, saved))
	// The spoke that wrote the tombstone died before it wrote the record.
	require.NoError(t, os.Remove(filepath.Join(dir, attempt.ExitFile)))
	require.Equal(t, 0, lateShim(t, dir, saved))

	require.NoFileExists(t, trace)
	require.NoFileExists(t, filepath.Join(dir, string(Stdout)))
	_, again := adopt(t, dir)
	require.Equal(t, NeverStarted, again.Outcome)
}

func TestShimOfAnotherAttemptInTheSameDirectory(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	trace := filepath.Join(t.TempDir(), "trace")
	second := a.saved
	second.Argv = []string{"/bin/sh", "-c", "echo ran >" + trace}

	require.Equal(t, 0, lateShim(t, dir, second))

	require.NoFileExists(t, trace)
	require.True(t, alive(a.Pid()))
}

// Whatever the moment at which a restarted spoke looks: either the shim runs
// and is adopted, or the agent never runs. It goes on until both have occurred.
func TestAdoptionRacesTheStart(t *testing.T) {
	t.Parallel()
	outcomes := map[string]int{}
	for i := 0; i < 20 || len(outcomes) < 2; i++ {
		require.Less(t, i, 400, "only one way occurs: %v", outcomes)
		dir, trace := filepath.Join(t.TempDir(), "attempt"), filepath.Join(t.TempDir(), "trace")
		spec := sh("echo ran >>" + trace + "; sleep 600")
		var wg sync.WaitGroup
		var started *Agent
		var startErr error
		wg.Go(func() { started, startErr = Start(t.Context(), dir, spec) })
		for begin := time.Now(); time.Since(begin) < 15*time.Second; {
			if _, err := os.Stat(filepath.Join(dir, attempt.SpecFile)); err == nil {
				break // soon enough to be too early for the shim
			}
		}
		time.Sleep(time.Duration(i%20*(i%20)) * 100 * time.Microsecond) // the moment is what varies

		adopted, exit := adopt(t, dir)
		wg.Wait()

		if adopted != nil {
			outcomes["adopted"]++
			require.NoError(t, startErr)
			require.Equal(t, started.Pid(), adopted.Pid())
			require.NoError(t, adopted.Kill(t.Context(), "enough", 0))
			require.NoError(t, started.Close())
			continue
		}
		outcomes["never started"]++
		require.Equal(t, NeverStarted, exit.Outcome)
		require.Error(t, startErr)
		require.NoFileExists(t, trace)
	}
}

func TestAdoptionOfNothing(t *testing.T) {
	t.Parallel()
	tests := map[string]func(dir string){
		"no directory":     func(string) {},
		"no spec":          func(dir string) { require.NoError(t, os.Mkdir(dir, 0o700)) },
		"half a spec":      func(dir string) { fill(t, dir, `{"marker":"0123`) },
		"somebody's spec":  func(dir string) { fill(t, dir, `{"marker":"../../..","token":"x"}`) },
		"half an exit":     func(dir string) { fill(t, dir, `{}`); write(t, dir, attempt.ExitFile, `{"outcome":"exi`) },
		"a spec, no shim ": func(dir string) { _, err := saveSpec(dir, sh("exit 0")); require.NoError(t, err) },
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "attempt")
			prepare(dir)

			_, got := adopt(t, dir)

			require.Equal(t, NeverStarted, got.Outcome)
			_, err := os.Stat(filepath.Join(dir, attempt.TombstoneFile))
			require.NoError(t, err)
		})
	}
}

func fill(t *testing.T, dir, spec string) {
	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, dir, attempt.SpecFile, spec)
}

func write(t *testing.T, dir, name, content string) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

func TestAdoptionAfterARestartOfTheHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// An innocent process that carries the marker: after a restart of the
	// host nothing can be the attempt's.
	marker := newMarker()
	innocent := exec.Command("/bin/sleep", "600")
	innocent.Env = []string{MarkerName + "=" + marker}
	require.NoError(t, innocent.Start())
	t.Cleanup(func() { _ = innocent.Process.Kill(); _ = innocent.Wait() })
	write(t, dir, string(Stdout), "some words")
	write(t, dir, string(Stderr), "")

	_, got := adoptKnown(t, dir, Known{Marker: marker, BootID: "earlier"})

	require.Equal(t, Lost, got.Outcome)
	require.Contains(t, got.Reason, "the host was restarted")
	require.Equal(t, int64(10), got.Stdout.Bytes)
	require.True(t, alive(innocent.Process.Pid))
}

// While the record cannot be written the exit is told all the same, also to
// whoever asks later; and the record follows.
func TestExitIsToldThoughTheRecordFails(t *testing.T) {
	t.Parallel()
	ownMounts(t, obstructRecord)
}

func obstructRecord(t *testing.T) {
	a, dir := start(t, sh("sleep 600"))
	obstacle := filepath.Join(dir, attempt.ExitFile+".tmp")
	require.NoError(t, os.Remove(obstacle))
	require.NoError(t, os.Mkdir(obstacle, 0o700))
	require.NoError(t, unix.Mount("tmpfs", obstacle, "tmpfs", 0, "size=1m"))

	require.NoError(t, a.Kill(t.Context(), "now", 0))

	late, _ := adopt(t, dir)
	require.Equal(t, ended(t, a), ended(t, late))
	require.NoError(t, errors.Join(unix.Unmount(obstacle, unix.MNT_DETACH), os.Remove(obstacle)))
	require.NoError(t, a.Close())
	_, recorded := adoptKnown(t, dir, Known{Killed: true})
	require.Equal(t, a.Exit(), *recorded)
}

// An agent of the same user that puts a pipe in the place of its record keeps
// neither its shim nor its spoke waiting for ever.
func TestPipeInPlaceOfTheRecord(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	draft := filepath.Join(dir, attempt.ExitFile+".tmp")
	require.NoError(t, os.Remove(draft))
	require.NoError(t, unix.Mkfifo(draft, 0o600))

	require.NoError(t, a.Kill(t.Context(), "enough", 0))

	require.NoError(t, a.Close())
	eventually(t, "the record", func() bool { exit, err := readExit(dir); return err == nil && exit != nil })
}

// The room for the record is there before an agent can fill the disk.
func TestRoomForTheRecordIsReserved(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	var draft unix.Stat_t

	require.NoError(t, unix.Stat(filepath.Join(dir, attempt.ExitFile+".tmp"), &draft))

	require.GreaterOrEqual(t, draft.Blocks*512, int64(32<<10))
	require.NoError(t, a.Kill(t.Context(), "enough", 0))
	require.NoError(t, a.Close())
	require.NoFileExists(t, filepath.Join(dir, attempt.ExitFile+".tmp"))
	exit, err := readExit(dir)
	require.NoError(t, err)
	require.Equal(t, a.Exit(), *exit)
}

func TestBrokenConnectionIsMadeAgain(t *testing.T) {
	t.Parallel()
	a, _ := start(t, sh("sleep 600"))
	a.sending.Lock()
	old := a.w
	require.NoError(t, old.Close())
	a.sending.Unlock()
	eventually(t, "a new connection", func() bool {
		a.sending.Lock()
		defer a.sending.Unlock()
		return a.w != old
	})

	require.NoError(t, a.Kill(t.Context(), "over the new one", 0))

	require.Equal(t, "over the new one", ended(t, a).Reason)
}

func TestRemovedDirectory(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh(`trap "" TERM; sleep 600`))
	require.NoError(t, os.RemoveAll(dir))

	require.NoError(t, a.Kill(t.Context(), "still works", 0))

	require.Equal(t, Killed, ended(t, a).Outcome)
	require.NoError(t, a.Close())
}

func TestAdoptionGivenUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := saveSpec(dir, sh("exit 0"))
	require.NoError(t, err)
	lock, err := attempt.TakeLock(dir) // as a shim that gets no processor
	require.NoError(t, err)
	defer attempt.Release(lock)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()

	_, _, err = Adopt(ctx, dir, Known{})

	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), 2*time.Second)
}
