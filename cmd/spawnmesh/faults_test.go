package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
)

// A cancel that is ordered while the spoke is dead is recorded, and carried out when that comes back, on an agent that does not
// listen: it is asked, waited for, and ended. Said once more it changes nothing.
func TestACancelOverADeadSpoke(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	asked, stray := filepath.Join(t.TempDir(), "asked"), []string{"sleep", "599.8" + strconv.Itoa(os.Getpid())}
	id := h.spawn("--spoke", "attic", "--max-retries", "3", "--on-loss", "rerun", "--", "sh", "-c",
		`trap "echo asked >>$0" TERM; setsid `+strings.Join(stray, " ")+` & while :; do sleep 0.1; done`, asked)
	h.runs(id)
	attic := m.Spokes["attic"]
	attic.Kill()

	h.do("cancel", id, "--reason", "enough", "--wait-for", "1s")

	require.NotContains(t, []commands.State{commands.Cancelled}, h.until(id, func(v hub.AgentView) bool { return v.Kill != nil }).State, "it is ordered, and not done")
	require.Contains(t, h.do("audit", "list", "--object", id), "task.cancel_ordered")
	require.NoFileExists(t, asked)
	require.NoError(t, attic.Start(t.Context()))
	v := h.ends(id)
	require.Equal(t, commands.Cancelled, v.State, "%s", v.Sentence())
	require.Equal(t, commands.CancelRequested, v.Reason)
	require.Equal(t, 1, v.Attempt, "nothing follows")
	raw, err := os.ReadFile(asked)
	require.NoError(t, err)
	require.Equal(t, "asked\n", string(raw), "it was asked to end, once")
	require.Zero(t, processes(t, stray...), "and nothing of it is left")

	h.run("", "cancel", id, "--reason", "again")
	again := h.ends(id)
	require.Equal(t, string(v.Result), string(again.Result))
	require.Equal(t, commands.Cancelled, again.State)
}

// Tasks that wait for each other by rows of elsewhere are failed by an instance that starts with them, and what waits for nobody of
// them goes on.
func TestACircleIsFailedByWhoStartsWithIt(t *testing.T) {
	t.Parallel()
	url := aServer(t)
	m := hubOn(t, url)
	h := hand{t: t, dir: m.Hub.Dir, env: m.Hub.Env}
	h.do("backlog", "create", "--id", "A", "--title", "one")
	h.do("backlog", "create", "--id", "B", "--title", "two", "--depends-on", "A")
	h.do("backlog", "create", "--id", "C", "--title", "beside")
	require.NoError(t, m.Hub.Stop(t.Context()))
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(url))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `INSERT INTO dependencies (task, dependency, workspace) SELECT a.id, b.id, a.workspace FROM tasks a, tasks b WHERE a.key = 'A' AND b.key = 'B'`)
	require.NoError(t, err)
	for _, also := range []string{`DELETE FROM ready USING tasks t WHERE task = t.id AND t.key = 'A'`,
		`INSERT INTO parked (task, workspace, lane, why, phase) SELECT id, workspace, lane, 'deps', phase FROM tasks WHERE key = 'A'`,
		`UPDATE tasks SET unmet = unmet + 1 WHERE key = 'A'`} {
		_, err = conn.Exec(t.Context(), also)
		require.NoError(t, err)
	}

	require.NoError(t, m.Hub.Start(t.Context()))

	task := func(key string) (v struct {
		State  string
		Reason string `json:"state_reason"`
	}) {
		require.NoError(t, json.Unmarshal([]byte(h.do("-o", "json", "backlog", "show", key)), &v))
		return v
	}
	require.Contains(t, h.do("backlog", "list", "--ready-only"), "beside", "who looks for work sweeps the backlog of a hub")
	for _, key := range []string{"A", "B"} {
		require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the end of "+key, func() (bool, error) { return task(key).State == "failed", nil }))
		require.Equal(t, "dependency_cycle", task(key).Reason)
		require.Contains(t, h.do("backlog", "audit", key), "these tasks wait for each other: A, B")
	}
	require.Equal(t, "queued", task("C").State)
}

