// Package place opens what an order names on this host once: what is judged is what an agent gets, whatever somebody
// puts at the path of it meanwhile.
//
// Under concurrency. The methods may be called from any goroutine until Close.
package place

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
)

// ErrMoved says that what was opened is at no path any more: it was removed, or is moved again and again.
var ErrMoved = errors.New("it was moved or removed while it was opened")

// errUnplaced says that what was opened cannot be looked for at its path.
var errUnplaced = errors.New("this host has no room to look where it is")

// A Place is a directory or a file that is held open, with no right to its content.
type Place struct {
	file *os.File
	path string
	stat unix.Stat_t
}

// OpenDir opens a directory by an absolute path, through symbolic links, but through none that the kernel makes up, as
// those of /proc/PID: they lead where no path says.
func OpenDir(path string) (*Place, error) { return open(path, unix.O_DIRECTORY) }

// Open is OpenDir for whatever is there. A pipe or a device holds nobody up.
func Open(path string) (*Place, error) { return open(path, 0) }

// OpenDirect is OpenDir through no symbolic link at all, whoever makes one meanwhile. What it says of a path is of that path alone.
func OpenDirect(path string) (*Place, error) {
	fd, err := openat2(path, unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS)
	return placed(fd, path, err)
}

// tries bounds how often a place is looked for that is moved meanwhile.
const tries = 8

func open(path string, flags uint64) (*Place, error) {
	fd, err := openat(path, flags, unix.RESOLVE_NO_MAGICLINKS)
	return placed(fd, path, err)
}

// placed is the place that is open as fd, unless err says why there is none.
func placed(fd int, path string, err error) (*Place, error) {
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	p := &Place{file: os.NewFile(uintptr(fd), path)}
	if err = unix.Fstat(fd, &p.stat); err == nil {
		err = p.locate()
	}
	if err != nil {
		p.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return p, nil
}

// locate finds the path of what is open: one that leads there without symbolic links. What the kernel calls it alone is no
// proof, as of what is deleted, or in other namespaces.
func (p *Place) locate() error {
	for range tries {
		path, err := os.Readlink(p.Link())
		if err != nil {
			return err
		}
		is, err := p.isAt(path)
		if hostfault.NoRoom(err) {
			return errUnplaced // the path was opened, so this tells of it
		}
		if is {
			p.path = path
			return nil
		}
	}
	return ErrMoved
}

func (p *Place) isAt(path string) (bool, error) {
	fd, err := openat(path, 0, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	var there unix.Stat_t
	err = unix.Fstat(fd, &there)
	return err == nil && there.Dev == p.stat.Dev && there.Ino == p.stat.Ino, err
}

// Fault reports whether err is a fault of this host, which may pass: neither that nothing is at the path, nor that it may not be opened.
func Fault(err error) bool {
	return hostfault.Is(err) || errors.Is(err, ErrMoved) || errors.Is(err, errUnplaced)
}

// openat opens a path only for its own sake. Before Linux 5.6, and in a sandbox that does not know openat2, links are
// followed as ever: what they led to is compared with its path all the same.
func openat(path string, flags, resolve uint64) (int, error) {
	fd, err := openat2(path, flags, resolve)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return unix.Open(path, int(flags)|unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

func openat2(path string, flags, resolve uint64) (fd int, err error) {
	how := &unix.OpenHow{Flags: flags | unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve}
	for {
		fd, err = unix.Openat2(unix.AT_FDCWD, path, how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) { // else something was moved meanwhile
			return fd, err
		}
	}
}

// Path is where it was when it was opened: absolute, and without symbolic links.
func (p *Place) Path() string { return p.path }

// File is the descriptor, nil of none. It is closed with p.
func (p *Place) File() *os.File {
	if p == nil {
		return nil
	}
	return p.file
}

// Link is a name of it in this process, by which it can be opened whatever is at its path.
func (p *Place) Link() string { return fmt.Sprintf("/proc/self/fd/%d", p.file.Fd()) }

// ID tells it from all else of this host, as long as it is there.
func (p *Place) ID() string { return fmt.Sprintf("%d:%d", p.stat.Dev, p.stat.Ino) }

// Runnable reports whether it is a file that somebody may execute.
func (p *Place) Runnable() bool {
	return p.stat.Mode&unix.S_IFMT == unix.S_IFREG && p.stat.Mode&0o111 != 0
}

// Close lets go of it. It may be called again, and of none.
func (p *Place) Close() {
	if p != nil {
		_ = p.file.Close()
	}
}
