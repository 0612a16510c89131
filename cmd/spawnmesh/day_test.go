package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// A day is two hubs and three spokes that an operator works on for a day.
type day struct {
	t      *testing.T
	trace  trace
	meshes map[string]*fleet.Mesh    // by the hub that is theirs
	places map[string]*fleet.Process // by name: hubs and spokes
}

// An operator's day is a script: what goes wrong, what the product says of it, and what is typed then.
//
//	at NAME LINE...          what is typed at an instance
//	until WORDS NAME LINE... typed again until it shows the regular expression WORDS
//	dies NAME, boots NAME    a host with all that runs on it
//	loses NAME               a host with its disk
//	starts N                 N agents have started, each once; "again" twice
func TestAnOperatorsDay(t *testing.T) {
	t.Parallel()
	d := newDay(t)
	testscript.Run(t, testscript.Params{Files: []string{"testdata/day.txtar"}, Setup: d.setup,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"at": d.at, "until": d.until, "orders": d.orders, "starts": d.starts,
			"dies":  func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(d.dies(args[0])) },
			"boots": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(d.places[args[0]].Start(t.Context())) },
			"loses": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(errors.Join(d.dies(args[0]), os.Rename(d.places[args[0]].Dir, d.places[args[0]].Dir+".lost")))
			},
		}})
}

// newDay starts what is there in the morning: lab with attic and barn, shop with cellar and barn.
func newDay(t *testing.T) *day {
	d := &day{t: t, trace: newTrace(t), meshes: map[string]*fleet.Mesh{"lab": startHub(t), "shop": startHub(t, "--name", "shop")}, places: map[string]*fleet.Process{}}
	for _, s := range []struct{ name, hub string }{{"attic", "lab"}, {"barn", "lab"}, {"cellar", "shop"}} {
		m := d.meshes[s.hub]
		withCluster(t, filepath.Join(m.Dir, s.name))
		require.NoError(t, m.AddSpoke(t.Context(), s.name, loose, "--heartbeat", "1s", "--slots", "8"))
		d.places[s.hub], d.places[s.name] = m.Hub, m.Spokes[s.name]
	}
	return d
}

func (d *day) setup(env *testscript.Env) error {
	passphrase := filepath.Join(env.WorkDir, "passphrase")
	env.Setenv("TRACE", d.trace.path)
	return os.WriteFile(passphrase, []byte("correct horse battery\n"), 0o600)
}

// at types a line at an instance; its standard input is the file that a first word like <FILE names.
func (d *day) at(ts *testscript.TestScript, neg bool, args []string) {
	stdin := ""
	if file, ok := strings.CutPrefix(args[0], "<"); ok {
		stdin, args = ts.ReadFile(file), args[1:]
	}
	s := d.hand(args[0]).run(stdin, args[1:]...)
	fmt.Fprint(ts.Stdout(), s.out)
	fmt.Fprint(ts.Stderr(), s.err)
	if (s.code != 0) != neg {
		ts.Fatalf("%v: exit code %d\n%s%s", args, s.code, s.out, s.err)
	}
}

func (d *day) until(ts *testscript.TestScript, _ bool, args []string) {
	words, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var s said
	err = fleet.Poll(d.t.Context(), time.Minute, "waiting for "+args[0], func() (bool, error) {
		s = d.hand(args[1]).run("", args[2:]...)
		return words.MatchString(s.out), nil
	})
	fmt.Fprint(ts.Stdout(), s.out)
	if err != nil {
		ts.Fatalf("%v\n%s%s", err, s.out, s.err)
	}
}

func (d *day) hand(name string) hand {
	p, ok := d.places[name]
	require.True(d.t, ok, "%s is no instance", name)
	return hand{t: d.t, dir: p.Dir}
}

// dies ends an instance and everything that runs below its directory at once: its database, shims and agents.
func (d *day) dies(name string) error {
	p := d.places[name]
	p.Kill()
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, proc := range list {
		line, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err == nil && pid != os.Getpid() && strings.Contains(string(line)+cwd, p.Dir+"/") {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	return nil
}

// orders types a line a number of times, with the number of each in place of %d.
func (d *day) orders(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	for i := range n {
		line := slices.Clone(args[1:])
		for j := range line {
			line[j] = strings.ReplaceAll(line[j], "%d", strconv.Itoa(i))
		}
		d.at(ts, false, line)
	}
}

// starts checks how often each agent has started, as they say themselves.
func (d *day) starts(ts *testscript.TestScript, _ bool, args []string) {
	starts, _ := d.trace.counts(d.t)
	for name, n := range starts {
		if n != 1 && (name != "again" || n != 2) {
			ts.Fatalf("%s has started %d times", name, n)
		}
	}
	if strconv.Itoa(len(starts)) != args[0] {
		ts.Fatalf("%d agents have started, not %s", len(starts), args[0])
	}
}
