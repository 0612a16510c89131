// Package tree finds, ends and accounts for the processes of an attempt: by descent,
// by cgroup and by the marker in their environment. A process id alone decides
// nothing: what is signalled is the process that was found.
//
// A host is never still. What is found is what lived at the moment, and [Tree.Kill]
// is repeated until nothing is.
package tree

import (
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

const (
	stillScans = 2                      // scans in a row that must see a tree stand still
	quietScans = 6                      // or, on a busy host, at least find no new process in it
	freezeTime = 500 * time.Millisecond // after which the kill goes ahead anyway
)

// A Tree finds, signals and accounts for the processes of one attempt.
type Tree struct {
	marker string
	root   int    // the process whose descendants they are; 0 when that one is dead
	group  *Group // nil at level "tree"
	user   attempt.User
	former int64 // a user that it may have, where user is not known; 0 = none

	signalled map[int]Process // what we sent KILL or TERM to, by pid
	paused    map[int]Process // what Pause has stopped
}

// New is the tree of the attempt with a marker. The root is the process whose
// descendants are looked for, 0 when that one is dead; there may be no group.
func New(marker string, root int, group *Group) *Tree {
	return &Tree{marker: marker, root: root, group: group, signalled: map[int]Process{}, paused: map[int]Process{}}
}

// Earlier adds what an earlier look has signalled, so that it is told as reaped
// once it is gone.
func (t *Tree) Earlier(list []attempt.Survivor) {
	for _, s := range list {
		if _, again := t.signalled[s.Pid]; !again {
			t.signalled[s.Pid] = Process{Pid: s.Pid, Command: s.Command}
		}
	}
}

// Find lists the tree: descendants of the root, members of the cgroup and,
// when deep, whoever carries the marker, each with all descendants. Deep reads
// the environment of every process of this host.
func (t *Tree) Find(deep bool) ([]Process, error) {
	var found []Process
	_, err := t.meet(deep, func(p Process) { found = append(found, p) })
	slices.SortFunc(found, func(a, b Process) int { return a.Pid - b.Pid })
	return found, err
}

// meet is Find that hands over each process as soon as it is known to be of
// the tree, which one that starts its successor and ends may not outlive for
// long. What this process descends from is of no tree, whatever says so, and with it nothing
// is that descends from it: the first of them is the parent of all processes. Exact is false when a process of the host began or ended meanwhile, so
// that one of the tree may have been passed by.
func (t *Tree) meet(deep bool, see func(Process)) (exact bool, err error) {
	above, err := ancestors()
	if err != nil {
		return false, err
	}
	in := map[int]bool{}
	if t.root != 0 {
		in[t.root] = true
	}
	for _, pid := range t.group.pids() {
		in[pid] = !above[pid]
	}
	self, all := os.Getpid(), map[int]Process{}
	met := func(p Process) {
		if above[p.Pid] {
			return
		}
		if in[p.Pid] = true; p.Pid != t.root && p.Pid != self {
			see(p)
		}
	}
	exact, err = EachProcess(func(p Process) (err error) {
		all[p.Pid] = p
		// Known ones count although they left the cgroup or changed their
		// environment.
		known, ok := t.signalled[p.Pid]
		ours := in[p.Pid] || in[p.Parent] || ok && known.Start == p.Start
		if !ours && deep && !p.Gone() {
			ours, err = t.marked(p.Pid)
		}
		if ours {
			met(p)
		}
		return err
	})
	for more := true; more; { // children with a smaller pid than their parent's
		more = false
		for _, p := range all {
			if in[p.Parent] && !in[p.Pid] && !above[p.Pid] {
				met(p)
				more = true
			}
		}
	}
	return exact, err
}

// marked reports whether a process is of the tree by what it cannot put off, a user of its own,
// or else by the marker in its environment. Whoever sees a shim knows its marker, so it counts
// where the process has our user only: others could have theirs ended, and keep a kill from its end.
func (t *Tree) marked(pid int) (bool, error) {
	if t.user.ID != 0 {
		return RunsAs(pid, t.user.ID)
	}
	ours, err := RunsAs(pid, int64(os.Getuid()))
	if err == nil && !ours {
		ours, err = t.maybe(pid)
	}
	if err != nil || !ours {
		return false, err
	}
	return HasMarker(pid, t.marker)
}

// Terminate asks the tree to end. CONT lets a stopped process see the TERM. Where there are adapters they are asked alone: what they have started is to hear
// from them first. An agent that only looks like one gains no time by it.
func (t *Tree) Terminate() error {
	found, err := t.Find(false)
	if err != nil {
		return err
	}
	alone := adapters(found)
	for _, p := range found {
		if len(alone) == 0 || slices.Contains(alone, p) {
			t.send(p, syscall.SIGTERM)
		}
		t.send(p, syscall.SIGCONT)
	}
	return t.Resume()
}

// Kill sends KILL to everything alive it can find and returns what that was.
// It freezes the processes first, so that none can fork its way out between
// the scan and the signal; the kernel needs no such care for a cgroup, but
// lists nothing. What has a user of its own needs no care either: once that is known of,
// all of the user is ended in one step.
func (t *Tree) Kill() ([]Process, error) {
	stopped, _, err := t.Freeze()
	if err != nil {
		return nil, err
	}
	if err := EndUser(t.user); err != nil {
		return nil, err
	}
	var found []Process
	for _, p := range stopped {
		if !p.Gone() {
			t.send(p, syscall.SIGKILL)
			found = append(found, p)
		}
	}
	return found, nil
}

// Freeze stops whatever it finds until the tree stands still, see stopAll, and ends its cgroup at the first look.
func (t *Tree) Freeze() (stopped map[int]Process, still bool, err error) {
	return t.stopAll(func(p Process) { t.send(p, syscall.SIGSTOP) },
		func() { _ = t.group.Kill() }) // whatever it does not reach is killed by the caller
}

// stopAll stops whatever it finds until the tree stands still: exact scans find
// nothing new in it and all of it stopped or dead. What was stopped before can
// then have no successor on its way, and what was not would have been seen. On
// a host that is never quiet it settles for several scans without news, and
// after freezeTime for what it has; still is false then. It calls looked after the first scan.
func (t *Tree) stopAll(stop func(Process), looked func()) (stopped map[int]Process, still bool, err error) {
	stopped = map[int]Process{}
	begin, quiet, stood := time.Now(), 0, 0
	for first := true; stood < stillScans && quiet < quietScans && time.Since(begin) < freezeTime; first = false {
		fresh, running := false, false
		exact, err := t.meet(first, func(p Process) {
			sent := stopped[p.Pid].Start == p.Start
			// What waits in the kernel, as for a child that was stopped before its program began, comes back to the signal.
			running = running || p.Running() && !(sent && p.State == 'D')
			if !sent {
				stopped[p.Pid] = p
				stop(p)
				fresh = true
			}
		})
		if err != nil {
			return nil, false, err
		}
		if first {
			looked()
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
func (t *Tree) send(p Process, sig syscall.Signal) {
	if p.Gone() {
		return
	}
	if p.Signal(sig) == nil {
		t.signalled[p.Pid] = p
	}
}

// Survivors describes what is still there. A zombie counts only under a live
// root, whom something keeps from reaping it. What has the former user and hides its
// marker counts, too.
func (t *Tree) Survivors() ([]attempt.Survivor, error) {
	found, err := t.Find(true)
	if err == nil && t.former != 0 {
		_, err = EachProcess(func(p Process) error {
			if p.Gone() || slices.ContainsFunc(found, func(f Process) bool { return f.Pid == p.Pid }) {
				return nil
			}
			may, err := t.maybe(p.Pid)
			if may {
				found = append(found, p)
			}
			return err
		})
	}
	var left []attempt.Survivor
	for _, p := range found {
		if p.Gone() && t.root == 0 || len(left) == attempt.MaxSurvivors {
			continue
		}
		left = append(left, attempt.Survivor{Pid: p.Pid, Command: p.Command, State: string(p.State), Wchan: wchan(p.Pid)})
	}
	return left, err
}

// Reaped lists what was signalled and is no more, and how many that were.
func (t *Tree) Reaped(survivors []attempt.Survivor) ([]attempt.Process, int) {
	var list []attempt.Process
	for _, pid := range slices.Sorted(maps.Keys(t.signalled)) {
		if !slices.ContainsFunc(survivors, func(s attempt.Survivor) bool { return s.Pid == pid }) {
			list = append(list, attempt.Process{Pid: pid, Command: t.signalled[pid].Command})
		}
	}
	return list[:min(len(list), attempt.MaxReaped)], len(list)
}
