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

	"github.com/spawnmesh/spawnmesh/internal/remove"
)

// SharedDirs are where every user of a host may leave something.
var SharedDirs = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"}

// removeLeftovers removes what users have left outside of the directories of their agents, but
// of those that are kept. It returns what it could not remove, by user. Nothing of them runs.
func removeLeftovers(users map[int64]Dirs, kept map[int64]error) map[int64]error {
	failed := map[int64]error{}
	see := func(id int64, remove func() error) {
		if _, ok := users[id]; !ok || kept[id] != nil {
			return
		}
		if err := remove(); err != nil {
			failed[id] = errors.Join(failed[id], fmt.Errorf("removing what user %d has left: %w", id, err))
		}
	}
	for _, dir := range SharedDirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			for id := range users {
				see(id, func() error { return err })
			}
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				continue // it is gone
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				see(int64(st.Uid), func() error { return remove.All(filepath.Join(dir, e.Name())) })
			}
		}
	}
	for _, kind := range ipcKinds {
		kind.each(see)
	}
	return failed
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

// each shows who owns each object, with what removes it.
func (k ipcKind) each(see func(user int64, remove func() error)) {
	raw, err := os.ReadFile(k.list)
	if err != nil {
		return // a kernel without them
	}
	for _, line := range strings.Split(string(raw), "\n")[1:] {
		f := strings.Fields(line)
		if len(f) <= k.owner {
			continue
		}
		user, err := strconv.ParseInt(f[k.owner], 10, 64)
		id, err2 := strconv.ParseUint(f[k.idField], 10, 31)
		if err != nil || err2 != nil {
			continue
		}
		see(user, func() error {
			if errno := k.remove(uintptr(id)); errno != 0 && errno != unix.EINVAL && errno != unix.EIDRM {
				return errno
			}
			return nil
		})
	}
}
