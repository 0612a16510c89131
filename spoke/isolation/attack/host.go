package attack

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

var onHost = []Attack{
	{"connect-abstract", "connect to an abstract socket of the spoke", false, 6, func(t Targets) error { return connect("unix", "@"+t.Abstract) }},
	{"connect-port", "connect to a port of the spoke", false, 4, func(t Targets) error {
		return connect("tcp", t.Loopback)
	}},
	{"write-terminal", "write to a terminal of the spoke's user", true, 1, func(t Targets) error { return write(t.Terminal) }},
	{"read-packets", "read the packets of the host", true, needsRoot, func(Targets) error { return openSocket(unix.AF_PACKET, unix.SOCK_RAW) }},
	{"forge-packets", "send packets of any kind", true, needsRoot, func(Targets) error { return openSocket(unix.AF_INET, unix.SOCK_RAW) }},
	{"mount", "mount a file system", true, 1, func(Targets) error {
		at := filepath.Join(ownDir(), "mount")
		if err := os.MkdirAll(at, 0o700); err != nil {
			return err
		}
		if err := unix.Mount("none", at, "tmpfs", 0, "size=4k"); err != nil {
			return err
		}
		return unix.Unmount(at, 0)
	}},
	{"new-namespace", "make a mount namespace", true, needsRoot, func(Targets) error { return onThread(unix.SYS_UNSHARE, unix.CLONE_NEWNS, 0, 0) }},
	{"change-root", "change its root directory", true, needsRoot, func(Targets) error {
		return unix.Chroot("/") // which it has
	}},
	{"load-module", "load a module into the kernel", true, needsRoot, func(Targets) error { return asked(unix.FinitModule(-1, "", 0), unix.EBADF) }},
	{"read-kernel-log", "read the log of the kernel", false, 1, func(Targets) error { return read("/dev/kmsg") }},
	{"open-memory", "open the memory of the host", true, 1, func(Targets) error { return read("/dev/mem") }},
	{"swap-off", "take away the swap", true, needsRoot, func(Targets) error {
		_, _, errno := unix.Syscall(unix.SYS_SWAPOFF, 0, 0, 0)
		return asked(errno, unix.EFAULT)
	}},
	{"gain-by-program", "gain rights by a program that is root's", true, 1, func(Targets) error {
		v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
		if err == nil && v == 1 {
			return unix.EPERM
		}
		return err
	}},
}

// asked is nil where a call failed for what was wrong with it, and not for want of a right.
func asked(err error, wrong ...unix.Errno) error {
	for _, e := range wrong {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

func openSocket(family, kind int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 1)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
