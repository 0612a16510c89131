package isolation

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/isolation/attack"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// asRoot reports whether agents can have users of their own. Where they cannot, no level with
// one is claimed.
func asRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return true
	}
	i := open(t, openDir(t))
	require.ErrorContains(t, i.Fault(commands.IsolationUser), "root")
	require.ErrorContains(t, i.Fault(commands.IsolationUserLandlock), "root")
	return false
}

// openDir is a data directory that every user can get to.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "isolation")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// open gives agents users that no other test has, whatever an earlier run has left.
func open(t *testing.T, dir string) *Isolation {
	t.Helper()
	var named int64
	if os.Geteuid() == 0 {
		named = freeRange(t)
	}
	i := Open(dir, named)
	t.Cleanup(func() { require.NoError(t, i.Close()) })
	return i
}

// requireHeldHere is requireHeld where a host has what the level takes, which is no part of every
// system: then its fault says what is missing.
func requireHeldHere(t *testing.T, i *Isolation, level string) {
	t.Helper()
	if hasBubble(level) && i.bubble == "" {
		require.ErrorContains(t, i.Fault(level), "package bubblewrap")
		return
	}
	requireHeld(t, i, level)
}

// requireHeld tries every attack at a level, also those that the level does not claim to hold.
func requireHeld(t *testing.T, i *Isolation, level string) {
	t.Helper()
	require.NoError(t, i.Fault(level))
	got, err := i.Attack(t.Context(), level)
	require.NoError(t, err)
	for _, a := range attack.All() {
		if a.Holds(hasBubble(level), hasUser(level), abiOf(level)) {
			require.False(t, got[a.Name], "at %s an agent can %s", level, a.What)
		}
	}
}

func TestWhatAUserHolds(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	i := open(t, openDir(t))
	for _, level := range []string{commands.IsolationUser, commands.IsolationUserLandlock, commands.IsolationUserBubble} {
		requireHeldHere(t, i, level)
	}
	for _, level := range []string{commands.IsolationLandlock, commands.IsolationBubble} {
		require.ErrorContains(t, i.Fault(level), "root is not confined")
	}
}

func TestWhatLandlockHolds(t *testing.T) {
	t.Parallel()
	unprivileged(t, func(t *testing.T) {
		i := open(t, openDir(t))
		requireHeldHere(t, i, commands.IsolationLandlock)
		requireHeldHere(t, i, commands.IsolationBubble)
		for _, level := range []string{commands.IsolationUser, commands.IsolationUserLandlock, commands.IsolationUserBubble} {
			require.ErrorContains(t, i.Fault(level), "root")
			_, err := i.Take(level, Dirs{}, Reach{})
			require.ErrorContains(t, err, "does not hold")
		}
	})
}

// kept are what a kernel or a container may keep from everybody.
var kept = map[string]bool{
	"read-memory": true, "open-by-handle": true, "make-device": true, "leave-cgroup": true, "trace-spoke": true, "trace-shim": true, "copy-memory": true, "take-file": true,
	"spoil-score": true, "read-root-home": true, "write-programs": true, "read-shadow": true, "through-root": true, "shared-memory": true, "signal-init": true, "link-secret": true,
}

// An attack that is refused to everybody shows nothing: without isolation they get through.
func TestTheAttacksAreReal(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	got, err := open(t, openDir(t)).Attack(t.Context(), commands.IsolationNone)
	require.NoError(t, err)

	through := 0
	for _, a := range attack.All() {
		if got[a.Name] {
			through++
		} else if a.Local() {
			require.True(t, kept[a.Name], "without isolation an agent of root cannot %s", a.What)
		}
	}
	require.Greater(t, through, 40)
}

// A probe is believed, and not what ought to hold.
func TestALevelThatDoesNotHoldIsNotClaimed(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t)
	i := open(t, dir)
	i.grants = func(c supervisor.Confine) supervisor.Confine { return supervisor.Confine{} }

	err := i.probe(t.Context(), commands.IsolationUserLandlock)

	require.ErrorContains(t, err, "a program that tried it could")
	require.ErrorContains(t, err, "read-secret")
}

// A level that could not be tried out for want of open files is tried out again. It has not been found to hold, nor not to.
func TestALevelThatCouldNotBeTriedIsTriedAgain(t *testing.T) {
	t.Parallel()
	unprivileged(t, func(t *testing.T) {
		const level = commands.IsolationLandlock
		i := open(t, openDir(t))
		if supervisor.LandlockABI() == 0 {
			require.ErrorContains(t, i.Fault(level), "no Landlock")
			require.Empty(t, i.Untried())
			return
		}
		var was unix.Rlimit
		require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was))
		given := i.grants
		i.grants = func(c supervisor.Confine) supervisor.Confine {
			_ = unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}, nil)
			return c
		}

		holds := i.try(t.Context(), level)

		require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil))
		i.grants = given
		require.False(t, holds)
		require.ErrorContains(t, i.Fault(level), "too many open files")
		require.ErrorContains(t, i.Fault(level), "it is tried again")
		require.Equal(t, []string{level}, i.Untried())
		require.Equal(t, []string{level}, i.TryAgain(t.Context()))
		require.NoError(t, i.Fault(level))
		require.Empty(t, i.Untried())
	})
}

