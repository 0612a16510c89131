package supervisor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// impostorArg makes the test binary a process that ends the shim of an attempt, has
// lock and socket in its place, and answers as it would.
const impostorArg = "_impostor"

func beImpostor(dir, token, marker string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	shim := 0
	_, err := fmt.Fscan(strings.NewReader(os.Args[5]), &shim)
	must(err)
	must(os.Chdir(dir))
	for _, name := range []string{attempt.LockFile, attempt.SocketFile} {
		must(os.Rename(name, name+".old"))
	}
	_, err = attempt.TakeLock(".")
	must(err)
	socket, err := net.Listen("unix", attempt.SocketFile)
	must(err)
	must(syscall.Kill(shim, syscall.SIGKILL))
	fmt.Println(os.Getpid())
	s := &shimAnswer{attempt.Attempt{Spec: Spec{Marker: marker}, Token: token}}
	s.serve(socket)
}

type shimAnswer struct{ of attempt.Attempt }

func (s *shimAnswer) serve(socket net.Listener) {
	go func() { time.Sleep(time.Minute); os.Exit(0) }()
	for {
		conn, err := socket.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() {
			w := attempt.NewConn(conn)
			if w.Verify(s.of.Secret()) == nil {
				_ = w.SendReport(attempt.Report{Running: &attempt.Running{Pid: os.Getpid(), Shim: os.Getpid()}})
			}
		}()
	}
}

// impersonate puts an impostor in the place of the shim. It is of no tree: neither
// marker nor cgroup nor parent leads to it.
func impersonate(t *testing.T, dir, token, marker string, shim int) (pid int) {
	t.Helper()
	c := exec.Command(os.Args[0], impostorArg, dir, token, marker, fmt.Sprint(shim))
	c.Env = []string{}
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	_, err = fmt.Fscan(out, &pid)
	require.NoError(t, err)
	return pid
}

// A process that plays the shim is no shim: the attempt ends, soon, whoever looks.
func TestAnImpostorIsNoShim(t *testing.T) {
	t.Parallel()
	t.Run("while its spoke looks", func(t *testing.T) {
		t.Parallel()
		a, dir := start(t, sh("sleep 600"))

		impersonate(t, dir, a.saved.Token, a.Marker(), a.run.Shim)

		got := ended(t, a)
		require.Equal(t, Lost, got.Outcome)
		require.ErrorContains(t, got.Damage, "the lock is held by a process that is not the shim")
		require.False(t, alive(a.Pid()))
	})
	for name, known := range map[string]bool{"of a shim that is known": true, "of one that is not": false} {
		t.Run("while no spoke runs, "+name, func(t *testing.T) {
			t.Parallel()
			a, dir := start(t, sh("sleep 600"))
			about := Known{Marker: a.Marker()}
			if known {
				about.Shim = a.Shim()
			}
			saved := a.saved
			require.NoError(t, a.Close())
			impersonate(t, dir, saved.Token, saved.Marker, a.run.Shim)

			b, exit, err := Adopt(t.Context(), dir, about)

			require.NoError(t, err)
			require.Nil(t, b)
			require.Equal(t, Lost, exit.Outcome)
			require.False(t, alive(a.Pid()))
		})
	}
}

// Whose socket is in the place of the shim's is nobody to be ended.
func TestTheOwnerOfABorrowedSocketLives(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	other := t.TempDir()
	require.NoError(t, a.Close())
	require.NoError(t, os.Rename(filepath.Join(dir, attempt.SocketFile), filepath.Join(dir, "old")))
	owner := exec.Command(os.Args[0], attempt.ShimArg, other, newMarker(), deafArg)
	owner.Env = []string{}
	out, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	t.Cleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })
	_, err = fmt.Fscan(out, new(string))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(filepath.Join(other, attempt.SocketFile), filepath.Join(dir, attempt.SocketFile)))

	_, exit, err := Adopt(t.Context(), dir, Known{Marker: a.Marker(), Shim: a.Shim()})

	require.NoError(t, err)
	require.Equal(t, Lost, exit.Outcome)
	require.True(t, alive(owner.Process.Pid))
	require.False(t, alive(a.Pid()))
	require.False(t, alive(a.run.Shim))
}