// While the database of a hub stands still and takes no connection either, as a server that was stopped, it answers nothing and refuses nobody: nothing is accepted,
// everyone who asks is told, the log says why, and an order that is given again with its id is carried out once. What ran meanwhile
// goes on, and its end is told when the database is back.
func TestADatabaseThatStandsStill(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	g := newGate(t)
	id := h.spawn("--spoke", "attic", "--", "sh", "-c", g.wait()+"; echo done")
	h.runs(id)
	resume := stopServer(t, h.dir)
	again := []string{"spawn", "--id", uuid.NewString(), "--spoke", "attic", "--", "echo", "hi"}

	var asking sync.WaitGroup
	for _, asked := range [][]string{again, {"why", id}, {"status", id}, {"agents"}, {"audit", "list"}, {"connections", "list"}, {"backlog", "create", "--title", "x"}} {
		asking.Go(func() {
			s := h.run("", asked...)
			assert.Equal(t, exitUnreachable, s.code, "%v: %s%s", asked, s.out, s.err)
			assert.Contains(t, s.err, "this instance cannot store or read now", "%v", asked)
		})
	}
	asking.Go(func() { assert.NotZero(t, h.run("", "health").code) })
	asking.Go(func() {
		s := h.run("", "doctor")
		assert.Equal(t, exitUnexpected, s.code)
		assert.Regexp(t, `(?m)^postgres +WRONG: the database has not answered within 5s$`, s.out)
		assert.NotRegexp(t, `(?m)^(nats|webhooks|audits of peers|freezes|clock of the database) +WRONG: `, s.out, "what is in the database is left out, and what needs none is looked at")
		for _, name := range []string{"connections", "database"} {
			assert.Regexp(t, `(?m)^`+name+` +not looked at: the database does not answer$`, s.out)
		}
	})
	asking.Wait()
	g.open(t)
	saysItHangs(t, m.Hub)
	resume()

	v := h.ends(id)
	require.Equal(t, commands.Completed, v.State, "%s", v.Sentence())
	require.Equal(t, "done\n", resultOf(v).Stdout.Tail)
	h.do(again...)
	v = h.ends(again[2])
	require.Equal(t, "hi\n", resultOf(v).Stdout.Tail)
	require.Equal(t, 1, v.Attempt)
	require.Len(t, strings.Fields(h.do("agents", "-o", "name")), 2, "nothing was ordered twice")
	require.Zero(t, h.run("", "health").code)
}

// While the database of a spoke stands still, its hub takes orders, and the spoke takes none. What runs there goes on, and ends, within its lease; its end is told once the
// database is back, and the order that waited is carried out. Each has run once.
func TestADatabaseThatStandsStillAtASpoke(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	g, ran := newGate(t), filepath.Join(t.TempDir(), "ran")
	id := h.spawn("--spoke", "attic", "--on-loss", "rerun", "--", "sh", "-c", "echo first >>$0; "+g.wait()+"; echo over >>$0", ran)
	h.runs(id)
	wrote := func() string {
		raw, err := os.ReadFile(ran)
		require.NoError(t, ignoreAbsent(err))
		return string(raw)
	}
	resume := stopServer(t, s.dir)

	waits := h.spawn("--spoke", "attic", "--", "sh", "-c", "echo second >>$0", ran)
	refused := s.run("", "agents")
	require.Equal(t, exitUnreachable, refused.code, "%s%s", refused.out, refused.err)
	require.Contains(t, refused.err, "this instance cannot store or read now")
	g.open(t)
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the agent's own end", func() (bool, error) { return wrote() == "first\nover\n", nil }))
	doctor := s.run("", "doctor").out
	require.Regexp(t, `(?m)^postgres +WRONG: the database has not answered within 5s$`, doctor)
	require.NotRegexp(t, `(?m)^(nats|freezes|clock of the database) +WRONG: `, doctor, "what is in the database is left out, and what needs none is looked at")
	saysItHangs(t, m.Spokes["attic"])
	h.until(id, func(v hub.AgentView) bool { return v.State == commands.Running })
	h.until(waits, func(v hub.AgentView) bool { return v.State == commands.Queued && v.AcceptedAt == nil })
	resume()

	for _, task := range []string{id, waits} {
		v := h.ends(task)
		require.Equal(t, []any{commands.Completed, 1}, []any{v.State, v.Attempt}, "%s", v.Sentence())
	}
	require.Equal(t, "first\nover\nsecond\n", wrote())
}

