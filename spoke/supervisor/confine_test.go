package supervisor

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// testUsers are users that nothing else on this host has, one a test.
var testUsers = User{ID: 1_878_000_000, Reaper: 1_877_999_999}

func userOf(n int64) User { return User{ID: testUsers.ID + n, Reaper: testUsers.Reaper} }

// asRoot reports whether an agent can be given a user of its own. Where it cannot, the start
// of one that is to have it says so.
func asRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return true
	}
	spec := sh("true")
	spec.Confine.User = userOf(0)
	_, err := Start(t.Context(), filepath.Join(t.TempDir(), "attempt"), spec)
	var failed *StartError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, HostFault, failed.Reason)
	return false
}

// openDir is a directory that every user can reach, and this one owns.
func openDir(t *testing.T, user User) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "confined")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if user.ID != 0 {
		require.NoError(t, os.Chown(dir, int(user.ID), int(user.ID)))
	}
	return dir
}

func output(t *testing.T, a *Agent, dir string) (string, Exit) {
	t.Helper()
	x := ended(t, a)
	out, err := os.ReadFile(filepath.Join(dir, string(Stdout)))
	require.NoError(t, err)
	return string(out), x
}

// A user of its own does not take all processes of the host.
func TestAUserOfItsOwnHasABoundOfProcesses(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	spec := sh(`ulimit -u 2>/dev/null || ulimit -p`)
	spec.Confine.User, spec.Dir = userOf(9), openDir(t, userOf(9))
	a, dir := start(t, spec)

	out, _ := output(t, a, dir)

	require.Equal(t, "8192\n", out)
}

// The kernel refuses processes above the limit of a user of its own, and counts no refusals: who fails at the limit is told it
// all the same, at once or after a while.
func TestAUserOfItsOwnIsToldItsLimitOfProcesses(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	for n, script := range map[int64]string{
		11: "for i in $(seq 40); do sleep 600 & done",             // one too many: seen at its end
		12: "for i in $(seq 19); do sleep 3 & done; wait; exit 3", // seen while they run
	} {
		spec := sh(script)
		spec.Confine.User, spec.Dir, spec.NoCgroup, spec.Limits.Pids = userOf(n), openDir(t, userOf(n)), true, 20
		a, dir := start(t, spec)

		_, x := output(t, a, dir)

		require.NotZero(t, x.Code)
		require.Equal(t, Breach{Limit: attempt.ProcessLimit, Unit: attempt.Processes, Allowed: 20, Measured: 20}, x.Breach, "%+v", x)
	}
}

func TestAnAgentHasAUserOfItsOwn(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	require.NoError(t, syscall.Setgroups([]int{0, 4})) // the agent is to have none of them
	user := userOf(1)
	spec := sh(`grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs)' /proc/self/status; umask; ulimit -Sn; ulimit -u 2>/dev/null || ulimit -p
echo by-name >/dev/stdout; grep -c . /proc/keys; ls /proc/self/fd | wc -l`)
	spec.Confine.User, spec.Dir, spec.Limits.Pids = user, openDir(t, user), 77
	a, dir := start(t, spec)
	require.Empty(t, a.Unlimited(), "of a user of its own the kernel counts the processes")

	out, x := output(t, a, dir)

	require.Equal(t, Exited, x.Outcome, "%+v", x)
	id := strconv.FormatInt(user.ID, 10)
	ids := strings.Join([]string{id, id, id, id}, "\t")
	for _, line := range []string{"Uid:\t" + ids, "Gid:\t" + ids, "Groups:\t \n", "NoNewPrivs:\t1", "0077", "1024", "\n77\n", "by-name"} {
		require.Contains(t, out, line)
	}
	for _, set := range []string{"Inh", "Prm", "Eff", "Bnd", "Amb"} {
		require.Contains(t, out, "Cap"+set+":\t0000000000000000\n")
	}
}

