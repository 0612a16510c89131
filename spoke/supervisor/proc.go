package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A process is what /proc says of one at a moment. Pid and start together
// name it for as long as the host runs; the pid alone does not.
type process struct {
	pid, ppid int
	start     uint64 // clock ticks after boot
	state     byte
	threads   int
	ticks     uint64 // CPU time used, in clock ticks
	childTick uint64 // CPU time of the children it has waited for
	rssPages  int64
	command   string
}

// gone reports whether the process can do nothing any more. A leader that has
// ended while other threads of it run shows Z as well.
func (p process) gone() bool {
	return p.state == 'X' || p.state == 'Z' && p.threads <= 1
}

// running reports whether the process may do something before anybody
// continues it.
func (p process) running() bool {
	return p.state != 'T' && p.state != 't' && !p.gone()
}

// readProcess reads /proc/PID/stat.
func readProcess(pid int) (process, error) {
	var buf [1024]byte
	n, err := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return process{}, err
	}
	return parseStat(buf[:n])
}

// parseStat parses one line of /proc/PID/stat. The command may hold any byte,
// blanks and parentheses too, so the fields are counted from its last ')'.
func parseStat(line []byte) (process, error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return process{}, errors.New("parsing a stat line: no command in it")
	}
	f := strings.Fields(string(line[end+1:])) // f[0] is field 3 of proc_pid_stat(5)
	if len(f) < 22 {
		return process{}, fmt.Errorf("parsing a stat line: %d fields after the command", len(f))
	}
	number := func(field int) uint64 {
		n, _ := strconv.ParseInt(f[field-3], 10, 64)
		return uint64(max(n, 0))
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:open])))
	if err != nil {
		return process{}, fmt.Errorf("parsing a stat line: %w", err)
	}
	return process{
		pid:       pid,
		command:   string(line[open+1 : end]),
		state:     f[0][0],
		ppid:      int(number(4)),
		ticks:     number(14) + number(15),
		childTick: number(16) + number(17),
		threads:   int(number(20)),
		start:     number(22),
		rssPages:  int64(number(24)),
	}, nil
}

// eachProcess reads all of /proc, in the order of the pids. A process that ends
// meanwhile is left out; the picture is exact when none did and none began. It
// reads a few entries at a time, so that the newest processes, which come
// last, were listed a moment ago.
func eachProcess(see func(process)) (exact bool, err error) {
	before := lastPid()
	dir, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("listing processes: %w", err)
	}
	defer unix.Close(dir)
	exact = before != ""
	var buf [512]byte // some twenty entries
	for {
		n, err := unix.ReadDirent(dir, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("listing processes: %w", err)
		}
		if n == 0 {
			return exact && before == lastPid(), nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			if p, err := readProcess(pid); err == nil {
				see(p)
			} else {
				exact = false
			}
		}
	}
}

// lastPid is the pid the kernel gave last in this pid namespace: the fifth
// field of /proc/loadavg, empty when it cannot be read.
func lastPid() string {
	var buf [128]byte
	n, err := readSmall("/proc/loadavg", buf[:])
	f := strings.Fields(string(buf[:n]))
	if err != nil || len(f) < 5 {
		return ""
	}
	return f[4]
}

// signal sends sig to exactly this process. If p was p before the pidfd was
// opened and still is after, then the pidfd is p's; a pid given to somebody
// else in between has another start time and is left alone.
func (p process) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return fmt.Errorf("opening process %d: %w", p.pid, err)
	}
	defer unix.Close(fd)
	now, err := readProcess(p.pid)
	if err != nil {
		return fmt.Errorf("looking at process %d: %w", p.pid, err)
	}
	if now.start != p.start {
		return fmt.Errorf("signalling process %d: it is another process now: %w", p.pid, unix.ESRCH)
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return fmt.Errorf("signalling process %d: %w", p.pid, err)
	}
	return nil
}

// maxEnviron is more than the kernel lets an environment be (execve(2): 6 MiB
// with the arguments). A process can make its own look larger without end.
const maxEnviron = 8 << 20

// hasMarker reports whether the process was executed with the marker in its
// environment. A process of another user hides its environment and has none.
func hasMarker(pid int, marker string) bool {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	defer f.Close()
	env, err := io.ReadAll(io.LimitReader(f, maxEnviron))
	if err != nil {
		return false
	}
	entry := []byte(MarkerName + "=" + marker)
	return slices.ContainsFunc(bytes.Split(env, []byte{0}), func(e []byte) bool { return bytes.Equal(e, entry) })
}

// wchan names the kernel function a process waits in, empty when hidden.
func wchan(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/wchan")
	if err != nil || string(b) == "0" {
		return ""
	}
	return string(b)
}

// readSmall reads a file of at most len(buf) bytes without the costs of an
// os.File; a scan of /proc makes hundreds of these calls.
func readSmall(path string, buf []byte) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening %s: %w", path, err)
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", path, err)
	}
	return n, nil
}
