package isolation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// ways out of a tree. Each is a shell that leaves something behind which has TOKEN in its command
// line. None forks faster than one process every 20 ms, and what goes on by forking ends by itself.
var ways = map[string]string{
	"a child":             `sleep 300.TOKEN &`,
	"a double fork":       `( ( sleep 300.TOKEN & ) & )`,
	"a session":           `setsid sleep 300.TOKEN &`,
	"nohup":               `nohup sleep 300.TOKEN >/dev/null 2>&1 &`,
	"no environment":      `setsid env -i sleep 300.TOKEN &`,
	"no signals":          `sh -c 'trap "" TERM HUP INT QUIT; sleep 300.TOKEN; :' &`,
	"another name":        `setsid env -i bash -c 'exec -a kworker sleep 300.TOKEN' &`,
	"one that goes on":    `setsid env -i bash -c 'hop() { [ $1 -gt 500 ] && return; sleep 0.02; hop $(($1 + 1)) & }; hop 0' TOKEN &`,
	"another cgroup":      `setsid env -i sh -c 'echo $$ >/sys/fs/cgroup/cgroup.procs; exec sleep 300.TOKEN' 2>/dev/null &`,
	"one that is stopped": `setsid env -i sh -c 'kill -STOP $$; sleep 300.TOKEN' TOKEN &`,
}

// against the shim, once the ways are taken.
var against = []string{``, `kill -STOP $PPID;`, `kill -KILL $PPID;`}

// An escape is a few ways out at once, and what is done to the shim.
type escape struct {
	names []string
	shim  string
	token string
}

func (e escape) script() string {
	var b strings.Builder
	b.WriteString("exec 2>/dev/null; ")
	for _, name := range e.names {
		fmt.Fprintln(&b, ways[name])
	}
	b.WriteString("sleep 0.1; >up; sleep 0.05;" + e.shim + " sleep 300." + e.token)
	return strings.ReplaceAll(b.String(), "TOKEN", e.token)
}

func drawEscape(r *rand.Rand, n int) escape {
	names := make([]string, 0, len(ways))
	for name := range ways {
		names = append(names, name)
	}
	slices.Sort(names)
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return escape{names[:1+r.IntN(len(names))], against[r.IntN(len(against))], fmt.Sprintf("%d%06d", os.Getpid(), n)}
}

// Whatever an agent with a user of its own has done, nothing of it outlives a kill. Elsewhere it
// may, where it has ended its shim; the test names what did, and ends it.
func TestNothingEscapes(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t)
	i := open(t, dir)
	r := rand.New(rand.NewPCG(scale.Seed(t, "SPAWNMESH_ESCAPE_SEED"), 0))
	for _, level := range []string{commands.IsolationUserLandlock, commands.IsolationUser, commands.IsolationUserBubble, commands.IsolationNone} {
		if hasBubble(level) && i.bubble == "" {
			continue // TestWhatAUserHolds says so
		}
		var took []time.Duration
		left := map[string]int{}
		for n := range scale.Of(t, "SPAWNMESH_ESCAPES", 6) {
			e := drawEscape(r, n)
			d, names := runEscape(t, i, level, filepath.Join(dir, "agents", level+strconv.Itoa(n), "1"), e)
			took = append(took, d)
			for _, name := range names {
				left[name+" after "+e.shim]++
			}
		}
		slices.Sort(took)
		t.Logf("%s: %d escapes, killed in %v at the median, %v at 99 %%, %v at most; left: %v", level, len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1], left)
		if hasUser(level) {
			require.Empty(t, left)
		}
	}
}

// runEscape returns how long the kill took, and what was left of the agent.
func runEscape(t *testing.T, i *Isolation, level, dir string, e escape) (took time.Duration, left []string) {
	t.Helper()
	d := Dirs{Work: filepath.Join(dir, "work"), Temp: filepath.Join(dir, "tmp"), Home: filepath.Join(dir, "home")}
	require.NoError(t, MakeDirs(level, dir, d))
	var c supervisor.Confine
	if level != commands.IsolationNone {
		var err error
		c, err = i.Take(level, d, Reach{AnyPort: true})
		require.NoError(t, err)
	}
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	control := filepath.Join(dir, "control")
	a, err := supervisor.Start(ctx, control, supervisor.Spec{Argv: []string{"/bin/bash", "-c", e.script()}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: d.Work, Confine: c,
		Limits: supervisor.Limits{Pids: 200}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // not by its output, which a shim that is stopped brings nowhere
		_, err := os.Stat(filepath.Join(d.Work, "up"))
		return err == nil
	}, 20*time.Second, time.Millisecond)
	time.Sleep(100 * time.Millisecond) // what it does to its shim comes last

	began := time.Now()
	err = a.Kill(ctx, "test", 0)
	took = time.Since(began)

	require.NoError(t, err, "%s: %v", level, e.names)
	require.NoError(t, a.Close())
	for _, pid := range having(e.token) {
		left = append(left, strings.Join(e.names, ", "))
		_ = syscall.Kill(pid, syscall.SIGKILL) // it has a token of this test's
	}
	i.Release(c.User, d)
	i.Settle()
	require.Empty(t, i.Kept())
	return took, left
}

// having lists the live processes whose command line has a token.
func having(token string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if errors.Is(err, os.ErrNotExist) || !bytes.Contains(line, []byte(token)) {
			continue
		}
		pids = append(pids, pid)
	}
	return pids
}
