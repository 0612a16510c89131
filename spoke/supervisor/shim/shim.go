// Package shim is the process between a spoke and one agent: it starts the agent,
// keeps its output, ends its tree and records how it ended.
//
// The shim is the program that imports this package, executed once more. Its
// initialiser enters before most others: Go initialises a package as soon as what it
// imports is, in the order of their paths. What is imported here decides how many
// come first, so nothing is that needs unicode, fmt, net or crypto.
//
// Under failure. The shim holds the lock of its attempt until it ends, and the agent
// dies with it. The record is written when the tree is proven gone. A shim without a
// spoke goes on until the lease is over.
//
// Under concurrency. The main goroutine alone decides and signals; the others bring
// it events.
package shim

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// A shim is the process between spoke and agent.
type shim struct {
	attempt.Attempt
	lock *os.File // held until the process ends

	socket   *os.File // bound and listening before the start, so that it cannot fail after it
	alarm    *alarm
	group    *tree.Group // nil at level "tree"
	tree     *tree.Tree
	out, err *capture
	run      attempt.Running
	looks    looks
	crowd    atomic.Int64 // the most processes and threads that the agent was seen to have
	heard    heard

	mainEnded chan syscall.WaitStatus // the agent itself, once
	gone      chan struct{}           // closed: no child is left
	requests  chan attempt.Request
	breached  chan attempt.Breach // the first limit that was missed
	signals   chan os.Signal
	ending    chan struct{}  // closed: no more requests are taken
	readers   sync.WaitGroup // of connections and the listener
	captures  sync.WaitGroup
	others    sync.WaitGroup // reaper and alarm

	mu    sync.Mutex // guards what follows
	peers map[*attempt.Conn]bool
	told  []byte // the record that was told last, to those who come later too

	end       ending // see ending.go; this and the next of the main goroutine
	survivors []attempt.Survivor
}

// init makes this program a shim when it is executed as one. No main takes part.
func init() {
	switch args := os.Args; {
	case len(args) == 4 && args[1] == attempt.ShimArg:
		os.Exit(enter(args[2]))
	case len(args) == 3 && args[1] == attempt.ShimArg && args[2] == attempt.ProbeArg:
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
}

// enter is the whole program of a shim. It returns the code to exit with.
func enter(dir string) int {
	// The agent is killed when the thread that started it ends, so that
	// thread has to be ours for as long as the shim lives.
	runtime.LockOSThread()
	lock, err := mayStart(dir)
	if err == nil && lock == nil {
		return 0
	}
	if err == nil {
		s := &shim{
			lock: lock, peers: map[*attempt.Conn]bool{},
			mainEnded: make(chan syscall.WaitStatus, 1), gone: make(chan struct{}),
			requests: make(chan attempt.Request), breached: make(chan attempt.Breach, 1), signals: make(chan os.Signal, 4), ending: make(chan struct{}),
		}
		err = s.serve()
	}
	if err != nil {
		_, _ = os.Stderr.WriteString("shim: " + err.Error() + "\n")
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
	lock, err := attempt.TakeLock(".")
	if lock == nil {
		return nil, err
	}
	for _, name := range []string{attempt.TombstoneFile, attempt.ExitFile} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return nil, attempt.Release(lock)
		}
	}
	return lock, nil
}

// serve runs one attempt. If the spoke died before it had sent the whole spec,
// nothing is started.
func (s *shim) serve() error {
	if err := guard(); err != nil {
		return err
	}
	if err := syscall.SetNonblock(attempt.SpokeFd, true); err != nil {
		return err
	}
	spoke := attempt.NewConn(os.NewFile(attempt.SpokeFd, "spoke"))
	var err error
	if s.Attempt, err = spoke.ReceiveAttempt(); err != nil {
		return err
	}
	if failed := s.start(); failed != nil {
		record := attempt.WriteRecord(".", attempt.Exit{Outcome: attempt.StartFailed, Code: -1, Reason: failed.Error(), Failed: failed.Reason, EndedAt: time.Now().UTC()})
		_ = spoke.SendReport(attempt.Report{Failed: failed}) // when the spoke is gone the record has to do
		return record
	}
	s.attendAll(spoke, s.join(spoke)) // the proof of the start comes before any exit
	exit, err := s.supervise()
	if err != nil {
		return err // and the agent ends with us
	}
	return s.leave(exit)
}
