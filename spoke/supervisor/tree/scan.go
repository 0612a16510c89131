package tree

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// EachProcess reads all of /proc, in the order of the pids, until see returns an error. A process that ends
// meanwhile is left out; the picture is exact when none did and none began. One that a fault of this host keeps
// from being read is not taken for one that has ended: that is an error. It
// reads a few entries at a time, so that the newest processes, which come
// last, were listed a moment ago.
func EachProcess(see func(Process) error) (exact bool, err error) {
	before := lastPid()
	dir, err := syscall.Open("/proc", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false, plain.Wrap("listing processes", err)
	}
	defer syscall.Close(dir)
	exact = before != ""
	var buf [512]byte // some twenty entries
	for {
		n, err := syscall.ReadDirent(dir, buf[:])
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return false, plain.Wrap("listing processes", err)
		}
		if n == 0 {
			return exact && before == lastPid(), nil
		}
		_, _, names := syscall.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			p, err := ReadProcess(pid)
			if err == nil {
				err = see(p)
			} else {
				exact, err = false, faultOnly(err)
			}
			if err != nil {
				return false, plain.Wrap("looking at process "+name, err)
			}
		}
	}
}

// untilFound looks at all processes of this host until found says that something was. A look that is not exact may miss a process that forks and
// ends all the time: so it ends without having found anything after one exact look, or after several others in a row.
func untilFound(found func() bool, see func(Process) error) error {
	for range quietScans {
		if exact, err := EachProcess(see); err != nil || exact || found() {
			return err
		}
	}
	return nil
}

// lastPid is the pid the kernel gave last in this pid namespace: the fifth
// field of /proc/loadavg, empty when it cannot be read.
func lastPid() string {
	var buf [128]byte
	n, err := ReadSmall("/proc/loadavg", buf[:])
	f := plain.Fields(string(buf[:n]))
	if err != nil || len(f) < 5 {
		return ""
	}
	return f[4]
}

// maxEnviron is more than the kernel lets an environment be (execve(2): 6 MiB
// with the arguments). A process can make its own look larger without end.
const maxEnviron = 8 << 20

// How long it is waited for a process that is being executed, which has no environment for a moment.
const maxExecuting, executingPause = 200 * time.Millisecond, time.Millisecond

// HasMarker reports whether the process was executed with the marker in its
// environment. A process of another user hides its environment and has none. An error is a fault of this host.
func HasMarker(pid int, marker string) (bool, error) {
	return hasOneOf(pid, func(has string) bool { return has == marker })
}

func hasOneOf(pid int, is func(marker string) bool) (bool, error) {
	env, err := environ(pid)
	for begin := time.Now(); err == nil && len(env) == 0 && time.Since(begin) < maxExecuting; {
		before, _ := ReadProcess(pid)
		env, err = environ(pid)
		if after, gone := ReadProcess(pid); gone != nil || !after.Executing && after.EnvironAt == before.EnvironAt {
			break // it was not executed meanwhile
		}
		time.Sleep(executingPause)
	}
	if err != nil {
		return false, faultOnly(err)
	}
	for rest, found := string(env), true; found; {
		var e string
		e, rest, found = plain.Cut(rest, "\x00")
		if marker, set := plain.CutPrefix(e, attempt.MarkerName+"="); set && is(marker) {
			return true, nil
		}
	}
	return false, nil
}

// environ reads the environment of a process, which is empty while it is being executed.
func environ(pid int) ([]byte, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxEnviron))
}

// faultOnly is err where that is a fault of this host, and nil where it says that a process has ended or is hidden.
func faultOnly(err error) error {
	if hostfault.Is(err) {
		return err
	}
	return nil
}

// wchan names the kernel function a process waits in, empty when hidden.
func wchan(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/wchan")
	if err != nil || string(b) == "0" {
		return ""
	}
	return string(b)
}