// Of a start that cannot be proven the shim is known: whoever plays it is not taken for it, and keeps nobody waiting.
func TestAnImpostorAfterAStartThatIsNotProven(t *testing.T) {
	t.Parallel()
	ownMounts(t, func(t *testing.T) {
		disk := t.TempDir()
		require.NoError(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "nr_inodes=60"))
		t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
		dir, spec := filepath.Join(disk, "attempt"), sh("sleep 30")
		spec.Marker, spec.NoCgroup = newMarker(), true
		saved, err := saveSpec(dir, spec)
		require.NoError(t, err)
		w, shim, err := forkShim(dir, spec)
		require.NoError(t, err)
		crowd(t, disk)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		_, err = prove(ctx, dir, saved, w, shim)

		left, ok := errors.AsType[*UnprovenError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, shim.Pid, left.Shim.Pid)
		for i := range 5 {
			require.NoError(t, os.Remove(filepath.Join(disk, fmt.Sprint("f", i))))
		}
		_ = os.Remove(filepath.Join(dir, attempt.SocketFile))
		impostor := exec.Command(os.Args[0], attempt.ShimArg, dir, spec.Marker, deafArg)
		impostor.Env = []string{}
		out, err := impostor.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, impostor.Start())
		t.Cleanup(func() { _ = impostor.Process.Kill(); _ = impostor.Wait() })
		_, err = fmt.Fscan(out, new(string))
		require.NoError(t, err)

		_, exit := adoptKnown(t, dir, Known{Marker: spec.Marker, Shim: left.Shim, Began: true})

		require.Equal(t, Lost, exit.Outcome)
		require.ErrorContains(t, exit.Damage, "the lock is held by a process that is not the shim")
	})
}

// A spoke believes of a record what it does not know better.
func TestRecordsThatTheSpokeKnowsBetter(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		record, known Outcome
		about         Known
	}{
		"a kill that nobody ordered":           {Killed, Lost, Known{Began: true}},
		"a kill that was ordered":              {Killed, Killed, Known{Began: true, Killed: true}},
		"a timeout that is to come":            {TimedOut, Lost, Known{Began: true}},
		"a timeout":                            {TimedOut, TimedOut, Known{Began: true, Over: true}},
		"no start of an agent that had begun":  {NeverStarted, Lost, Known{Began: true}},
		"a start that failed, but had not":     {StartFailed, Lost, Known{Began: true}},
		"a start that failed":                  {StartFailed, StartFailed, Known{}},
		"an end":                               {Exited, Exited, Known{Began: true}},
		"an end before the beginning":          {Exited, Lost, Known{Found: true}},
		"no start, told before the beginning":  {NeverStarted, Lost, Known{Found: true}},
		"a kill that was told before it began": {Killed, Killed, Known{Found: true, Killed: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, attempt.ExitFile, fmt.Sprintf(`{"outcome":%q}`, tt.record))

			_, exit := adoptKnown(t, dir, tt.about)

			require.Equal(t, tt.known, exit.Outcome)
			require.Equal(t, tt.known != tt.record, exit.Damage != nil)
		})
	}
}

// An agent that kills its shim before that has told of the start has begun all the
// same, whatever it makes of its directory.
func TestAStartThatTheAgentDenies(t *testing.T) {
	t.Parallel()
	// QUIT takes a moment, in which the shim may see that the agent has ended.
	for signal, ends := range map[string][]Outcome{"KILL": {Lost}, "QUIT": {Lost, Exited}} {
		lostAtItsStart(t, ends, `printf '{"outcome":"start_failed"}' >"$0/exit.json"; rm -f "$0/stderr"; kill -`+signal+` $PPID; kill -CONT $PPID`)
	}
}

// An agent that removes, or spoils, all that would prove its start and its end has begun, and is lost.
func TestAStartWithoutProofsHasBegun(t *testing.T) {
	t.Parallel()
	for name, deed := range map[string]string{
		"no directory":       `rm -rf "$0"`,
		"a link to nowhere":  `rm -rf "$0"; ln -s /nowhere "$0"`,
		"a lock that is run": `rm "$0/lock"; cp /bin/sleep "$0/lock"; setsid "$0/lock" 30 &`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lostAtItsStart(t, []Outcome{Lost}, deed+"\nkill -KILL $PPID; sleep 30")
		})
	}
}

