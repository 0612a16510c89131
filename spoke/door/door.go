// Package door lets the agent of an attempt talk to its spoke: HTTP and JSON over a Unix socket that only this agent
// can reach, with a token of this attempt.
//
// The socket and the token are in a directory of their own beside the agent's, which the agent may read and not
// write, unless it has the user of its spoke. Everything that it says is fenced by the attempt: where another one has
// the task, or its end was ordered, nothing is changed and the answer says what became of it.
//
// Under failure. A door goes with its process, and a process that adopts an agent opens it again with the same token;
// the agent asks again meanwhile. What was answered is committed.
//
// Under concurrency. An agent may be hostile: of each attempt there is a bound of connections, requests a second and
// bytes, and what is over it is refused or closed. Nothing that one does through its door keeps another one waiting.
//
// Its tests are those of spoke.
package door

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/spawnmesh/spawnmesh/internal/shortpath"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What one agent may do.
const (
	maxConns    = 32 // connections at a time; one more is closed
	maxRequests = 20 // a second, and
	burst       = 100
	maxBody     = 128 << 10 // bytes of a request
	bodyTime    = 10 * time.Second
)

// MaxCheckpoint is how many bytes an agent may keep for its next attempt.
const MaxCheckpoint = 1 << 20

// A Room is the attempt that a door leads to.
type Room struct {
	Backlog  *backlog.Backlog
	Fence    backlog.Fence
	Deadline time.Time // when the attempt is ended at the latest; zero = none
	// Keep keeps data for the next attempt, and the id of a session; what is nil stays as it is.
	Keep func(ctx context.Context, data []byte, session *string) (time.Time, error)
	// News returns what is closed when something may have changed that an agent waits for.
	News func() <-chan struct{}
	// Progressed is told what the agent has said of its progress, after it is stored.
	Progressed func(backlog.Step)
}

// A Door is open until it is closed.
type Door struct {
	room   Room
	secret *secret
	rate   *rate.Limiter
	server *http.Server
	ended  chan struct{}
}

// Socket and Token are the names of the files in the directory of a door.
const (
	Socket = "socket"
	Token  = "token"
)

// Open opens the door of an attempt in dir, which it makes if need be, for the agent's user; 0 = that of this
// process. A token that is there already stays.
func Open(dir string, user int, room Room) (*Door, error) {
	if err := makeDir(dir, user); err != nil {
		return nil, fmt.Errorf("opening the door of an agent: %w", err)
	}
	secret, err := keepToken(filepath.Join(dir, Token), user)
	if err != nil {
		return nil, fmt.Errorf("writing the token of an agent: %w", err)
	}
	l, err := listen(filepath.Join(dir, Socket), user)
	if err != nil {
		return nil, fmt.Errorf("listening for an agent: %w", err)
	}
	d := &Door{room: room, secret: secret, rate: rate.NewLimiter(maxRequests, burst), ended: make(chan struct{})}
	d.server = &http.Server{Handler: d.allowed(d.routes()), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10,
		ErrorLog: log.New(io.Discard, "", 0), DisableGeneralOptionsHandler: true} // an agent decides what it would say
	go func() {
		defer close(d.ended)
		_ = d.server.Serve(&few{Listener: l, free: make(chan struct{}, maxConns)}) // until Close
	}()
	return d, nil
}

// Close ends all that the agent asks at this moment, and returns when nothing is answered any more.
func (d *Door) Close() {
	_ = d.server.Close()
	<-d.ended
}

// makeDir makes the directory of a door. A user of its own gets to what it knows the name of.
func makeDir(dir string, user int) error {
	mode := os.FileMode(0o700)
	if user != 0 {
		mode = 0o711
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no directory", dir)
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, mode) // whatever the umask is
}

// listen makes the socket, which nobody can connect to before it is the agent's alone.
func listen(path string, user int) (net.Listener, error) {
	if err := os.RemoveAll(path); err != nil { // of an earlier process, or whatever the agent has put there
		return nil, err
	}
	name, done, err := shortpath.Of(path)
	if err != nil {
		return nil, err
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	// The mode of the descriptor becomes the mode of the file at bind.
	if err = unix.Fchmod(fd, 0o600); err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: name})
	}
	if err == nil && user != 0 {
		err = os.Lchown(path, user, user)
	}
	if err == nil {
		err = unix.Listen(fd, maxConns)
	}
	if err != nil {
		return nil, err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// few is a listener with a bound of connections: who has more is hung up on.
type few struct {
	net.Listener
	free chan struct{}
}

func (f *few) Accept() (net.Conn, error) {
	for {
		c, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case f.free <- struct{}{}:
			return &one{Conn: c, free: f.free}, nil
		default:
			_ = c.Close()
		}
	}
}