// What a bubble keeps an agent by is tried out part by part.
func TestABubbleThatDoesNotHoldIsNotClaimed(t *testing.T) {
	t.Parallel()
	unprivileged(t, func(t *testing.T) {
		i := open(t, openDir(t))
		if i.bubble == "" {
			require.ErrorContains(t, i.Fault(commands.IsolationBubble), "package bubblewrap")
			return
		}
		for leave, through := range map[string]string{"--unshare-pid": "signal-spoke", "--unshare-ipc": "shared-memory", "--unshare-net": "connect-port", "--tmp": "write-shared"} {
			i.grants = func(c supervisor.Confine) supervisor.Confine {
				c.Wrap = slices.DeleteFunc(slices.Clone(c.Wrap), func(arg string) bool { return arg == leave })
				if leave == "--tmp" { // the host's in its place
					c.Wrap = slices.Insert(c.Wrap, len(c.Wrap)-1, "--bind", "/tmp", "/tmp")
				}
				return c
			}
			err := i.probe(t.Context(), commands.IsolationBubble)
			require.ErrorContains(t, err, through, leave)
		}
	})
}

// The first attempt of an instance finds nothing made, whoever its spoke runs as.
func TestTheDirectoriesOfAnAttemptAreMade(t *testing.T) {
	t.Parallel()
	for level, mode := range map[string]os.FileMode{commands.IsolationNone: 0o700, commands.IsolationLandlock: 0o700, commands.IsolationUser: 0o711} {
		dir := filepath.Join(t.TempDir(), "agents", "task", "1")
		d := Dirs{Work: filepath.Join(dir, "work"), Temp: filepath.Join(dir, "tmp"), Home: filepath.Join(dir, "home")}

		require.NoError(t, MakeDirs(level, dir, d))
		require.NoError(t, MakeDirs(level, dir, d), "an earlier process may have made them")

		for path, want := range map[string]os.FileMode{filepath.Dir(dir): mode, dir: mode, d.Work: 0o700, d.Temp: 0o700, d.Home: 0o700} {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, want, info.Mode().Perm(), path)
		}
	}
}

// What a probe leaves that was killed is not kept for ever.
func TestWhatAProbeLeftIsRemoved(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "probe-1", "data"), 0o700))

	open(t, dir)

	left, err := filepath.Glob(filepath.Join(dir, "probe-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAClosedWayIsSaid(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	closed := openDir(t)
	require.NoError(t, os.Chmod(closed, 0o700))
	dir := filepath.Join(closed, "data")
	require.NoError(t, os.Mkdir(dir, 0o700))

	i := open(t, dir)

	require.ErrorContains(t, i.Fault(commands.IsolationUser), "run: chmod o+x "+closed)
	require.ErrorContains(t, i.Fault(commands.IsolationUserLandlock), closed)
}

// agent runs a shell as an agent at level user, and returns its user and directories.
func agent(t *testing.T, i *Isolation, dir, script string) (supervisor.User, Dirs) {
	t.Helper()
	d := Dirs{Work: filepath.Join(dir, "work"), Temp: filepath.Join(dir, "tmp"), Home: filepath.Join(dir, "home")}
	require.NoError(t, MakeDirs(commands.IsolationUser, dir, d))
	c, err := i.Take(commands.IsolationUser, d, Reach{})
	require.NoError(t, err)
	a, err := supervisor.Start(t.Context(), filepath.Join(dir, "control"), supervisor.Spec{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: d.Work, Confine: c})
	require.NoError(t, err)
	require.Equal(t, 0, a.Exit().Code)
	require.NoError(t, a.Close())
	return c.User, d
}

// What an agent has left anywhere is gone before another one gets its user.
func TestNothingOfAUserIsLeftToTheNext(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t)
	i := open(t, dir)
	name := "left-" + filepath.Base(dir)
	u, d := agent(t, i, filepath.Join(dir, "agents", "task", "1"), `for d in /tmp /dev/shm /var/tmp; do mkdir -p $d/`+name+`/sub; echo x >$d/`+name+`/sub/file; done; ipcmk -M 4096 >/dev/null; echo x >file; chmod 755 .`)
	require.FileExists(t, filepath.Join("/tmp", name, "sub", "file"))
	require.Equal(t, u, found(t, i, d.Home))

	i.Release(u, d)
	i.Settle()

	for _, shared := range []string{"/tmp", "/dev/shm", "/var/tmp"} {
		require.NoDirExists(t, filepath.Join(shared, name))
	}
	raw, err := os.ReadFile("/proc/sysvipc/shm")
	require.NoError(t, err)
	require.NotContains(t, string(raw), strconv.FormatInt(u.ID, 10))
	require.Zero(t, found(t, i, d.Home), "its directories are the spoke's")
	info, err := os.Stat(d.Work)
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o700, info.Mode(), "and closed: a program with the user's rights may be in one")
	require.FileExists(t, filepath.Join(d.Work, "file"), "for the host to look at")
}