// lostAtItsStart starts an agent that does a deed to its directory, $0, and its shim, until that could not tell of the start before. Where
// it could, the agent ends in one of some ways. Stopped first, the shim tells nobody while the agent does the rest.
func lostAtItsStart(t *testing.T, ends []Outcome, deed string) {
	t.Helper()
	for range 200 {
		dir := filepath.Join(t.TempDir(), "attempt")
		spec := sh("kill -STOP $PPID; " + deed)
		spec.Argv = append(spec.Argv, dir)

		a, err := Start(t.Context(), dir, spec)

		if err == nil { // the shim was faster
			require.Contains(t, ends, ended(t, a).Outcome)
			continue
		}
		var begun *BegunError
		require.ErrorAs(t, err, &begun)
		require.Equal(t, Lost, begun.Exit.Outcome)
		return
	}
	require.FailNow(t, "the shim was always faster")
}

// A file without end keeps nobody: the tree of a dead shim is ended, and what is read
// is what a shim can have written.
func TestOutputWithoutEnd(t *testing.T) {
	t.Parallel()
	t.Run("of a shim that was killed", func(t *testing.T) {
		t.Parallel()
		spec, dir, file := escaping(t, `truncate -s 4T "$0/stdout"`)
		spec.OutputCap = 100
		a, err := Start(t.Context(), dir, spec)
		require.NoError(t, err)
		endAfter(t, a)
		child := escaped(t, dir, file)

		got := ended(t, a)

		require.Equal(t, Lost, got.Outcome)
		require.False(t, alive(child))
		require.LessOrEqual(t, got.Stdout.Size, int64(100+2*attempt.NoteRoom))
		info, err := os.Stat(filepath.Join(dir, string(Stdout)))
		require.NoError(t, err)
		require.Equal(t, got.Stdout.Size, info.Size())
		data, err := os.ReadFile(filepath.Join(dir, string(Stdout)))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%x", sha256.Sum256(data)), got.Stdout.SHA256)
	})
	t.Run("of one that was not", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "attempt")
		spec := sh(`truncate -s 4T "$0/stdout"; echo bye`)
		spec.Argv = append(spec.Argv, dir)
		a, err := Start(t.Context(), dir, spec)
		require.NoError(t, err)
		ended(t, a)
		require.NoError(t, a.Close())

		p, err := Read(dir, Stdout, 0, 100, 0)

		require.NoError(t, err)
		require.Equal(t, "bye\n", string(p.Data))
		require.True(t, p.Ended)
	})
	t.Run("while it runs", func(t *testing.T) {
		t.Parallel()
		_, dir := start(t, sh("sleep 600"))
		require.NoError(t, os.Truncate(filepath.Join(dir, string(Stdout)), 4<<40))

		p, err := Read(dir, Stdout, 100, 1<<20, 200)

		require.NoError(t, err)
		require.Len(t, p.Data, 100+attempt.NoteRoom)
		require.False(t, p.Ended)
	})
}

// The cgroup of an attempt is found without a word of its agent.
func TestCgroupIsFoundWithoutItsLink(t *testing.T) {
	t.Parallel()
	if hostLevel(t) != attempt.LevelCgroup {
		group, err := tree.FindGroup(newMarker(), "")
		require.NoError(t, err)
		require.Nil(t, group)
		return
	}
	file := filepath.Join(t.TempDir(), "pid")
	spec := sh(`(env -i setsid sh -c 'echo $$ >"$0"; exec sleep 600' "$0" &); sleep 600`)
	spec.Argv = append(spec.Argv, file)
	a, dir := start(t, spec)
	child := pids(t, file, 1)[0]
	require.NoError(t, os.Remove(filepath.Join(dir, attempt.CgroupLink)))

	require.NoError(t, a.shim.Kill())

	require.Equal(t, Lost, ended(t, a).Outcome)
	require.False(t, alive(child))
}
