package supervisor

import (
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxReaped    = 256 // processes named in a record
	maxSurvivors = 64
	quietRounds  = 2                      // scans in a row that must find no new process
	freezeTime   = 500 * time.Millisecond // after which the kill goes ahead anyway
)

// A tree finds, signals and accounts for the processes of one attempt.
type tree struct {
	marker string
	root   int     // the process whose descendants they are; 0 when that one is dead
	cgroup *cgroup // nil at level "tree"

	signalled map[int]process // what we sent KILL or TERM to, by pid
}

func newTree(marker string, root int, c *cgroup) *tree {
	return &tree{marker: marker, root: root, cgroup: c, signalled: map[int]process{}}
}

// find lists the tree: descendants of the root, members of the cgroup and,
// when deep, whoever carries the marker, each with all descendants. Deep reads
// the environment of every process of this host.
func (t *tree) find(deep bool) ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	in := map[int]bool{}
	if t.root != 0 {
		in[t.root] = true
	}
	for _, pid := range t.cgroup.pids() {
		in[pid] = true
	}
	for pid, p := range all {
		// Known ones count although they left the cgroup or changed their
		// environment.
		known, ok := t.signalled[pid]
		if ok && known.start == p.start || deep && !p.gone() && hasMarker(pid, t.marker) {
			in[pid] = true
		}
	}
	addDescendants(all, in)
	delete(in, t.root)
	delete(in, os.Getpid())
	var found []process
	for _, pid := range slices.Sorted(maps.Keys(in)) {
		if p, ok := all[pid]; ok {
			found = append(found, p)
		}
	}
	return found, nil
}

// addDescendants adds to the set whoever has a parent in it.
func addDescendants(all map[int]process, in map[int]bool) {
	children := map[int][]int{}
	for pid, p := range all {
		children[p.ppid] = append(children[p.ppid], pid)
	}
	queue := slices.Collect(maps.Keys(in))
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		for _, child := range children[pid] {
			if !in[child] {
				in[child] = true
				queue = append(queue, child)
			}
		}
	}
}

// terminate asks the tree to end. CONT lets a stopped process see the TERM.
func (t *tree) terminate() error {
	found, err := t.find(false)
	if err != nil {
		return err
	}
	for _, p := range found {
		t.send(p, unix.SIGTERM)
		t.send(p, unix.SIGCONT)
	}
	return nil
}

// kill sends KILL to everything alive it can find and returns what that was.
// It stops the processes first, until a scan finds no new one, so that none
// can fork its way out between the scan and the signal; the kernel needs no
// such care for a cgroup, but lists nothing.
func (t *tree) kill() ([]process, error) {
	stopped := map[int]process{}
	begin, quiet := time.Now(), 0
	for first := true; quiet < quietRounds && time.Since(begin) < freezeTime; first = false {
		found, err := t.find(first)
		if err != nil {
			return nil, err
		}
		fresh := 0
		for _, p := range found {
			if _, ok := stopped[p.pid]; !ok {
				stopped[p.pid] = p
				t.send(p, unix.SIGSTOP)
				fresh++
			}
		}
		if first {
			_ = t.cgroup.kill() // whatever it does not reach is killed below
		}
		// A process can start its successor and end while a scan passes them
		// both by, so one scan without news is not enough.
		if quiet++; fresh > 0 {
			quiet = 0
		}
	}
	var found []process
	for _, p := range stopped {
		if !p.gone() {
			t.send(p, unix.SIGKILL)
			found = append(found, p)
		}
	}
	return found, nil
}

// send signals p and remembers that we did. An error means that p is gone or
// not ours to signal; the next scan tells which.
func (t *tree) send(p process, sig unix.Signal) {
	if p.gone() {
		return
	}
	if p.signal(sig) == nil {
		t.signalled[p.pid] = p
	}
}

// survivors describes what is still there. A zombie counts only under a live
// root, whom something keeps from reaping it.
func (t *tree) survivors() []Survivor {
	found, _ := t.find(true)
	var left []Survivor
	for _, p := range found {
		if p.gone() && t.root == 0 || len(left) == maxSurvivors {
			continue
		}
		left = append(left, Survivor{Pid: p.pid, Command: p.command, State: string(p.state), Wchan: wchan(p.pid)})
	}
	return left
}

// reaped lists what was signalled and is no more, and how many that were.
func (t *tree) reaped(survivors []Survivor) ([]Process, int) {
	var list []Process
	for _, pid := range slices.Sorted(maps.Keys(t.signalled)) {
		if !slices.ContainsFunc(survivors, func(s Survivor) bool { return s.Pid == pid }) {
			list = append(list, Process{Pid: pid, Command: t.signalled[pid].command})
		}
	}
	return list[:min(len(list), maxReaped)], len(list)
}
