package shim

import "syscall"

const wAll = 0x40000000 // __WALL of waitpid(2)

// reap collects every child until none is left. As a subreaper we inherit
// each descendant whose parent ends, so none left means that none exists, and
// none can come: only the agent's tree could fork.
func (s *shim) reap() {
	defer close(s.gone)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, wAll, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return // ECHILD
		case pid == s.run.Pid:
			s.mainEnded <- status
		}
	}
}

// signalName is the name that a record has for a signal.
func signalName(s syscall.Signal) string {
	if s > 0 && int(s) < len(signals) {
		return signals[s]
	}
	return ""
}

var signals = [...]string{
	1: "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
	"SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP",
	"SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
}
