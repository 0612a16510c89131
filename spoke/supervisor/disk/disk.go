// Package disk counts what files take. An agent changes them meanwhile, and may want to
// mislead: no symbolic link is followed, no other file system is entered, and every directory
// is opened from the one that it was found in.
package disk

import (
	"syscall"
	"unsafe"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// MaxLevels is how deep directories are counted. A path as the kernel takes it has twice as many
// at most.
const MaxLevels = 1000

// A Usage is what files take.
type Usage struct {
	Bytes, Inodes int64
}

// A Count adds files up, each once however many names it has.
type Count struct {
	Usage
	Deep bool // some directories are below MaxLevels, and were not counted

	Most  Usage       // counting ends above it; 0 = never
	Owner int64       // whose files are counted; -1 = all
	Stop  func() bool // asked now and then; nil = go on

	links map[inode]bool
}

type inode struct{ dev, ino uint64 }

// Ended reports whether counting has ended before all was counted.
func (c *Count) Ended() bool {
	return c.Deep || c.Most.Bytes > 0 && c.Bytes > c.Most.Bytes || c.Most.Inodes > 0 && c.Inodes > c.Most.Inodes || c.Stop != nil && c.Stop()
}

// Below counts what is in a directory.
func (c *Count) Below(path string) error {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return plain.Wrap("counting files in "+path, err)
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return plain.Wrap("counting files in "+path, err)
	}
	c.dir(fd, uint64(st.Dev), 1)
	return nil
}

// An entry of getdents64(2): the name ends in a NUL.
const (
	direntSize = 16 // offset of its size
	direntName = 19 // offset of its name
)

// dir counts the entries of an open directory. What cannot be looked at has gone, or was closed
// by its owner.
func (c *Count) dir(fd int, dev uint64, level int) {
	var buf [8 << 10]byte
	for !c.Ended() {
		n, err := syscall.ReadDirent(fd, buf[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for at := 0; at < n; {
			name := buf[at+direntName:]
			at += int(buf[at+direntSize]) | int(buf[at+direntSize+1])<<8
			if name[0] == '.' && (name[1] == 0 || name[1] == '.' && name[2] == 0) {
				continue
			}
			c.entry(fd, name, dev, level)
		}
	}
}

func (c *Count) entry(fd int, name []byte, dev uint64, level int) {
	var st syscall.Stat_t
	if fstatat(fd, &name[0], &st) != 0 || uint64(st.Dev) != dev || c.Owner >= 0 && int64(st.Uid) != c.Owner {
		return
	}
	c.add(&st)
	if st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return
	}
	if level > MaxLevels {
		c.Deep = true
		return
	}
	sub, errno := openDir(fd, &name[0], syscall.O_RDONLY)
	if errno == syscall.EACCES && st.Mode&0o200 != 0 && st.Mode&0o400 == 0 {
		// A directory that is written to and cannot be read: its owner has a use for that
		// only to keep us from counting.
		sub, errno = openClosed(fd, &name[0])
	}
	if errno == syscall.EMFILE {
		c.Deep = true
	}
	if errno != 0 {
		return
	}
	defer syscall.Close(sub)
	var now syscall.Stat_t
	if syscall.Fstat(sub, &now) == nil && uint64(now.Dev) == dev {
		c.dir(sub, dev, level+1)
	}
}

// add counts one file, unless it was counted under another name.
func (c *Count) add(st *syscall.Stat_t) {
	if st.Nlink != 1 && st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		id := inode{uint64(st.Dev), st.Ino}
		if c.links[id] {
			return
		}
		if c.links == nil {
			c.links = map[inode]bool{}
		}
		c.links[id] = true
	}
	c.Inodes++
	c.Bytes += st.Blocks * 512
}

func openDir(fd int, name *byte, flags int) (int, syscall.Errno) {
	sub, _, errno := syscall.Syscall6(syscall.SYS_OPENAT, uintptr(fd), uintptr(unsafe.Pointer(name)), uintptr(flags|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC), 0, 0, 0)
	return int(sub), errno
}

func fstatat(fd int, name *byte, st *syscall.Stat_t) syscall.Errno {
	const noFollow = 0x100 // AT_SYMLINK_NOFOLLOW
	_, _, errno := syscall.Syscall6(sysFstatat, uintptr(fd), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(st)), noFollow, 0, 0)
	return errno
}
