package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// A hand is somebody at a terminal who works on one data directory.
type hand struct {
	t   *testing.T
	dir string
	env []string // in addition to ours
}

// said is what a command line left behind.
type said struct {
	out, err string
	code     int
}

// command is a command line as it would be typed. A database that our own
// environment names is not theirs.
func (h hand) command(ctx context.Context, args ...string) *exec.Cmd {
	n := fleet.Process{Dir: h.dir, Bin: program, Env: h.env}
	return n.Command(ctx, args...)
}

// stuck is longer than any command line takes that ends by itself.
const stuck = 10 * time.Minute

func (h hand) run(stdin string, args ...string) said {
	h.t.Helper()
	ctx, done := context.WithTimeout(h.t.Context(), stuck)
	defer done()
	c := h.command(ctx, args...)
	var out, errOut bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errOut
	if err := c.Run(); c.ProcessState == nil {
		require.NoError(h.t, err)
	}
	require.NoError(h.t, ctx.Err(), "%v does not end: %s%s", args, &out, &errOut)
	return said{out.String(), hurried(errOut.String()), c.ProcessState.ExitCode()}
}

var progress = regexp.MustCompile(`(?m)^.*, \d+s so far\n`)

// hurried is what is said on standard error where the machine is quick: a loaded one makes a database in seconds, and
// whoever waits is told.
func hurried(text string) string { return progress.ReplaceAllString(text, "") }

// do runs a command line that must work, and returns its standard output.
func (h hand) do(args ...string) string {
	h.t.Helper()
	s := h.run("", args...)
	require.Zero(h.t, s.code, "%v: %s", args, s.err)
	return s.out
}

// refused runs a command line that must end with code and say words on standard
// error, and nothing on standard output.
func (h hand) refused(code int, words string, args ...string) {
	h.t.Helper()
	s := h.run("", args...)
	require.Equal(h.t, code, s.code, "%v: %s%s", args, s.out, s.err)
	require.Contains(h.t, s.err, words)
	require.Empty(h.t, s.out, "%v", args)
	require.NotContains(h.t, s.err, "panic")
}

// read runs a command line with -o json that ends with code, and reads what it
// printed: one JSON value and nothing else.
func (h hand) read(v any, code int, args ...string) {
	h.t.Helper()
	s := h.run("", append([]string{"-o", "json"}, args...)...)
	require.Equal(h.t, code, s.code, "%v: %s", args, s.err)
	dec := json.NewDecoder(strings.NewReader(s.out))
	require.NoError(h.t, dec.Decode(v), "%v: %s", args, s.out)
	_, err := dec.Token()
	require.ErrorIs(h.t, err, io.EOF, "%v: %s", args, s.out)
}

// spawn orders an agent and returns its whole id.
func (h hand) spawn(args ...string) string {
	h.t.Helper()
	id := strings.TrimSpace(h.do(append([]string{"spawn", "-o", "name"}, args...)...))
	require.Len(h.t, id, 36)
	return id
}

// ends waits for an agent and returns how it ended.
func (h hand) ends(id string) hub.AgentView {
	h.t.Helper()
	return h.until(id, func(v hub.AgentView) bool { return v.State.Terminal() })
}

// runs waits until an agent runs.
func (h hand) runs(id string) {
	h.t.Helper()
	h.until(id, func(v hub.AgentView) bool { return v.State == "running" })
}

func (h hand) until(id string, ok func(hub.AgentView) bool) (v hub.AgentView) {
	h.t.Helper()
	require.NoError(h.t, fleet.Poll(h.t.Context(), time.Minute, "waiting for agent "+id, func() (bool, error) {
		v = hub.AgentView{}
		h.read(&v, 0, "status", id)
		return ok(v), nil
	}))
	return v
}

// A terminalJob is a command line that goes on while the test does.
type terminalJob struct {
	t   *testing.T
	cmd *exec.Cmd
	out io.Reader
	err *bytes.Buffer
}

// begin starts a command line that goes on; it ends with the test.
func (h hand) begin(args ...string) *terminalJob {
	h.t.Helper()
	c := h.command(context.WithoutCancel(h.t.Context()), args...)
	out, err := c.StdoutPipe()
	require.NoError(h.t, err)
	j := &terminalJob{t: h.t, cmd: c, out: out, err: &bytes.Buffer{}}
	c.Stderr = j.err
	require.NoError(h.t, c.Start())
	h.t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return j
}

// reads waits until the job has printed text next.
func (j *terminalJob) reads(text string) {
	j.t.Helper()
	got := make([]byte, len(text))
	_, err := io.ReadFull(j.out, got)
	require.NoError(j.t, err, "%s", got)
	require.Equal(j.t, text, string(got))
}

// end waits for the job and returns the rest of what it said.
func (j *terminalJob) end() said {
	j.t.Helper()
	rest, err := io.ReadAll(j.out)
	require.NoError(j.t, err)
	_ = j.cmd.Wait() // the exit code tells
	return said{string(rest), j.err.String(), j.cmd.ProcessState.ExitCode()}
}

// A gate is a file that agents wait for, so that a test decides when they go on.
type gate string

func newGate(t *testing.T) gate {
	t.Helper()
	dir, err := os.MkdirTemp("", "spawnmesh-gate-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return gate(filepath.Join(dir, "open"))
}

// wait is what an agent says in a shell to wait for the gate; in the end it goes
// on by itself, because a test may fail before it opens the gate.
func (g gate) wait() string {
	return "n=0; while [ ! -e " + string(g) + " ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n+1)); done"
}

func (g gate) open(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(string(g), nil, 0o644))
}

// processes counts those that run argv, wherever its program was found.
func processes(t *testing.T, argv ...string) (count int) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range list {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		runs := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
		runs[0] = filepath.Base(runs[0])
		if slices.Equal(runs, argv) {
			count++
		}
	}
	return count
}

// killPostgres ends the private Postgres of the instance in dir as a crash would.
func killPostgres(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, syscall.Kill(processesOf(t, dir)[0], syscall.SIGKILL))
}
