package spoke_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// everyday is what agents do all day: clone, build and test, with the tools of the host and what
// those keep in the home.
var everyday = map[string]string{
	"git": `git clone -q git://127.0.0.1:$1/repo r && cd r && git config user.email a@b && git config user.name a &&
		echo more >more && git add more && git commit -qm more && git log --oneline | wc -l`,
	"go": `[ $2 = 1 ] && echo 'ok  ' && exit; mkdir m && cd m && printf 'module m\ngo 1.21\n' >go.mod && printf 'package m\nimport ("net"; "os"; "testing")\nfunc TestIt(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0"); if err != nil { t.Fatal(err) }
		go func() { c, err := l.Accept(); if err == nil { c.Close() } }()
		c, err := net.Dial("tcp", l.Addr().String()); if err != nil { t.Fatal(err) }; c.Close()
		if _, err := os.CreateTemp("", "x"); err != nil { t.Fatal(err) } }\n' >m_test.go && GOTOOLCHAIN=local GOFLAGS=-mod=mod go test ./... | cut -f1`,
	"python": `python3 -c 'import multiprocessing, os, pathlib, sqlite3, subprocess, tempfile
with multiprocessing.Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]
db = sqlite3.connect(os.path.join(tempfile.mkdtemp(), "x.db")); db.execute("CREATE TABLE x (y)"); db.commit()
pathlib.Path.home().joinpath(".cache").mkdir()
print(subprocess.run(["sh", "-c", "echo sub"], capture_output=True, text=True).stdout, end="")'`,
	"shell": `f=$(mktemp) && echo x >"$f" && cat "$f" /dev/null <(echo y) | sort | tr -d '\n'; test -w /dev/stdout && ps -o pid= -p $$ | wc -l; { sleep 600 & } ; kill $! && date +%Y >/dev/null && id -un >/dev/null 2>&1; uname -s; df . | wc -l; head -c 3 /dev/urandom | wc -c`,
}

var everydaySays = map[string]string{"git": "2\n", "go": "ok  \n", "python": "sub\n", "shell": "xy1\nLinux\n2\n3\n"}

// What ran before agents were isolated runs at the strongest level, and nobody tells it of that.
func TestEverydayAgentsRunIsolated(t *testing.T) {
	t.Parallel()
	port := serveRepository(t)
	tool, err := exec.LookPath("go")
	require.NoError(t, err)
	told := ""
	if os.Geteuid() != 0 { // semaphores are files that all of a user have; see docs/operating.md
		told = "write_paths: [/dev/shm]\n"
	}
	m := confined(t, told+"path: "+filepath.Dir(tool)+":/usr/local/bin:/usr/bin:/bin\n")
	_, strongest := levels()
	builds := scale.Of(t, "SPAWNMESH_EVERYDAY", 1) // 2: with an empty cache Go builds its library first
	for name, script := range everyday {
		task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"bash", "-c", script, "agent", strconv.Itoa(port), strconv.Itoa(builds)}}})

		v := m.Wait(t, task)

		require.Equal(t, everydaySays[name], m.Stdout(t, task, true), "%s: %s", name, v.Sentence())
		require.Equal(t, commands.Completed, v.State, name)
		require.Equal(t, strongest, v.Isolation)
	}
}

// serveRepository serves a repository with one commit on the loopback, as repo.
func serveRepository(t *testing.T) (port int) {
	t.Helper()
	base := t.TempDir()
	repo := filepath.Join(base, "repo")
	for _, args := range [][]string{{"init", "-q", repo}, {"-C", repo, "-c", "user.email=a@b", "-c", "user.name=a", "commit", "-q", "--allow-empty", "-m", "first"}} {
		out, err := exec.Command("git", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port = l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	c := exec.Command("git", "daemon", "--listen=127.0.0.1", "--port="+strconv.Itoa(port), "--base-path="+base, "--export-all", "--reuseaddr", "--max-connections=4")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // git starts the daemon as a process of its own
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL); _ = c.Wait() })
	meshtest.Await(t, "the repository", func() bool {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		return err == nil && conn.Close() == nil
	})
	return port
}