// Where the database of a spoke stands still beyond the lease of an agent, its shim ends that: it does not run beside the next attempt, which its order allows once the database is back.
func TestADatabaseThatStandsStillBeyondALease(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--lease", "2s")
	h := hand{t: t, dir: m.Hub.Dir}
	ran, agent := filepath.Join(t.TempDir(), "ran"), []string{"sleep", "599.6" + strconv.Itoa(os.Getpid())}
	id := h.spawn("--spoke", "attic", "--on-loss", "rerun", "--", "sh", "-c", "echo attempt >>$0; exec "+strings.Join(agent, " "), ran)
	run := func(n int) {
		t.Helper()
		require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting until so many run: "+strconv.Itoa(n), func() (bool, error) { return processes(t, agent...) == n, nil }))
	}
	run(1)
	h.runs(id)
	resume := stopServer(t, m.Spokes["attic"].Dir)
	run(0)
	h.until(id, func(v hub.AgentView) bool { return v.State == commands.Running && v.Attempt == 1 }) // nobody knows better

	resume()

	v := h.until(id, func(v hub.AgentView) bool { return v.State == commands.Running && v.Attempt == 2 })
	require.Equal(t, 2, v.Attempt)
	run(1)
	h.do("kill", id, "--grace", "0s", "--reason", "enough")
	require.Equal(t, commands.Cancelled, h.ends(id).State)
	run(0)
	raw, err := os.ReadFile(ran)
	require.NoError(t, err)
	require.Equal(t, "attempt\nattempt\n", string(raw))
}

// A host that has no file left to open decides nothing about what an order names: the order waits, also where its directory is not
// allowed, and is judged once there is room. One that was accepted goes back to the queue.
func TestAHostThatCanOpenNothingRefusesNoDirectory(t *testing.T) {
	t.Parallel()
	allowed, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	m := startHub(t)
	require.NoError(t, m.AddSpoke(t.Context(), "attic", strings.Replace(loose, `directories: ["*"]`, "directories: ["+allowed+"]", 1), "--heartbeat", "1s"))
	h := hand{t: t, dir: m.Hub.Dir}
	h.ends(h.spawn("--spoke", "attic", "--", "true"))
	s := hand{t: t, dir: m.Spokes["attic"].Dir}
	s.do("freeze", "--scope", "instance", "--reason", "it is accepted first")
	accepted := h.spawn("--spoke", "attic", "--dir", allowed, "--", "pwd")
	hasSaid(t, m.Spokes["attic"], regexp.MustCompile("order taken.* id="+accepted))
	h.do("freeze", "--scope", "instance", "--reason", "it starts without room")
	hasSaid(t, m.Spokes["attic"], regexp.MustCompile("the hub has frozen its agents"))
	s.do("unfreeze", "--scope", "instance", "--reason", "the hub has")
	pid := m.Spokes["attic"].Cmd.Process.Pid
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was))
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: was.Max}, nil))
	restore := sync.OnceFunc(func() { assert.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil)) })
	t.Cleanup(restore)

	h.do("unfreeze", "--scope", "instance", "--reason", "there is no room")
	good, bad := h.spawn("--spoke", "attic", "--dir", allowed, "--", "pwd"), h.spawn("--spoke", "attic", "--dir", "/", "--", "pwd")

	hasSaid(t, m.Spokes["attic"], regexp.MustCompile("agent could not be started, by a fault of this host.* id="+accepted+` attempt=1 err=".*too many open files"`))
	hasSaid(t, m.Spokes["attic"], regexp.MustCompile("agent ended.* id="+accepted+" attempt=1 outcome=released"))
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "asking the hub why it waits", func() (bool, error) {
		return strings.Contains(h.run("", "why", accepted).out, "could not be started, spent no retry, and is followed by another one"), nil
	}))
	for _, id := range []string{good, bad} {
		hasSaid(t, m.Spokes["attic"], regexp.MustCompile("cannot be judged on this host now.* id="+id))
	}
	restore()
	for _, id := range []string{good, bad} {
		require.NoError(t, fleet.Poll(t.Context(), 3*time.Minute, "waiting until the orders come again", func() (bool, error) {
			var v hub.AgentView
			h.read(&v, 0, "status", id)
			return v.State.Terminal(), nil
		}))
	}
	for _, id := range []string{accepted, good} {
		v := h.ends(id)
		require.Equal(t, commands.Completed, v.State, "%s", v.Sentence())
		require.Equal(t, allowed+"\n", resultOf(v).Stdout.Tail)
	}
	v := h.ends(bad)
	require.Contains(t, v.Sentence(), "directory / is not allowed on this spoke, or there is no such directory")
}