// An agent is kept from the directories of the next one by its user alone.
func TestAnAgentHasItsDirectoriesForItself(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t)
	i := open(t, dir)
	first := filepath.Join(dir, "agents", "task", "1")
	one, d := agent(t, i, first, `echo mine >file`)

	other, _ := agent(t, i, filepath.Join(dir, "agents", "task", "2"), `for d in work tmp home control; do ls "`+first+`/$d" && exit 1; done; cat `+filepath.Join(d.Work, "file")+`; [ $? -eq 1 ]`)

	require.NotEqual(t, one.ID, other.ID)
	require.FileExists(t, filepath.Join(d.Work, "file"))
}

// What the kernel keeps for a user by itself is none of the next agent's.
func TestKeysOfAUserAreNotLeftToTheNext(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t)
	i := open(t, dir)
	held := `import ctypes, sys
call = ctypes.CDLL(None, use_errno=True).syscall
if sys.argv[1] == "add": print(call(248, b"user", b"name", b"secret", 6, -4) > 0)
else: print(call(250, 10, -4, b"user", b"name", 0) > 0)`
	u, d := agent(t, i, filepath.Join(dir, "agents", "task", "1"), "python3 -c '"+held+"' add")
	require.Equal(t, "True\n", stdout(t, dir, "1"))
	has := func(n string) string {
		p := filepath.Join(dir, "agents", "task", n)
		own := Dirs{Work: filepath.Join(p, "work"), Temp: filepath.Join(p, "tmp"), Home: filepath.Join(p, "home")}
		require.NoError(t, MakeDirs(commands.IsolationUser, p, own))
		require.NoError(t, give(u.ID, own.list()))
		a, err := supervisor.Start(t.Context(), filepath.Join(p, "control"), supervisor.Spec{Argv: []string{"/bin/sh", "-c", "python3 -c '" + held + "' find"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: own.Work, Confine: supervisor.Confine{User: u}})
		require.NoError(t, err)
		require.Equal(t, 0, a.Exit().Code)
		require.NoError(t, a.Close())
		return stdout(t, dir, n)
	}
	require.Equal(t, "True\n", has("2"), "a key of a user is there for its next agent")

	i.Release(u, d)
	i.Settle()

	require.Empty(t, i.Kept())
	require.Equal(t, "False\n", has("3"))
}

func stdout(t *testing.T, dir, n string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "agents", "task", n, "control", string(supervisor.Stdout)))
	require.NoError(t, err)
	return string(raw)
}

// A user that still has a process is nobody else's.
func TestAUserThatHasAProcessStaysTaken(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t)
	i := open(t, dir)
	u, d := agent(t, i, filepath.Join(dir, "agents", "task", "1"), `true`)
	stray := exec.Command("/bin/sleep", "300")
	stray.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.ID), Gid: uint32(u.ID)}}
	require.NoError(t, stray.Start())
	t.Cleanup(func() { _ = stray.Process.Kill(); _, _ = stray.Process.Wait() })

	i.Release(u, d)
	i.Settle()

	require.ErrorContains(t, i.Kept()[u.ID], "are left")
	require.True(t, i.users.taken[u.ID])
	require.Equal(t, u, found(t, i, d.Home), "the next process keeps it, too")
	require.True(t, i.Releases(u.ID, d))
	state, err := stray.Process.Wait()
	require.NoError(t, err)
	require.Equal(t, "signal: killed", state.String(), "nothing else has a user of an agent's: it is ended")
	i.Settle()
	require.Empty(t, i.Kept())
	require.False(t, i.users.taken[u.ID])
	require.False(t, i.Releases(u.ID, d))
}

