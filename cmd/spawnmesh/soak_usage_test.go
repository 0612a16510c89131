package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// A usage is what one process holds.
type usage struct {
	files, threads, children int
}

// usage reads what each node holds, when nothing is under way.
func (s *soak) usage() map[string]usage {
	s.t.Helper()
	all := map[string]usage{}
	for i, n := range s.processes() {
		u, err := usageOf(n)
		require.NoError(s.t, err)
		all[fmt.Sprint(i, " ", n.Name)] = u
	}
	return all
}

func usageOf(n *fleet.Process) (u usage, err error) {
	dir := fmt.Sprintf("/proc/%d/", n.Cmd.Process.Pid)
	if u.files, err = openFiles(dir); err != nil {
		return u, err
	}
	threads, err := os.ReadDir(dir + "task")
	if err != nil {
		return u, err
	}
	for _, t := range threads {
		raw, _ := os.ReadFile(dir + "task/" + t.Name() + "/children") // a thread may end meanwhile
		u.children += len(strings.Fields(string(raw)))
	}
	u.threads = len(threads)
	return u, nil
}

// openFiles counts the open files of a process, 0 where they are not shown: an instance keeps
// them from its own user.
func openFiles(proc string) (int, error) {
	files, err := os.ReadDir(proc + "fd")
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		return 0, nil
	}
	return len(files), err
}

// moreThreads may be there after an hour of faults: Go ends no idle thread, so as many stay as were
// ever in system calls at one time.
const moreThreads = 30

// checkUsage waits until no node holds more than before: connections to a database
// that nobody uses are closed after a while.
func (s *soak) checkUsage(before map[string]usage) {
	s.t.Helper()
	var now map[string]usage
	err := fleet.Poll(s.ctx, 2*time.Minute, "waiting for what was used to be given back", func() (bool, error) {
		now = s.usage()
		for name, was := range before {
			if is := now[name]; is.files > was.files+10 || is.threads > was.threads+moreThreads || is.children > was.children+1 {
				return false, nil
			}
		}
		return true, nil
	})
	s.say("before %v, now %v", before, now)
	require.NoError(s.t, err, "before %v, now %v", before, now)
}
