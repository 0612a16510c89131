package backlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/store/backlog"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// Processes that claim and complete, and the database server, are killed with -9
// in the middle of their work. What was acknowledged stays, nothing is done
// twice, nothing is lost, and the histories of all processes fit together.
// SPAWNMESH_KILL_ROUNDS asks for more kills.
func TestKillsWhileClaiming(t *testing.T) {
	t.Parallel()
	rounds := scale.Larger(t, "SPAWNMESH_KILL_ROUNDS", 3, 6)
	seed := scale.Seed(t, "SPAWNMESH_KILL_SEED")
	f := newFray(t, seed)
	for range rounds {
		f.fill(t, 60)
		f.killOne(t)
	}
	f.drain(t)
	f.judge(t)
}

// fray is a private server, claimers that work against it, and what becomes of
// them.
type fray struct {
	cluster *postgres.Cluster
	s       *side
	rand    *rand.Rand
	dir     string
	alive   []*exec.Cmd
	owners  []string
	parent  claimer // finishes what is left
	log     bytes.Buffer
	tasks   []string
	outages []outage
	kills   map[string]int
}

func newFray(t *testing.T, seed uint64) *fray {
	t.Helper()
	f := &fray{cluster: pgtest.Cluster(t), rand: rand.New(rand.NewPCG(seed, seed)), dir: t.TempDir(), kills: map[string]int{}}
	f.s = openSide(t, f.cluster.URL(), 4)
	b := boardOf(t, f.s, backlog.MainWorkspace)
	require.NoError(t, b.SetBudget(t.Context(), backlog.Budget{Name: "all", Scope: "workspace", Dimension: "units", Hard: 1_000_000 * backlog.Unit}))
	f.parent = claimer{Owner: "parent", b: b, file: &f.log, sync: func() error { return nil }}
	for range 3 {
		f.start(t)
	}
	return f
}

// start begins one more claimer, under a name that none had before.
func (f *fray) start(t *testing.T) {
	t.Helper()
	owner := fmt.Sprint("claimer-", len(f.owners))
	text, err := json.Marshal(claimer{Owner: owner, URL: f.s.URL, Log: f.logOf(owner), Seed: f.rand.Uint64()})
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKillClaimer$")
	// Who is killed removes nothing of what it made.
	cmd.Env = append(os.Environ(), claimerConfig+"="+string(text), "TMPDIR="+f.dir)
	_, err = cmd.StdinPipe() // its end tells the claimer that we are gone
	require.NoError(t, err)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if t.Failed() && out.Len() > 0 {
			t.Logf("%s: %s", owner, out.String())
		}
	})
	f.alive, f.owners = append(f.alive, cmd), append(f.owners, owner)
}

func (f *fray) logOf(owner string) string { return filepath.Join(f.dir, owner+".log") }

func (f *fray) fill(t *testing.T, n int) {
	t.Helper()
	specs := make([]backlog.TaskSpec, n)
	for i := range specs {
		specs[i] = backlog.TaskSpec{Title: "t", Estimate: map[string]backlog.Amount{"units": backlog.Unit}}
	}
	for _, c := range create(t, f.parent.b, specs...) {
		f.tasks = append(f.tasks, c.ID)
	}
}

// killOne waits until some more was done, and kills one of them.
func (f *fray) killOne(t *testing.T) {
	t.Helper()
	goal := f.written(t) + 1000 + f.rand.Int64N(20_000)
	eventually(t, "the claimers go on", func() bool { return f.written(t) >= goal })
	switch n := f.rand.IntN(10); {
	case n < 5:
		f.kills["claimer"]++
		i := f.rand.IntN(len(f.alive))
		require.NoError(t, f.alive[i].Process.Kill())
		_ = f.alive[i].Wait() // killed
		f.alive = append(f.alive[:i], f.alive[i+1:]...)
		f.start(t)
	case n < 8 && f.mayKillServer():
		f.kills["server"]++
		f.outage(t, f.cluster.Pid())
	default:
		if pids := children(t, f.cluster.Pid()); len(pids) > 0 {
			f.kills["a process of the server"]++
			f.outage(t, pids[f.rand.IntN(len(pids))])
		}
	}
}

