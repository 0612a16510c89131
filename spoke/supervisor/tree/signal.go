package tree

import (
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// Of pidfd_open(2) and pidfd_send_signal(2), the same on all machines that Go runs
// Linux on but those of MIPS.
const (
	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434
)

// Signal sends sig to exactly this process. If p was p before the pidfd was
// opened and still is after, then the pidfd is p's; a pid given to somebody
// else in between has another start time and is left alone.
func (p Process) Signal(sig syscall.Signal) error {
	fd, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(p.Pid), 0, 0)
	if errno != 0 {
		return plain.Wrap("opening process "+strconv.Itoa(p.Pid), errno)
	}
	defer syscall.Close(int(fd))
	now, err := ReadProcess(p.Pid)
	if err != nil {
		return plain.Wrap("looking at process "+strconv.Itoa(p.Pid), err)
	}
	doing := "signalling process " + strconv.Itoa(p.Pid)
	if now.Start != p.Start {
		return plain.Wrap(doing+": it is another process now", syscall.ESRCH)
	}
	if _, _, errno := syscall.RawSyscall6(sysPidfdSendSignal, fd, uintptr(sig), 0, 0, 0, 0); errno != 0 {
		return plain.Wrap(doing, errno)
	}
	return nil
}
