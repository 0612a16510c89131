package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// spokeArg makes the test binary a spoke: it starts the Spec it reads from
// standard input in the directory it is given, prints a line, and waits to be
// killed.
const spokeArg = "_spoke"

// traitorArg makes the test binary an agent that adopts itself, with the token
// from its attempt directory, and prints what came of it.
const traitorArg = "_traitor"

func beTraitor(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	a, _, err := Adopt(ctx, dir, Known{})
	if err == nil {
		err = a.Renew(math.MaxInt64)
	}
	fmt.Println(err)
	os.Exit(0)
}

// deafArg makes the test binary what its arguments show as a shim: it has lock and socket of its attempt
// and answers nobody.
const deafArg = "_deaf"

func beDeaf(dir string) {
	lock, err := attempt.TakeLock(dir)
	if err != nil || lock == nil {
		panic(err)
	}
	if err := os.Chdir(dir); err != nil {
		panic(err)
	}
	if _, err := net.Listen("unix", attempt.SocketFile); err != nil {
		panic(err)
	}
	fmt.Println("deaf")
	time.Sleep(time.Minute)
}

func TestMain(m *testing.M) {
	recordPatience = time.Second
	if len(os.Args) == 5 && os.Args[4] == deafArg {
		beDeaf(os.Args[2])
	}
	if len(os.Args) > 1 && os.Args[1] == spokeArg {
		beSpoke(os.Args[2])
	}
	if len(os.Args) > 1 && os.Args[1] == traitorArg {
		beTraitor(os.Args[2])
	}
	if len(os.Args) > 1 && os.Args[1] == impostorArg {
		beImpostor(os.Args[2], os.Args[3], os.Args[4])
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "4") // the slowest of the tests wait for patience to end
	}
	os.Exit(m.Run())
}

func beSpoke(dir string) {
	var spec Spec
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		panic(err)
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT) // as nohup does
	a, err := Start(context.Background(), dir, spec)
	if err != nil {
		panic(err)
	}
	fmt.Println("started", a.Pid())
	select {}
}

// nobody is a user that owns nothing.
const nobody = 65534

// unprivileged runs body as a user that is not root: here, unless the tests are
// root's, and then in a process of its own.
func unprivileged(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		body(t)
		return
	}
	home, err := os.MkdirTemp("", "nobody")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	require.NoError(t, os.Chown(home, nobody, nobody))
	require.NoError(t, testAgain(t, home, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}))
}

// ownMounts runs body where it can mount without a trace on this host: in a
// process of its own. Where that is not allowed body does not run.
func ownMounts(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if os.Getenv(againName) == t.Name() {
		require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		body(t)
		return
	}
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := testAgain(t, t.TempDir(), attr); err != nil {
		require.ErrorIs(t, err, os.ErrPermission, "mounts of its own are not allowed here")
	}
}

// testAgain runs the calling test in a process of its own. The error says that
// there can be no such process.
func testAgain(t *testing.T, home string, attr *syscall.SysProcAttr) error {
	t.Helper()
	again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m") // its path may be closed to others
	again.Dir, again.Env = home, []string{"TMPDIR=" + home, "HOME=" + home, "PATH=/usr/bin:/bin", againName + "=" + t.Name()}
	again.SysProcAttr = attr
	var out bytes.Buffer
	again.Stdout, again.Stderr = &out, &out
	if err := again.Start(); err != nil {
		return err
	}
	require.NoError(t, again.Wait(), "%s", &out)
	require.Contains(t, out.String(), "--- PASS: "+t.Name())
	return nil
}

// againName is the variable that names the test that a process is made for.
const againName = "SPAWNMESH_TEST_AGAIN"

// sh is a Spec that runs a shell script with a search path and nothing else.
func sh(script string) Spec {
	return Spec{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Grace: 100 * time.Millisecond}
}

// start runs spec in a new attempt directory and ends it after the test.
func start(t *testing.T, spec Spec) (*Agent, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "attempt")
	a, err := Start(t.Context(), dir, spec)
	require.NoError(t, err)
	endAfter(t, a)
	return a, dir
}

func endAfter(t *testing.T, a *Agent) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = a.Kill(ctx, "end of the test", 0)
		_ = a.Close()
	})
}

// ended waits for the exit.
func ended(t *testing.T, a *Agent) Exit {
	t.Helper()
	select {
	case <-a.Done():
		return a.Exit()
	case <-time.After(15 * time.Second):
		require.FailNow(t, "the attempt did not end")
		return Exit{}
	}
}

// adopt expects an agent or an exit.
func adopt(t *testing.T, dir string) (*Agent, *Exit) {
	t.Helper()
	return adoptKnown(t, dir, Known{})
}

func adoptKnown(t *testing.T, dir string, known Known) (*Agent, *Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	a, e, err := Adopt(ctx, dir, known)
	require.NoError(t, err)
	if a != nil {
		endAfter(t, a)
	}
	return a, e
}

// eventually waits for a condition of the outside world.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 5*time.Millisecond, what)
}

// alive tells whether a process runs.
func alive(pid int) bool {
	p, err := tree.ReadProcess(pid)
	return err == nil && !p.Gone()
}

// pids waits until n process ids are in a file, one per line.
func pids(t *testing.T, file string, n int) []int {
	t.Helper()
	var list []int
	eventually(t, fmt.Sprintf("%d pids in %s", n, file), func() bool {
		b, _ := os.ReadFile(file)
		list = nil
		for _, field := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(field)
			require.NoError(t, err)
			list = append(list, pid)
		}
		return strings.HasSuffix(string(b), "\n") && len(list) == n
	})
	return list
}

// killedSpoke starts spec in dir by a process of its own and kills that with
// signal 9 once the agent runs.
func killedSpoke(t *testing.T, dir string, spec Spec) (agentPid int) {
	t.Helper()
	spoke := exec.Command(os.Args[0], spokeArg, dir)
	b, err := json.Marshal(spec)
	require.NoError(t, err)
	spoke.Stdin = strings.NewReader(string(b))
	out, err := spoke.StdoutPipe()
	require.NoError(t, err)
	spoke.Stderr = os.Stderr
	require.NoError(t, spoke.Start())
	_, err = fmt.Fscanf(out, "started %d\n", &agentPid)
	require.NoError(t, err)
	require.NoError(t, spoke.Process.Kill())
	_ = spoke.Wait() // says that it was killed
	t.Cleanup(func() {
		if t.Failed() { // else nothing is left, or somebody has adopted it
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
			defer cancel()
			if a, _, err := Adopt(ctx, dir, Known{}); err == nil && a != nil {
				_ = a.Kill(ctx, "end of the test", 0)
				_ = a.Close()
			}
		}
	})
	return agentPid
}

// ignoring is text of /proc with the mask of ignored signals freed from those
// that the C library keeps for itself (32 to 34): they come from whatever started
// the tests, and Go can neither ask nor change what becomes of them.
func ignoring(text string) string {
	return regexp.MustCompile(`SigIgn:(\s+)[0-9a-f]{16}`).ReplaceAllStringFunc(text, func(line string) string {
		mask, err := strconv.ParseUint(line[len(line)-16:], 16, 64)
		if err != nil {
			return line
		}
		return fmt.Sprintf("%s%016x", line[:len(line)-16], mask&^uint64(7<<31))
	})
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)
	return string(b)
}
