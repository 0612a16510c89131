package tree

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// clockTick is the unit of the times in /proc, the same on every Linux.
const clockTick = 10 * time.Millisecond

// Taken is what the descendants of a process take at a moment.
type Taken struct {
	Processes, Threads int
	RSS                int64         // bytes, pages that processes share counted for each
	CPU                time.Duration // used so far, by those that have ended too

	Pids []int

	rss []int64
}

// Measure looks at the descendants of root, which adopts those whose parents end. It goes from
// parent to child: what it costs grows with the tree, and not with the host.
func Measure(root int) (Taken, error) {
	top, err := ReadProcess(root)
	if err != nil {
		return Taken{}, err
	}
	t := Taken{CPU: time.Duration(top.ChildTicks) * clockTick}
	page, seen := int64(os.Getpagesize()), map[int]bool{root: true}
	queue := childrenOf(nil, root)
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		p, err := ReadProcess(pid)
		if err != nil || seen[pid] {
			continue // ended meanwhile
		}
		seen[pid] = true
		t.Processes++
		t.Threads += p.Threads
		t.RSS += p.RSSPages * page
		t.CPU += time.Duration(p.Ticks+p.ChildTicks) * clockTick
		t.Pids, t.rss = append(t.Pids, pid), append(t.rss, p.RSSPages*page)
		queue = childrenOf(queue, pid)
	}
	return t, nil
}

// Memory is RSS with each shared page counted once, as far as the kernel tells. It costs some
// times what Measure does, so ask when RSS gives reason to.
func (t Taken) Memory() (sum int64) {
	for i, pid := range t.Pids {
		if share, ok := shareOf(pid); ok {
			sum += share
		} else {
			sum += t.rss[i]
		}
	}
	return sum
}

// shareOf is a process's memory, of each shared page its share (proc_pid_smaps(5), Linux 4.14).
func shareOf(pid int) (int64, bool) {
	var buf [2048]byte
	n, err := ReadSmall("/proc/"+strconv.Itoa(pid)+"/smaps_rollup", buf[:])
	if err != nil {
		return 0, false
	}
	for _, line := range plain.Lines(string(buf[:n])) {
		if f := plain.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kib, err := strconv.ParseInt(f[1], 10, 53)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

// childrenOf appends the children of all threads of a process. It is made of few calls, as
// somebody asks several times a second.
func childrenOf(list []int, pid int) []int {
	base := "/proc/" + strconv.Itoa(pid) + "/task"
	dir, err := syscall.Open(base, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return list
	}
	defer syscall.Close(dir)
	var entries, children [4 << 10]byte
	for {
		n, err := syscall.ReadDirent(dir, entries[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return list
		}
		_, _, threads := syscall.ParseDirent(entries[:n], -1, nil)
		for _, thread := range threads {
			list = appendPids(list, base+"/"+thread+"/children", children[:])
		}
	}
}

// appendPids appends the numbers in a file that may be longer than the buffer.
func appendPids(list []int, path string, buf []byte) []int {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return list
	}
	defer syscall.Close(fd)
	pid := 0
	for {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return list
		}
		for _, c := range buf[:n] {
			if '0' <= c && c <= '9' {
				pid = 10*pid + int(c-'0')
			} else if pid > 0 {
				list, pid = append(list, pid), 0
			}
		}
	}
}