// A process that comes later gives no user away that an agent of an earlier one has, or has had
// until nobody was left to take it back.
func TestUsersOfAnEarlierProcessStayTaken(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t)
	named := freeRange(t)
	earlier := Open(dir, named)
	over, d := agent(t, earlier, filepath.Join(dir, "agents", "task", "1"), `true`)
	running := earlier.users.user(earlier.users.first + 1 + (over.ID-earlier.users.first)%(rangeUsers-1))
	stray := exec.Command("/bin/sleep", "300")
	stray.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(running.ID), Gid: uint32(running.ID)}}
	require.NoError(t, stray.Start())
	t.Cleanup(func() { _ = stray.Process.Kill(); _, _ = stray.Process.Wait() })
	require.NoError(t, earlier.Close())

	later := Open(dir, named)
	t.Cleanup(func() { require.NoError(t, later.Close()) })

	require.True(t, later.users.taken[over.ID], "its home is still there")
	require.True(t, later.users.taken[running.ID], "it runs")
	later.Release(over, d)
	later.Settle()
	require.False(t, later.users.taken[over.ID])
}

// A user that nothing is left of is given away again when no other one is there.
func TestUsersThatAreOverAreEnough(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t)
	i := open(t, dir)
	i.Settle() // the users of the probes
	u, d := agent(t, i, filepath.Join(dir, "agents", "task", "1"), `true`)
	for id := u.ID; i.users.holds(id); id++ {
		i.users.keep(id)
	}
	for id := u.ID - 1; i.users.holds(id); id-- {
		i.users.keep(id)
	}
	next := Dirs{Work: filepath.Join(dir, "agents", "task", "2", "work"), Temp: filepath.Join(dir, "agents", "task", "2", "tmp"), Home: filepath.Join(dir, "agents", "task", "2", "home")}
	require.NoError(t, MakeDirs(commands.IsolationUser, filepath.Join(dir, "agents", "task", "2"), next))
	_, err := i.Take(commands.IsolationUser, next, Reach{})
	require.ErrorContains(t, err, "are taken")

	i.Release(u, d)
	c, err := i.Take(commands.IsolationUser, next, Reach{})

	require.NoError(t, err)
	require.Equal(t, u, c.User)
}

// unprivileged runs body as a user that is not root: here, unless the tests are root's, and
// then in a process of its own.
func unprivileged(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	const again, nobody = "SPAWNMESH_TEST_AGAIN", 65534
	if os.Geteuid() != 0 {
		body(t)
		return
	}
	home := openDir(t)
	require.NoError(t, os.Chown(home, nobody, nobody))
	c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	c.Dir, c.Env = home, []string{"TMPDIR=" + home, "HOME=" + home, "PATH=/usr/bin:/bin", again + "=" + t.Name()}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	require.NoError(t, c.Run(), "%s", &out)
	require.Contains(t, out.String(), "--- PASS: "+t.Name())
}

// A bubble has the links by which its host named a directory, and no link that was judged is followed again.
func TestABubbleHasTheNamesOfItsHost(t *testing.T) {
	t.Parallel()
	i := &Isolation{bubble: "/usr/bin/bwrap"}

	w := i.wrap(Dirs{Work: "/a/work", Temp: "/a/tmp", Home: "/a/home", Door: "/a/door"}, Reach{
		Read: []string{"/data/tools", "/data/go"}, Write: []string{"/data/job"}, AnyPort: true,
		Names: map[string]string{"/data/tools": "/usr/local/tools", "/data/job": "/srv/job"},
	})

	args := strings.Join(w, " ")
	require.Contains(t, args, " --ro-bind-try /data/tools /data/tools --ro-bind-try /data/go /data/go ")
	require.Contains(t, args, " --bind-try /data/job /data/job --bind-try /data/job /srv/job ")
	require.Contains(t, args, " --ro-bind /a/door /a/door ", "it reads what its door is, and changes nothing of it")
	require.NotContains(t, args, "/usr/local/tools", "the link is in /usr")
	own := Dirs{Work: "/a/work", Temp: "/a/tmp", Home: "/a/home"}
	r := Reach{Dir: "/data/job", Program: "/data/tool", Names: map[string]string{"/data/job": "/srv/job"}}
	args = strings.Join(i.wrap(own, r), " ")
	require.Contains(t, args, " --ro-bind /data/tool /data/tool ", "an old bubblewrap binds paths")
	require.Contains(t, args, " --bind /data/job /data/job --bind /data/job /srv/job --chdir /data/job ")
	i.bindsOpen = true
	args = strings.Join(i.wrap(own, r), " ")
	require.Contains(t, args, " --ro-bind-fd "+supervisor.OpenedProgram+" /data/tool ")
	require.Contains(t, args, " --bind-fd "+supervisor.OpenedDir+" /data/job --bind-fd "+supervisor.OpenedDir+" /srv/job --chdir /data/job ")
}
