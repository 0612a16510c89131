package postgres

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// pidFile is what the server says of itself in postmaster.pid.
type pidFile struct {
	pid     int
	segment segment
	status  string // "starting", "ready", "stopping"
}

// segment names the shared memory that the server and its children are attached to.
type segment struct {
	key, id int32
}

// readPidFile reads as much as is there: the server writes the file in several steps, and a crash may leave it empty.
func readPidFile(path string) pidFile {
	text, err := os.ReadFile(path)
	if err != nil {
		return pidFile{}
	}
	lines := append(strings.Split(string(text), "\n"), make([]string, 8)...)
	var p pidFile
	p.pid, _ = strconv.Atoi(strings.TrimSpace(lines[0]))
	// Both are written as unsigned longs, though the kernel takes them for signed integers of 32 bits.
	var key, id uint64
	if _, err := fmt.Sscan(lines[6], &key, &id); err == nil {
		p.segment = segment{int32(key), int32(id)}
	}
	p.status = strings.TrimSpace(lines[7])
	return p
}
