package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharedDirs are where every user of a host may leave something.
var sharedDirs = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"}

// removeLeftovers removes what a user has left outside of the directories of its agent. Nothing
// of it runs.
func removeLeftovers(id int64) error {
	var failed error
	for _, dir := range sharedDirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				continue // it is gone
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok && int64(st.Uid) == id {
				failed = errors.Join(failed, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	if err := errors.Join(failed, removeIPC(id)); err != nil {
		return fmt.Errorf("removing what user %d has left: %w", id, err)
	}
	return nil
}

// An ipcKind is a kind of System V objects: where the kernel lists them, with which fields,
// and the call that removes one.
type ipcKind struct {
	list           string
	idField, owner int // the creator, who cannot be changed
	remove         func(id uintptr) syscall.Errno
}

var ipcKinds = []ipcKind{
	{"/proc/sysvipc/shm", 1, 9, func(id uintptr) syscall.Errno {
		_, _, e := unix.Syscall(unix.SYS_SHMCTL, id, unix.IPC_RMID, 0)
		return e
	}},
	{"/proc/sysvipc/sem", 1, 6, func(id uintptr) syscall.Errno {
		_, _, e := unix.Syscall6(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID, 0, 0, 0)
		return e
	}},
	{"/proc/sysvipc/msg", 1, 9, func(id uintptr) syscall.Errno {
		_, _, e := unix.Syscall(unix.SYS_MSGCTL, id, unix.IPC_RMID, 0)
		return e
	}},
}

func removeIPC(user int64) (failed error) {
	for _, kind := range ipcKinds {
		raw, err := os.ReadFile(kind.list)
		if err != nil {
			continue // a kernel without them
		}
		for _, line := range strings.Split(string(raw), "\n")[1:] {
			f := strings.Fields(line)
			if len(f) <= kind.owner || f[kind.owner] != strconv.FormatInt(user, 10) {
				continue
			}
			id, err := strconv.ParseUint(f[kind.idField], 10, 31)
			if err != nil {
				continue
			}
			if errno := kind.remove(uintptr(id)); errno != 0 && errno != unix.EINVAL && errno != unix.EIDRM {
				failed = errors.Join(failed, errno)
			}
		}
	}
	return failed
}
