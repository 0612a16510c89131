package tree

import (
	"errors"
	"slices"
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// A Process is what /proc says of one at a moment. Pid and start together
// name it for as long as the host runs; the pid alone does not.
type Process struct {
	Pid, Parent int
	Start       uint64 // clock ticks after boot
	State       byte   // the letter of proc_pid_stat(5)
	Threads     int
	Ticks       uint64 // CPU time used, in clock ticks
	ChildTicks  uint64 // CPU time of the children it has waited for
	RSSPages    int64
	Command     string
	Executing   bool   // it is being executed: it has memory, and no environment in it yet. It is said of who may be asked for that only
	EnvironAt   uint64 // where its environment begins in its memory: each execution has another place, as a rule. 0 as Executing
}

// Gone reports whether the process can do nothing any more. A leader that has
// ended while other threads of it run shows Z as well.
func (p Process) Gone() bool {
	return p.State == 'X' || p.State == 'Z' && p.Threads <= 1
}

// Running reports whether the process may do something before anybody
// continues it.
func (p Process) Running() bool {
	return p.State != 'T' && p.State != 't' && !p.Gone()
}

// ReadProcess reads /proc/PID/stat.
func ReadProcess(pid int) (Process, error) {
	var buf [1024]byte
	n, err := ReadSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return Process{}, err
	}
	return parseStat(buf[:n])
}

// parseStat parses one line of /proc/PID/stat. The command may hold any byte,
// blanks and parentheses too, so the fields are counted from its last ')'.
func parseStat(line []byte) (Process, error) {
	open, end := slices.Index(line, '('), lastIndex(line, ')')
	if open < 0 || end < open {
		return Process{}, errors.New("parsing a stat line: no command in it")
	}
	f := plain.Fields(string(line[end+1:])) // f[0] is field 3 of proc_pid_stat(5)
	if len(f) < 22 {
		return Process{}, errors.New("parsing a stat line: " + strconv.Itoa(len(f)) + " fields after the command")
	}
	number := func(field int) uint64 {
		n, _ := strconv.ParseInt(f[field-3], 10, 64)
		return uint64(max(n, 0))
	}
	pid, err := strconv.Atoi(trim(string(line[:open])))
	if err != nil {
		return Process{}, plain.Wrap("parsing a stat line", err)
	}
	p := Process{
		Pid:        pid,
		Command:    string(line[open+1 : end]),
		State:      f[0][0],
		Parent:     int(number(4)),
		Ticks:      number(14) + number(15),
		ChildTicks: number(16) + number(17),
		Threads:    int(number(20)),
		Start:      number(22),
		RSSPages:   int64(number(24)),
	}
	if len(f) >= 49 {
		p.Executing, p.EnvironAt = number(23) > 0 && number(51) == 0, number(50)
	}
	return p, nil
}

func lastIndex(line []byte, c byte) int {
	for i := len(line) - 1; i >= 0; i-- {
		if line[i] == c {
			return i
		}
	}
	return -1
}

// trim takes the blanks off both ends.
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\n') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\n') {
		s = s[:len(s)-1]
	}
	return s
}

// ReadSmall reads a file of at most len(buf) bytes without the costs of an
// os.File; a scan of /proc makes hundreds of these calls.
func ReadSmall(path string, buf []byte) (int, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, plain.Wrap("opening "+path, err)
	}
	defer syscall.Close(fd)
	n, err := syscall.Read(fd, buf)
	if err != nil {
		return 0, plain.Wrap("reading "+path, err)
	}
	return n, nil
}
