package disk

import (
	"strconv"
	"syscall"
)

const oPath = 0x200000 // O_PATH of open(2)

// openClosed opens a directory that its owner has made unreadable, and lets him read it again.
func openClosed(fd int, name *byte) (int, syscall.Errno) {
	handle, errno := openDir(fd, name, oPath)
	if errno != 0 {
		return -1, errno
	}
	defer syscall.Close(handle)
	var st syscall.Stat_t
	if err := syscall.Fstat(handle, &st); err != nil {
		return -1, syscall.EACCES
	}
	path := "/proc/self/fd/" + strconv.Itoa(handle) // this very directory
	if err := syscall.Chmod(path, st.Mode&0o7777|0o400); err != nil {
		return -1, syscall.EACCES
	}
	sub, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, syscall.EACCES
	}
	return sub, 0
}
