package shim

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// start does everything up to the proof that the agent was executed.
func (s *shim) start() *attempt.StartError {
	fault := func(err error) *attempt.StartError {
		return &attempt.StartError{Reason: attempt.HostFault, Text: err.Error()}
	}
	if s.Deadline != 0 && attempt.Boottime() >= s.Deadline {
		return &attempt.StartError{Reason: attempt.LeaseOver, Text: "the lease ran out before the start"}
	}
	var err error
	if s.alarm, err = newAlarm(); err != nil {
		return fault(err)
	}
	if s.socket, err = listenPrivately(); err != nil {
		return fault(err)
	}
	_ = attempt.ReserveRecord(".") // without it the record may fit all the same
	// The agent gets the default actions whatever the spoke's parent ignored:
	// what is caught here is reset in it. The rest of them can wait until the
	// start is proven; whoever sends TERM before that ends shim and agent too.
	for _, sig := range endSignals() {
		if signal.Ignored(sig) {
			signal.Notify(s.signals, sig)
		}
	}
	return s.execute()
}

// attendAll starts what goes on beside the main goroutine. It comes after the
// proof of the start, which somebody waits for.
func (s *shim) attendAll(spoke *attempt.Conn, joined bool) {
	signal.Notify(s.signals, endSignals()...)
	s.others.Go(s.reap)
	s.others.Go(s.alarm.run)
	s.heard.begun = time.Now()
	s.listenFor(s.out)
	s.listenFor(s.err)
	s.captures.Go(s.out.drain)
	s.captures.Go(s.err.drain)
	s.watchTree()
	s.watchDisk()
	if joined {
		s.readers.Go(func() { s.attend(spoke) })
	}
	s.readers.Go(s.listen)
}

// endSignals ask a shim to end its tree; a service manager sends them.
func endSignals() []os.Signal { return []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} }

// listenPrivately makes the socket, in the working directory so that its path
// is short, and with 0600 from its first moment.
func listenPrivately() (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, plain.Wrap("listening for adopters", err)
	}
	old := syscall.Umask(0o177)
	err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: attempt.SocketFile})
	syscall.Umask(old)
	if err == nil {
		err = syscall.Listen(fd, 16)
	}
	if err != nil {
		return nil, errors.Join(plain.Wrap("listening for adopters", err), syscall.Close(fd))
	}
	return os.NewFile(uintptr(fd), attempt.SocketFile), nil
}