// saysItHangs waits until an instance says that of its database, which takes it up to 40 s of its own.
func saysItHangs(t *testing.T, n *fleet.Process) {
	t.Helper()
	require.NoError(t, fleet.Poll(t.Context(), 4*time.Minute, "waiting for the log of "+n.Name, func() (bool, error) {
		return strings.Contains(n.LastWords(), "the database server hangs"), nil
	}))
}

// stopServer stops the database server of an instance, so that it answers nothing, until what it returns is called.
func stopServer(t *testing.T, dir string) (resume func()) {
	t.Helper()
	var servers []int
	resume = func() {
		for _, pid := range servers {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	t.Cleanup(resume)
	for range 3 { // what the server began or ended meanwhile
		servers = processesOf(t, dir)
		for _, pid := range servers {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				require.ErrorIs(t, err, syscall.ESRCH)
			}
		}
	}
	return resume
}

// processesOf are those of the database server of an instance, the first of them first.
func processesOf(t *testing.T, dir string) (list []int) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "pg", "postmaster.pid"))
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(raw), "\n")
	first, err := strconv.Atoi(line)
	require.NoError(t, err)
	list = []int{first}
	children, err := os.ReadFile(filepath.Join("/proc", line, "task", line, "children"))
	require.NoError(t, err)
	for _, f := range strings.Fields(string(children)) {
		pid, err := strconv.Atoi(f)
		require.NoError(t, err)
		list = append(list, pid)
	}
	return list
}

// hubOn is a mesh whose hub works on a database of its own at url.
func hubOn(t *testing.T, url string) *fleet.Mesh {
	t.Helper()
	m, err := fleet.Make(program, "test")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the hub said:\n%s", m.Hub.LastWords())
		}
		require.NoError(t, m.Stop(context.Background()))
	})
	m.Hub.Env = []string{"DATABASE_URL=" + url}
	require.NoError(t, m.StartHub(t.Context()))
	return m
}

// A hub that has no open files left accepts no connection. It does not hang: doctor says what it lacks, and advises nobody to kill it.
func TestDoctorOfAHubWithoutOpenFiles(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	h, pid := hand{t: t, dir: m.Hub.Dir}, m.Hub.Cmd.Process.Pid
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was))
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: was.Max}, nil))

	s := h.run("", "doctor")

	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil))
	require.Equal(t, exitUnexpected, s.code)
	require.Regexp(t, fmt.Sprintf(`process %d, .*, has \d+ of 3 open files, and does not answer within`, pid), s.out)
	require.Contains(t, s.out, fmt.Sprintf("prlimit --pid %d --nofile=1024", pid))
	require.NotContains(t, s.out, "kill -KILL")
	require.NotContains(t, h.run("", "doctor").out, "open files", "it answers again")
}
