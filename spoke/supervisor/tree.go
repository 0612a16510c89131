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
	stillScans   = 2                      // scans in a row that must see a tree stand still
	quietScans   = 6                      // or, on a busy host, at least find no new process in it
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
	var found []process
	_, err := t.meet(deep, func(p process) { found = append(found, p) })
	slices.SortFunc(found, func(a, b process) int { return a.pid - b.pid })
	return found, err
}

// meet is find that hands over each process as soon as it is known to be of
// the tree, which one that starts its successor and ends may not outlive for
// long. Exact is false when a process of the host began or ended meanwhile, so
// that one of the tree may have been passed by.
func (t *tree) meet(deep bool, see func(process)) (exact bool, err error) {
	in := map[int]bool{}
	if t.root != 0 {
		in[t.root] = true
	}
	for _, pid := range t.cgroup.pids() {
		in[pid] = true
	}
	self, all := os.Getpid(), map[int]process{}
	met := func(p process) {
		if in[p.pid] = true; p.pid != t.root && p.pid != self {
			see(p)
		}
	}
	exact, err = eachProcess(func(p process) {
		all[p.pid] = p
		// Known ones count although they left the cgroup or changed their
		// environment.
		known, ok := t.signalled[p.pid]
		if in[p.pid] || in[p.ppid] || ok && known.start == p.start || deep && !p.gone() && hasMarker(p.pid, t.marker) {
			met(p)
		}
	})
	for more := true; more; { // children with a smaller pid than their parent's
		more = false
		for _, p := range all {
			if in[p.ppid] && !in[p.pid] {
				met(p)
				more = true
			}
		}
	}
	return exact, err
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
// It freezes the processes first, so that none can fork its way out between
// the scan and the signal; the kernel needs no such care for a cgroup, but
// lists nothing.
func (t *tree) kill() ([]process, error) {
	stopped, _, err := t.freeze()
	if err != nil {
		return nil, err
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

// freeze stops whatever it finds until the tree stands still: exact scans find
// nothing new in it and all of it stopped or dead. What was stopped before can
// then have no successor on its way, and what was not would have been seen. On
// a host that is never quiet it settles for several scans without news, and
// after freezeTime for what it has; still is false then.
func (t *tree) freeze() (stopped map[int]process, still bool, err error) {
	stopped = map[int]process{}
	begin, quiet, stood := time.Now(), 0, 0
	for first := true; stood < stillScans && quiet < quietScans && time.Since(begin) < freezeTime; first = false {
		fresh, running := false, false
		exact, err := t.meet(first, func(p process) {
			running = running || p.running()
			if stopped[p.pid].start != p.start {
				stopped[p.pid] = p
				t.send(p, unix.SIGSTOP)
				fresh = true
			}
		})
		if err != nil {
			return nil, false, err
		}
		if first {
			_ = t.cgroup.kill() // whatever it does not reach is killed by the caller
		}
		if quiet++; fresh {
			quiet = 0
		}
		if stood++; fresh || running || !exact {
			stood = 0
		}
	}
	return stopped, stood >= stillScans, nil
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
func (t *tree) survivors() ([]Survivor, error) {
	found, err := t.find(true)
	var left []Survivor
	for _, p := range found {
		if p.gone() && t.root == 0 || len(left) == maxSurvivors {
			continue
		}
		left = append(left, Survivor{Pid: p.pid, Command: p.command, State: string(p.state), Wchan: wchan(p.pid)})
	}
	return left, err
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