// mayKillServer: it is started again five times a minute, no more.
func (f *fray) mayKillServer() bool {
	n := len(f.outages)
	return n < 4 || sharedNow()-f.outages[n-4].from > int64(61*time.Second)
}

// outage kills a process of the server and waits until the server answers again.
func (f *fray) outage(t *testing.T, pid int) {
	t.Helper()
	o := outage{from: sharedNow()}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return // it has ended by itself
	}
	eventually(t, "the server is back", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/fd", pid))
		if err == nil && !zombie(pid) {
			return false
		}
		conn, err := pgx.Connect(t.Context(), pgtest.Admin(f.s.URL))
		if err != nil {
			return false
		}
		defer conn.Close(t.Context())
		return conn.Ping(t.Context()) == nil
	})
	// The clients notice by and by, within their pause between two tries.
	o.to = sharedNow() + int64(time.Second)
	f.outages = append(f.outages, o)
}

func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	return err != nil || strings.HasPrefix(after, "Z")
}

// children returns the processes that the server has started for its clients
// and itself.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil // it is being started
	}
	for _, field := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(field)
		require.NoError(t, err)
		pids = append(pids, child)
	}
	return pids
}

// written is how much the claimers have said so far, in bytes.
func (f *fray) written(t *testing.T) (n int64) {
	t.Helper()
	for _, owner := range f.owners {
		if info, err := os.Stat(f.logOf(owner)); err == nil {
			n += info.Size()
		}
	}
	return n
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(40 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "still waiting: %s", what)
	}
}

// drain ends all claimers and does what they have left.
func (f *fray) drain(t *testing.T) {
	t.Helper()
	for _, c := range f.alive {
		require.NoError(t, c.Process.Kill())
		_ = c.Wait() // killed
	}
	eventually(t, "everything is done", func() bool {
		for _, fence := range f.parent.claim(context.Background(), 50) {
			f.parent.complete(context.Background(), fence)
		}
		f.parent.reclaim(context.Background())
		return f.s.Count(t, `SELECT count(*) FROM tasks WHERE NOT is_terminal(state)`) == 0
	})
}

// judge compares what everybody was told with what is there.
func (f *fray) judge(t *testing.T) {
	t.Helper()
	h := newHistory(f.outages)
	entries := 0
	for i, owner := range f.owners {
		log, err := readLog(f.logOf(owner))
		require.NoError(t, err)
		h.read(t, i+1, owner, log)
		entries += len(log)
	}
	var log []entry
	for lines := json.NewDecoder(&f.log); lines.More(); {
		var e entry
		require.NoError(t, lines.Decode(&e))
		log = append(log, e)
	}
	h.read(t, 0, "parent", log)
	attempts := f.attempts(t)
	h.complete(t, attempts)
	done := map[string]int{}
	for _, k := range attempts {
		if k.Outcome == "succeeded" {
			done[k.Fence.Task]++
		}
	}
	lost, twice := 0, 0
	for _, task := range f.tasks {
		if done[task] == 0 {
			lost++
		}
		if done[task] > 1 {
			twice++
		}
	}
	t.Logf("%d tasks, %d attempts, %d processes, %d lines, killed %v: %d lost, %d doubled", len(f.tasks), len(attempts), len(f.owners), entries, f.kills, lost, twice)
	require.Len(t, done, len(f.tasks))
	require.Zero(t, lost)
	require.Zero(t, twice)
	h.check(t)
	requireInvariants(t, f.s.URL)
	require.Zero(t, f.s.Count(t, `SELECT reserved::int FROM funds`))
}

func (f *fray) attempts(t *testing.T) []kept {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(f.s.URL))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `SELECT task::text, number, epoch, owner, coalesce(outcome, '') FROM attempts`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k kept, err error) {
		return k, row.Scan(&k.Fence.Task, &k.Fence.Attempt, &k.Fence.Epoch, &k.Owner, &k.Outcome)
	})
	require.NoError(t, err)
	return list
}
