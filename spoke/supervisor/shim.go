package supervisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// shimArg is the first argument of a shim, and probeArg its second when it is
// there only to be killed by [Level].
const (
	shimArg  = "_shim"
	probeArg = "-probe"
)

// A shim is the process between spoke and agent. Its main goroutine alone
// decides and signals; the others bring it events.
type shim struct {
	savedSpec
	lock *os.File // held until the process ends

	socket   *os.File     // bound and listening before the start, so that it cannot fail after it
	listener net.Listener // on the socket, made when there is time
	alarm    *alarm
	tree     *tree
	out, err *capture
	run      running

	mainEnded chan unix.WaitStatus // the agent itself, once
	gone      chan struct{}        // closed: no child is left
	requests  chan request
	signals   chan os.Signal
	ending    chan struct{}  // closed: no more requests are taken
	readers   sync.WaitGroup // of connections and the listener
	captures  sync.WaitGroup
	others    sync.WaitGroup // reaper and alarm

	mu        sync.Mutex // guards what follows
	peers     map[*shimConn]bool
	survivors []Survivor
	final     *Exit // told already

	end ending // see supervise.go; of the main goroutine
}

// ShimMain is the whole program of a shim. Every main calls it before
// anything else when os.Args[1] is "_shim", with the arguments after that,
// and exits with what it returns.
func ShimMain(args []string) int {
	if len(args) == 1 && args[0] == probeArg {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	}
	if len(args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: "+shimArg+" DIRECTORY MARKER (spawnmesh starts this by itself)")
		return 2
	}
	// The agent is killed when the thread that started it ends, so that
	// thread has to be ours for as long as the shim lives.
	runtime.LockOSThread()
	lock, err := mayStart(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "shim:", err)
		return 1
	}
	if lock == nil {
		return 0
	}
	s := &shim{
		lock: lock, peers: map[*shimConn]bool{},
		mainEnded: make(chan unix.WaitStatus, 1), gone: make(chan struct{}),
		requests: make(chan request), signals: make(chan os.Signal, 4), ending: make(chan struct{}),
	}
	if err := s.serve(); err != nil {
		fmt.Fprintln(os.Stderr, "shim:", err)
		return 1
	}
	return 0
}

// mayStart enters the directory and takes its lock, before anything else. It
// returns no lock when the attempt is somebody else's or over.
func mayStart(dir string) (*os.File, error) {
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	lock, err := takeLock(".")
	if lock == nil {
		return nil, err
	}
	for _, name := range []string{tombstoneFile, exitFile} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return nil, release(lock)
		}
	}
	return lock, nil
}

// spokeFd is our end of the socket pair with the spoke.
const spokeFd = 3

// serve runs one attempt. If the spoke died before it had sent the whole spec,
// nothing is started.
func (s *shim) serve() error {
	if err := confine(); err != nil {
		return err
	}
	conn, err := fileConn(spokeFd)
	if err != nil {
		return err
	}
	spoke := newShimConn(conn)
	spoke.most = maxSpec
	if err := spoke.receive(&s.savedSpec); err != nil {
		return err
	}
	spoke.most = maxMessage
	if failed := s.start(); failed != nil {
		record := writeExit(".", Exit{Outcome: StartFailed, Code: -1, Reason: failed.Error(), EndedAt: time.Now().UTC()})
		_ = spoke.send(report{Failed: failed}) // when the spoke is gone the record has to do
		return record
	}
	joined := s.join(spoke) // the proof of the start comes before any exit
	if err := s.attendAll(spoke, joined); err != nil {
		return err // and the agent ends with us, here and below
	}
	exit, err := s.supervise()
	if err != nil {
		return err
	}
	return s.leave(exit)
}

// confine sets what the agent inherits. The locked thread is the one that
// starts it, and no_new_privs belongs to a thread.
func confine() error {
	for _, err := range []error{
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
		// The agent has the same user: keep it from reading our memory.
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
		closeInherited(),
	} {
		if err != nil {
			return fmt.Errorf("confining the agent: %w", err)
		}
	}
	unix.Umask(0o077)
	return nil
}

// closeInherited closes what the spoke had from its own parent and passed on
// unknowingly. Whatever this process opened itself is closed on exec; what is
// not has come through one. Descriptors 0 to 2 are replaced in the agent.
func closeInherited() error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	unix.CloseOnExec(spokeFd)
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

// start does everything up to the proof that the agent was executed.
func (s *shim) start() *StartError {
	fault := func(err error) *StartError { return &StartError{Reason: HostFault, Text: err.Error()} }
	if s.Deadline != 0 && Boottime() >= s.Deadline {
		return &StartError{Reason: LeaseOver, Text: "the lease ran out before the start"}
	}
	var err error
	if s.alarm, err = newAlarm(); err != nil {
		return fault(err)
	}
	if s.socket, err = listenPrivately(); err != nil {
		return fault(err)
	}
	_ = reserveExit(".") // without it the record may fit all the same
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
func (s *shim) attendAll(spoke *shimConn, joined bool) error {
	signal.Notify(s.signals, endSignals()...)
	s.others.Go(s.reap)
	s.others.Go(s.alarm.run)
	s.captures.Go(s.out.drain)
	s.captures.Go(s.err.drain)
	if joined {
		s.readers.Go(func() { s.attend(spoke) })
	}
	var err error
	if s.listener, err = net.FileListener(s.socket); err != nil {
		return fmt.Errorf("listening for adopters: %w", err)
	}
	s.readers.Go(s.listen)
	return s.socket.Close()
}

// endSignals ask a shim to end its tree; a service manager sends them.
func endSignals() []os.Signal { return []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTERM} }

// listenPrivately makes the socket, in the working directory so that its path
// is short, and with 0600 from its first moment.
func listenPrivately() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("listening for adopters: %w", err)
	}
	old := unix.Umask(0o177)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: socketFile})
	unix.Umask(old)
	if err == nil {
		err = unix.Listen(fd, 16)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening for adopters: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), socketFile), nil
}