// The agent's user may not even look at the files that its shim keeps.
func TestAUserOfItsOwnReachesNothingOfTheAttempt(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	user := userOf(2)
	attempt := filepath.Join(openDir(t, User{}), "attempt")
	spec := sh(`cat ` + attempt + `/spec.json; kill -STOP $PPID; kill -KILL $PPID; for t in /proc/$PPID/task/*; do kill -KILL ${t##*/}; done; cat /proc/$PPID/environ; echo here`)
	spec.Confine.User, spec.Dir = user, openDir(t, user)
	a, err := Start(t.Context(), attempt, spec)
	require.NoError(t, err)
	endAfter(t, a)

	out, x := output(t, a, attempt)

	require.Equal(t, "here\n", out)
	require.Equal(t, Exited, x.Outcome)
}

// A kill ends whatever has the user: it left session, cgroup and tree, has no marker any more,
// ignores TERM, and its shim is dead.
func TestNothingOfAUserSurvives(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	user := userOf(3)
	for name, shot := range map[string]bool{"with its shim": false, "without its shim": true} {
		t.Run(name, func(t *testing.T) {
			spec := sh(`trap '' TERM; for i in 1 2 3 4 5; do (setsid env -i sh -c 'trap "" TERM; sleep 300 & sleep 300' &) ; done; echo up; sleep 300`)
			spec.Confine.User, spec.Dir = user, openDir(t, user)
			a, dir := start(t, spec)
			require.Eventually(t, func() bool {
				out, _ := os.ReadFile(filepath.Join(dir, string(Stdout)))
				return string(out) == "up\n"
			}, 10*time.Second, time.Millisecond)
			if shot {
				require.NoError(t, a.shim.Kill())
			} else {
				require.NoError(t, a.Kill(t.Context(), "test", 0))
			}

			x := ended(t, a)

			require.Empty(t, x.Survivors)
			left, err := RunningUsers(user.ID, user.ID)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// What a dead spoke and a dead shim have left is found by the user alone.
func TestAnAdoptionEndsWhatHasTheUser(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	user := userOf(4)
	stray, err := os.StartProcess("/bin/sleep", []string{"sleep", "300"}, &os.ProcAttr{Env: []string{}, Sys: asUser(user.ID)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = stray.Kill(); _, _ = stray.Wait() })

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	reaped := make(chan error, 1)
	go func() { _, err := stray.Wait(); reaped <- err }()
	_, x, err := Adopt(ctx, filepath.Join(t.TempDir(), "attempt"), Known{User: user, Began: true})

	require.NoError(t, err)
	require.Equal(t, Lost, x.Outcome)
	require.NoError(t, <-reaped)
}

// A host's own processes are no business of a kill by user.
func TestAKillByUserEndsNoOther(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	user, other := userOf(5), userOf(6)
	stray, err := os.StartProcess("/bin/sleep", []string{"sleep", "300"}, &os.ProcAttr{Env: []string{}, Sys: asUser(other.ID)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = stray.Kill(); _, _ = stray.Wait() })
	spec := sh(`sleep 300`)
	spec.Confine.User, spec.Dir = user, openDir(t, user)
	a, _ := start(t, spec)

	require.NoError(t, a.Kill(t.Context(), "test", 0))

	p, err := tree.ReadProcess(stray.Pid)
	require.NoError(t, err)
	require.False(t, p.Gone())
}

func TestLandlockKeepsAnAgentToItsPaths(t *testing.T) {
	t.Parallel()
	require.Positive(t, LandlockABI(), "this kernel has no Landlock in force: boot it with lsm=landlock,...")
	outside, inside := openDir(t, User{}), openDir(t, User{})
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("canary"), 0o644))
	spec := sh(`cat ` + outside + `/secret; echo x >` + outside + `/new; ls ` + outside + `; ls / ; kill -0 $PPID && echo signalled
echo kept >file && cat file; kill -0 $$ && echo own`)
	spec.Dir = inside
	spec.Confine = Confine{Landlock: true, Read: []string{"/usr", "/bin", "/lib", "/lib64", "/etc", "/dev/null"}, Write: []string{inside}}
	a, dir := start(t, spec)

	out, x := output(t, a, dir)

	require.Equal(t, 0, x.Code)
	require.Equal(t, "kept\nown\n", out)
	require.NoFileExists(t, filepath.Join(outside, "new"))
}

// A path is judged without symbolic links: one that was put in its place, or on the way, since then opens nothing.
func TestLandlockFollowsNoLink(t *testing.T) {
	t.Parallel()
	outside, inside := openDir(t, User{}), openDir(t, User{})
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("canary"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(outside, "sub"), 0o755))
	link, onTheWay := filepath.Join(inside, "link"), filepath.Join(inside, "way", "sub")
	require.NoError(t, os.Symlink(outside, link))
	require.NoError(t, os.Symlink(outside, filepath.Dir(onTheWay)))
	spec := sh(`cat link/secret; echo x >link/new; echo x >way/sub/new; echo kept >file && cat file`)
	spec.Dir = inside
	spec.Confine = Confine{Landlock: true, Read: []string{"/usr", "/bin", "/lib", "/lib64", "/etc", "/dev/null", link}, Write: []string{inside, link, onTheWay}}
	for i, dir := range spec.Confine.Read { // those of the system may be links
		if real, err := filepath.EvalSymlinks(dir); err == nil && dir != link {
			spec.Confine.Read[i] = real
		}
	}
	a, dir := start(t, spec)

	out, x := output(t, a, dir)

	require.Equal(t, 0, x.Code)
	require.Equal(t, "kept\n", out)
	require.NoFileExists(t, filepath.Join(outside, "new"))
	require.NoFileExists(t, filepath.Join(outside, "sub", "new"))
}

func TestLandlockKeepsAnAgentToItsPorts(t *testing.T) {
	t.Parallel()
	require.GreaterOrEqual(t, LandlockABI(), 4, "this kernel's Landlock knows no ports: use Linux 6.7 or later")
	port := func() (int64, func()) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return int64(l.Addr().(*net.TCPAddr).Port), func() { _ = l.Close() }
	}
	allowed, closeIt := port()
	defer closeIt()
	refused, closeOther := port()
	defer closeOther()
	try := func(p int64) string {
		return `bash -c 'exec 3<>/dev/tcp/127.0.0.1/` + strconv.FormatInt(p, 10) + `' && echo connected;`
	}
	for name, tt := range map[string]struct {
		any  bool
		want string
	}{"one port": {false, "connected\nend\n"}, "any port": {true, "connected\nconnected\nend\n"}} {
		t.Run(name, func(t *testing.T) {
			spec := sh(try(allowed) + try(refused) + "echo end")
			spec.Confine = Confine{Landlock: true, Read: []string{"/"}, Ports: []int64{allowed}, AnyPort: tt.any}
			a, dir := start(t, spec)

			out, _ := output(t, a, dir)

			require.Equal(t, tt.want, out)
		})
	}
}

