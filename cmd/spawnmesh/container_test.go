package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/instance"
)

// A contained instance is one that a script of the containers runs, outside of
// one: what docker-compose.yml sets is set here.
type contained struct {
	hand
	cmd *exec.Cmd
	log string
}

func contain(t *testing.T, dir, script string, env []string, args ...string) contained {
	t.Helper()
	path, err := filepath.Abs("../../scripts/container/" + script)
	require.NoError(t, err)
	c := contained{hand: hand{t: t, dir: filepath.Join(dir, script)}, log: filepath.Join(dir, script+".log")}
	c.cmd = c.command(t.Context())
	c.cmd.Path, c.cmd.Args = path, append([]string{path}, args...)
	c.cmd.Env = append(c.cmd.Env, append(env, "SPAWNMESH_DATA_DIR="+c.dir, "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))...)
	c.start()
	return c
}

// start runs the script until the test ends or stop.
func (c *contained) start() {
	c.t.Helper()
	f, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(c.t, err)
	defer f.Close()
	again := *c.cmd
	c.cmd = &exec.Cmd{Path: again.Path, Args: again.Args, Env: again.Env, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, Stdout: f, Stderr: f}
	require.NoError(c.t, c.cmd.Start())
	c.t.Cleanup(func() { _ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }) // all that it started, should it still be there
}

// stop sends what docker sends, to the process that the container was started with.
func (c *contained) stop() {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(c.t, c.cmd.Wait(), "it ends in order: %s", c.said())
}

func (c *contained) said() string {
	raw, err := os.ReadFile(c.log)
	require.NoError(c.t, err)
	return string(raw)
}

func (c *contained) awaitHealth() {
	c.t.Helper()
	require.NoError(c.t, fleet.Poll(c.t.Context(), fleet.StartTime, "waiting for health of "+c.dir, func() (bool, error) {
		return c.run("", "health").code == 0, nil
	}), "%s", c.said())
}

func TestTheScriptsOfTheContainers(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "spawnmesh-container-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o711))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "tokens", "attic"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "password"), []byte("s3cret"), 0o444))
	token, pass := filepath.Join(dir, "tokens", "attic", "token"), filepath.Join(dir, "pgpass")

	spoke := contain(t, dir, "spoke", []string{"TOKEN=" + token, "POLICY=open"}, "--heartbeat", "1s")
	hub := contain(t, dir, "hub", []string{"TOKENS=" + filepath.Join(dir, "tokens"), "DB_PASSWORD_FILE=" + filepath.Join(dir, "password"), "PGPASSFILE=" + pass},
		"--name", "lab", "--link", "127.0.0.1:0")
	hub.awaitHealth()
	spoke.awaitHealth()
	out := hub.do("spawn", "--spoke", "attic", "--wait", "--", "echo", "from a container")

	require.Contains(t, out, "from a container")
	raw, err := os.ReadFile(pass)
	require.NoError(t, err)
	require.Equal(t, "*:*:*:*:s3cret\n", string(raw))
	for path, mode := range map[string]os.FileMode{pass: 0o600, token: 0o600} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
	spoke.stop()
	require.Equal(t, exitUnexpected, spoke.run("", "health").code)
	spoke.start()
	spoke.awaitHealth()
	require.Equal(t, 1, strings.Count(spoke.said(), "joined hub lab"), "it joins once")
	spoke.stop()
	hub.stop()
}

// Nor is what other machines do one to call a hub unhealthy: a receiver of a webhook that is down, a peer whose audit cannot be followed.
func TestAHubServesWhateverOthersDo(t *testing.T) {
	t.Parallel()
	url := aServer(t)
	m := hubOn(t, url)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s"))
	h := hand{t: t, dir: m.Hub.Dir, env: m.Hub.Env}
	h.do("webhook", "create", "pager", "https://receiver.invalid/in")
	keys, err := instance.LoadKeys(m.Spokes["attic"].Dir)
	require.NoError(t, err)
	longer, err := audittree.Checkpoint{Instance: keys.InstanceID(), Size: 1 << 40, At: time.Now()}.Sign(keys.Identity)
	require.NoError(t, err)
	tampering(t, url, fmt.Sprintf(`UPDATE webhooks SET failures = 100, failing_since = clock_timestamp() - interval '1 day'; DELETE FROM peer_checkpoints;
		INSERT INTO peer_checkpoints (conn, era, size, note, refused, why) SELECT id, 0, 1::bigint << 40, '\x%x', 'another', 'it does not go on' FROM connections`, longer))
	doctor := h.run("", "doctor").out
	require.Regexp(t, `(?m)^webhook pager +WRONG: `, doctor)
	require.Regexp(t, `(?m)^audit of attic +WRONG: it does not go on`, doctor)

	s := h.run("", "health")

	require.Zero(t, s.code, "%s", s.err)
	require.NotEmpty(t, s.out)
}

// A link that is down is no reason to restart the spoke; not running is one.
func TestHealth(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	spoke := hand{t: t, dir: m.Spokes["attic"].Dir}
	require.Contains(t, spoke.do("health"), "spoke")
	require.NoError(t, m.Hub.Stop(t.Context()))
	require.NoError(t, fleet.Poll(t.Context(), fleet.StartTime, "waiting for the loss of the link", func() (bool, error) {
		return spoke.run("", "doctor").code != 0, nil
	}))

	alone, down := spoke.run("", "health", "--json"), hand{t: t, dir: m.Hub.Dir}.run("", "health")

	require.Zero(t, alone.code, "%s", alone.err)
	var v struct{ Role string }
	require.NoError(t, json.Unmarshal([]byte(alone.out), &v))
	require.Equal(t, "spoke", v.Role)
	require.Equal(t, exitUnexpected, down.code)
	require.Contains(t, down.err, "spawnmesh: the instance does not serve: ")
}
