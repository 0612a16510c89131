package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
)

const waitsForAgents = "stopping: waiting for running agents; a second signal leaves them to their shims at once"

// says waits until a node has written words to its log, and returns the line.
func says(t *testing.T, n *fleet.Process, words string) (line string) {
	t.Helper()
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for "+n.Name+" to say: "+words, func() (bool, error) {
		raw, err := os.ReadFile(filepath.Join(n.Dir, "log"))
		for l := range strings.Lines(string(raw)) {
			if strings.Contains(l, words) {
				line = l
			}
		}
		return line != "", err
	}))
	return line
}

// ended waits until a node that was told to stop has stopped in order.
func ended(t *testing.T, n *fleet.Process) {
	t.Helper()
	cmd, over := n.Cmd, make(chan struct{})
	go func() {
		n.Wait()
		close(over)
	}()
	select {
	case <-over:
		require.Zero(t, cmd.ProcessState.ExitCode())
	case <-time.After(time.Minute):
		require.NoError(t, cmd.Process.Kill())
		<-over
		require.FailNow(t, "it does not stop", n.Name)
	}
}

// A stop that waits for agents says for which, obeys a kill meanwhile, and ends
// when its last agent has.
func TestAKillIsObeyedWhileDraining(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--drain", "1h")
	h, s := hand{t: t, dir: m.Hub.Dir}, m.Spokes["attic"]
	id := h.spawn("--spoke", "attic", "--", "sleep", "600")
	h.runs(id)
	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGTERM))
	line := says(t, s, waitsForAgents)
	require.Regexp(t, `msg="this takes a while" doing="stopping: waiting for running agents \(1\) for at most 1h; .*, \d+s so far"`, says(t, s, `doing="stopping`))

	require.Regexp(t, `(?m)^work +this spoke is stopping, and starts nothing more; it goes on when it is started again$`, hand{t: t, dir: s.Dir}.run("", "doctor").out)
	h.do("kill", id, "--reason", "enough", "--grace", "0s")

	require.Contains(t, line, "agents=1 ids=["+id+"] at_most=1h0m0s")
	v := h.ends(id)
	require.Equal(t, commands.Cancelled, v.State)
	require.Equal(t, commands.KillRequested, v.Reason)
	ended(t, s)
	require.Contains(t, says(t, s, "spoke has stopped"), "agents_left_running=0")
}

// Its hub learns at once that a spoke stops, and orders nothing more from it that another
// one could run; what is ordered from it by name waits.
func TestASpokeThatStopsIsNotChosen(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--drain", "1h", "--heartbeat", "1h")
	h, s := hand{t: t, dir: m.Hub.Dir}, m.Spokes["attic"]
	id := h.spawn("--spoke", "attic", "--", "sleep", "600")
	h.runs(id)

	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGTERM))

	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the heartbeat", func() (bool, error) {
		return strings.Contains(h.do("connections", "list"), "\nattic: is stopping, and starts nothing more; "), nil
	}))
	h.refused(exitNoSpoke, "attic is stopping", "spawn", "--any", "--", "true")
	waits := h.spawn("--spoke", "attic", "--", "true")
	h.until(waits, func(v hub.AgentView) bool { return v.AcceptedAt != nil })
	require.Contains(t, h.do("why", waits), "attic: is stopping, and starts nothing more")
	h.do("kill", id, "--reason", "enough", "--grace", "0s")
	ended(t, s)
	require.NoError(t, s.Start(t.Context()))
	require.Equal(t, commands.Completed, h.ends(waits).State)
	require.Equal(t, commands.Completed, h.ends(h.spawn("--any", "--", "true")).State)
}

// A second signal ends the wait: the agent goes on under its shim, and the next
// start adopts it.
func TestASecondSignalHurriesAStop(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--drain", "1h")
	h, s := hand{t: t, dir: m.Hub.Dir}, m.Spokes["attic"]
	g := newGate(t)
	id := h.spawn("--spoke", "attic", "--", "sh", "-c", g.wait())
	h.runs(id)
	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGTERM))
	says(t, s, waitsForAgents)

	require.NoError(t, s.Cmd.Process.Signal(os.Interrupt))

	ended(t, s)
	require.Contains(t, says(t, s, "spoke has stopped"), "agents_left_running=1")
	require.NoError(t, s.Start(t.Context()))
	g.open(t)
	v := h.ends(id)
	require.Equal(t, commands.Completed, v.State)
	require.Equal(t, 1, v.Attempt)
}

// A SIGHUP ends nobody: neither one that is not open yet, nor a hub, which has
// nothing to read again.
func TestASIGHUPEndsNobody(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	require.NoError(t, m.Hub.Cmd.Process.Signal(syscall.SIGHUP))
	for name, args := range map[string][]string{"hub": {"hub", "run", "--link", "127.0.0.1:0"}, "spoke": {"spoke", "run"}} {
		early := fresh(t)
		require.NoError(t, os.WriteFile(policy.File(early.dir), []byte(loose), 0o644))
		if name == "spoke" { // it must have joined before it opens a database
			text, _ := hand{t: t, dir: m.Hub.Dir}.invite("early")
			joined := early.run(text, "spoke", "join", "--yes")
			require.Zero(t, joined.code, joined.err)
		}
		database, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // it is dialled, and does not answer
		require.NoError(t, err)
		early.env = []string{fmt.Sprintf("DATABASE_URL=postgres://%s/x?sslmode=disable", database.Addr())}
		job := early.begin(args...)
		dialled, err := database.Accept()
		require.NoError(t, err)

		require.NoError(t, job.cmd.Process.Signal(syscall.SIGHUP))

		require.NoError(t, database.Close())
		require.NoError(t, dialled.Close())
		got := job.end()
		require.Contains(t, got.err, "opening the database of "+early.dir, name)
		require.Equal(t, exitUnreachable, got.code, "%s: %s", name, got.err)
	}
	require.NoError(t, m.Hub.Stop(t.Context()), "it was alive until now")
}

