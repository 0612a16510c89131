package attack

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

var onProcesses = []Attack{
	{"signal-spoke", "stop or end the spoke", true, 6, func(t Targets) error { return unix.Kill(t.Daemon, 0) }},
	{"signal-shim", "stop or end its shim", true, 6, func(t Targets) error { return unix.Kill(t.Shim, 0) }},
	{"signal-threads", "end its shim by way of a thread", true, 6, func(t Targets) error { return anyThread(t.Shim, signalThread) }},
	{"signal-spoke-threads", "end the spoke by way of a thread", true, 6, func(t Targets) error { return anyThread(t.Daemon, signalThread) }},
	{"signal-init", "end process 1", true, 6, func(t Targets) error { return unix.Kill(t.init1(), 0) }},
	{"signal-all", "end all processes but its own", true, 6, func(t Targets) error { return signalOthers(t) }},
	{"signal-by-handle", "end the spoke by a handle of it", true, 6, func(t Targets) error {
		fd, err := unix.PidfdOpen(t.Daemon, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.PidfdSendSignal(fd, 0, nil, 0)
	}},
	{"trace-spoke", "trace the spoke", true, 1, func(t Targets) error { return trace(t.Daemon) }},
	{"trace-shim", "trace its shim", true, 1, func(t Targets) error { return trace(t.Shim) }},
	{"read-memory", "read the memory of the spoke", true, 1, func(t Targets) error { return read(filepath.Join(proc(t.Daemon), "mem")) }},
	{"copy-memory", "copy from the memory of the spoke", true, 1, func(t Targets) error { return copyMemory(t.Daemon) }},
	{"read-environment", "read the environment of the spoke", true, 1, func(t Targets) error { return read(filepath.Join(proc(t.Daemon), "environ")) }},
	{"read-mappings", "read where the memory of the spoke is", true, 1, func(t Targets) error { return read(filepath.Join(proc(t.Daemon), "maps")) }},
	{"list-files", "list the open files of the spoke", true, 0, func(t Targets) error { return list(filepath.Join(proc(t.Daemon), "fd")) }},
	{"take-file", "take an open file of the spoke", true, 1, func(t Targets) error { return takeFile(t.Daemon) }},
	{"limit-spoke", "lower the limits of the spoke", true, 0, func(t Targets) error {
		var l unix.Rlimit
		return errors.Join(unix.Prlimit(t.Daemon, unix.RLIMIT_CORE, nil, &l), unix.Prlimit(t.Daemon, unix.RLIMIT_CORE, &l, nil))
	}},
	{"slow-spoke", "take the processor from the spoke", true, 0, func(t Targets) error {
		now, err := unix.Getpriority(unix.PRIO_PROCESS, t.Daemon)
		if err != nil {
			return err
		}
		return unix.Setpriority(unix.PRIO_PROCESS, t.Daemon, 20-now)
	}},
	{"bind-spoke", "tie the spoke to one processor", true, 0, func(t Targets) error {
		var set unix.CPUSet
		return errors.Join(unix.SchedGetaffinity(t.Daemon, &set), unix.SchedSetaffinity(t.Daemon, &set))
	}},
	{"spoil-score", "have the spoke ended first when memory is short", true, 1, func(t Targets) error {
		return write(filepath.Join(proc(t.Daemon), "oom_score_adj"))
	}},
	{"become-root", "become root", true, needsRoot, func(Targets) error { return onThread(unix.SYS_SETRESUID, 0, 0, 0) }},
	{"become-another", "become another user", true, needsRoot, func(Targets) error { return onThread(unix.SYS_SETRESUID, 1, 1, 1) }},
	{"become-group", "become a member of another group", true, needsRoot, func(Targets) error { return onThread(unix.SYS_SETRESGID, 42, 42, 42) }},
	{"leave-cgroup", "leave the cgroup that it is ended by", true, 1, func(Targets) error {
		return os.WriteFile("/sys/fs/cgroup/cgroup.procs", []byte(strconv.Itoa(os.Getpid())), 0)
	}},
	{"shared-memory", "read shared memory of another user", true, 0, func(t Targets) error {
		at, _, errno := unix.Syscall(unix.SYS_SHMAT, uintptr(t.Shared), 0, unix.SHM_RDONLY)
		if errno != 0 {
			return errno
		}
		return unix.SysvShmDetach(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), at)), 1))
	}},
}

// anyThread succeeds where f does for any thread of a process.
func anyThread(pid int, f func(pid, thread int) error) error {
	threads, err := os.ReadDir(filepath.Join(proc(pid), "task"))
	if err != nil {
		return err
	}
	failed := errors.New("it has no thread")
	for _, entry := range threads {
		thread, err := strconv.Atoi(entry.Name())
		if err == nil {
			err = f(pid, thread)
		}
		if err == nil {
			return nil
		}
		failed = err
	}
	return failed
}

func signalThread(pid, thread int) error { return unix.Tgkill(pid, thread, 0) }

// signalOthers asks whether any process may be signalled that is not of this attempt.
func signalOthers(t Targets) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	failed := errors.New("there is no other process")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || t.own(pid) {
			continue
		}
		if err := unix.Kill(pid, 0); err == nil {
			return nil
		} else if !errors.Is(err, unix.ESRCH) {
			failed = err
		}
	}
	return failed
}

// trace attaches without stopping. What is traced goes free when this process ends.
func trace(pid int) error {
	runtime.LockOSThread()
	const seize = 0x4206 // PTRACE_SEIZE
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, seize, uintptr(pid), 0, 0, 0, 0)
	if errno != 0 {
		runtime.UnlockOSThread()
		return errno
	}
	return nil
}

func copyMemory(pid int) error {
	var b [1]byte
	local := []unix.Iovec{{Base: &b[0], Len: 1}}
	// Where nothing is mapped a process that may read gets EFAULT.
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 1, Len: 1}}, 0)
	if errors.Is(err, unix.EFAULT) {
		return nil
	}
	return err
}

func takeFile(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	got, err := unix.PidfdGetfd(fd, 2, 0)
	if err == nil {
		_ = unix.Close(got)
	}
	return err
}

// onThread makes a call that changes a thread only, which ends with it.
func onThread(call, a, b, c uintptr) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // it would be what every later attack runs as
			done <- onThread(call, a, b, c)
			runtime.UnlockOSThread()
			return
		}
		_, _, errno := unix.RawSyscall(call, a, b, c)
		if errno != 0 {
			done <- errno
			return
		}
		done <- nil
	}()
	return <-done
}
