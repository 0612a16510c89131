// Package shortpath names files of any path in few bytes: the address of a Unix socket has room
// for 107.
package shortpath

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// enough is how long a path may be that needs no other name.
const enough = 100

// Of returns a name for path, by way of the descriptor of its directory where path is long. It
// is good until done is called.
func Of(path string) (name string, done func(), err error) {
	if len(path) < enough {
		return path, func() {}, nil
	}
	return Hidden(path)
}

// Hidden is Of for a socket whose path is nobody's business: /proc/net/unix shows every process of the host what a socket was bound to.
func Hidden(path string) (name string, done func(), err error) {
	dir := filepath.Dir(path)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // which asks for no right to read it
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, filepath.Base(path)), func() { _ = unix.Close(fd) }, nil
}