// Who ends a spawn that a hub does not answer learns which order may have been given, and how
// to ask.
func TestAnInterruptedSpawnNamesItsOrder(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	standStill(t, m.Hub.Cmd.Process)
	job := h.begin("spawn", "--spoke", "attic", "--", "true")
	asks(t, job)

	require.NoError(t, job.cmd.Process.Signal(syscall.SIGTERM))

	s := job.end()
	require.Equal(t, exitInterrupted, s.code)
	named := regexp.MustCompile(`interrupted before the hub answered; agent (\S{8}) may have been ordered\n +what became of it, once the hub answers: spawnmesh --data-dir \S+ status (\S{8})\n`).FindStringSubmatch(s.err)
	require.Len(t, named, 3, "%s", s.err)
	require.Equal(t, named[1], named[2])
	for _, change := range [][]string{{"connections", "suspend", "attic", "--reason", "holiday"}, {"kill", named[1], "--reason", "enough"}} {
		job = h.begin(change...)
		asks(t, job)
		require.NoError(t, job.cmd.Process.Signal(syscall.SIGTERM))
		s = job.end()
		require.Equal(t, exitInterrupted, s.code)
		require.Contains(t, s.err, "interrupted before the instance in "+m.Hub.Dir+" answered; what was asked may have been done all the same")
	}
	require.NoError(t, m.Hub.Cmd.Process.Signal(syscall.SIGCONT))
	require.Contains(t, []int{0, exitNotFound}, h.run("", "status", named[1]).code)
}

// Where a hub does not know whether it has stored an order, that is named too, and how to ask.
func TestAnOrderThatMayBeStoredIsNamed(t *testing.T) {
	t.Parallel()
	r := hub.SpawnRequest{ID: newID()}
	said := control.ProblemOf(store.ErrCommitUnknown)

	got := refusal(unanswered(t.Context(), r, control.Refused(&said)))

	id := commands.ShortID(r.ID)
	require.Equal(t, &commands.Refused{Code: commands.StoreDown, Why: "this instance cannot store or read now; agent " + id + " may have been ordered",
		Hint: "what became of it, once the hub answers", Run: []string{"status", id}, MayBeDone: true}, got)
}

// Who asks an instance that hangs is told so, once, and doctor says what hangs; a long wait for one that is alive says nothing.
func TestAnInstanceThatHangsIsSaid(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	for name, p := range map[string]*fleet.Process{"hub": m.Hub, "spoke": m.Spokes["attic"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, process := hand{t: t, dir: p.Dir}, p.Cmd.Process
			standStill(t, process)
			c := h.command(t.Context(), "agents")
			says, err := c.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, c.Start())
			lines := bufio.NewScanner(says)
			require.True(t, lines.Scan(), "it waits in silence")
			require.Regexp(t, "^waiting for the instance in "+p.Dir+`, which does not answer \(why: spawnmesh --data-dir \S+ doctor\), \d+s so far$`, lines.Text())

			s := h.run("", "doctor")

			require.Equal(t, exitUnexpected, s.code)
			require.Regexp(t, fmt.Sprintf(`(?m)^instance +WRONG: process %d, the instance in %s, is stopped by a signal or a debugger; to let it go on: kill -CONT %[1]d$`, process.Pid, p.Dir), s.out)
			s = h.run("", "health")
			require.Equal(t, exitUnexpected, s.code)
			require.Equal(t, 2, strings.Count(s.err, "\n"), s.err)
			require.NoError(t, process.Signal(syscall.SIGCONT))
			for lines.Scan() {
				require.NotContains(t, lines.Text(), "does not answer", "it is said once")
			}
			require.NoError(t, c.Wait())
		})
	}
}

// standStill stops a program until it gets SIGCONT, and waits until none of its threads runs: on a busy host they go on for a while.
func standStill(t *testing.T, p *os.Process) {
	t.Helper()
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = p.Signal(syscall.SIGCONT) }) // it has ended where the test has
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting until a program stands still", func() (bool, error) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		return !slices.ContainsFunc(threads, func(stat string) bool {
			raw, err := os.ReadFile(stat) // a thread may have ended
			_, state, _ := strings.Cut(string(raw), ") ")
			return err == nil && !strings.HasPrefix(state, "T")
		}), err
	}))
}

// asks waits until a job has dialled an instance.
func asks(t *testing.T, j *terminalJob) {
	t.Helper()
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for a socket", func() (bool, error) {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", j.cmd.Process.Pid))
		return slices.ContainsFunc(fds, func(fd string) bool {
			to, _ := os.Readlink(fd) // it may have been closed
			return strings.HasPrefix(to, "socket:")
		}), err
	}))
}