// What keeps a confined agent from starting is said, with what to do.
func TestAConfinedStartSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	closed := t.TempDir()
	require.NoError(t, os.Chmod(closed, 0o700))
	for name, tt := range map[string]struct {
		change func(*Spec)
		reason Reason
		text   string
	}{
		"a directory that the user cannot enter": {func(s *Spec) { s.Dir, s.Confine.User = closed, userOf(7) }, BadDirectory, "the agent runs as user " + strconv.FormatInt(userOf(7).ID, 10)},
		"a program outside of what it may read":  {func(s *Spec) { s.Confine = Confine{Landlock: true, Read: []string{"/etc"}} }, NotExecutable, "read_paths"},
		"a user without a reaper":                {func(s *Spec) { s.Confine.User.ID = 5 }, BadSpec, "reaper"},
		"a user that is its reaper":              {func(s *Spec) { s.Confine.User = User{ID: 5, Reaper: 5} }, BadSpec, "reaper"},
		"nobody at all":                          {func(s *Spec) { s.Confine.User = User{ID: 1<<32 - 1, Reaper: 5} }, BadSpec, "user"},
		"a relative path":                        {func(s *Spec) { s.Confine.Read = []string{"etc"} }, BadSpec, `"etc"`},
		"a port that there is not":               {func(s *Spec) { s.Confine.Ports = []int64{65536} }, BadSpec, "65536"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := sh("true")
			tt.change(&spec)

			_, err := Start(t.Context(), filepath.Join(t.TempDir(), "attempt"), spec)

			var failed *StartError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, tt.reason, failed.Reason, err)
			require.ErrorContains(t, err, tt.text)
		})
	}
}

func asUser(id int64) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
}
