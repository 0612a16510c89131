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
// bytes, and what is over it waits or is refused. Nothing that one does through its door keeps another one waiting.
//
// Its tests are those of spoke.
package door

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spawnmesh/spawnmesh/store/backlog"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

// What one agent may do.
const (
	maxConns    = 32 // connections at a time; as many wait in a line before, and one more cannot connect
	maxDials    = 50 // new connections a second, and
	dialBurst   = 200
	maxRequests = 20 // a second, and
	burst       = 100
	maxWrong    = 5 // requests a second without its token, and
	wrongBurst  = 20
	maxBody     = 256 << 10 // bytes of a request
	maxHeavy    = 2         // requests at a time that hold more than that, here or on the disk; others wait
	bodyTime    = 10 * time.Second
	writeTime   = 5 * time.Second // that it may take to read an answer
	closeTime   = 5 * time.Second // that requests have to end when the door is closed
)

// MaxCheckpoint is how many bytes an agent may keep for its next attempt.
const MaxCheckpoint = 1 << 20

// A Room is the attempt that a door leads to.
type Room struct {
	Backlog  *backlog.Backlog
	Fence    backlog.Fence
	Deadline time.Time // when the attempt is ended at the latest; zero = none
	// KeepData keeps all of data for the next attempt, in place of what was kept before, and KeepSession the id of a session.
	KeepData    func(ctx context.Context, data io.Reader) (time.Time, error)
	KeepSession func(ctx context.Context, id string) (time.Time, error)
	// Hide takes the values that the host and the order give the agent as secrets out of what it says.
	Hide func(text string) string
	// Bars reports whether a process has nothing to say here, as one of another agent with the same user; nil = who can dial may.
	Bars func(pid int) bool
	// Work is the agent's working directory, which goes with the door.
	Work *WorkDir
	// Ending is told that the agent says something of its own end, before that is stored.
	Ending func()
	// Heard is told whenever the agent asks or says something, and when it is answered.
	Heard func()
	// News returns what is closed when something may have changed that an agent waits for.
	News func() <-chan struct{}
	// Messages are those of the agents that the same hub has ordered, which are in a workspace of theirs.
	Messages  *messages.Log
	Workspace string
	// Progressed is told what the agent has said of its progress, after it is stored.
	Progressed func(backlog.Step)
}

// A Door is open until it is closed.
type Door struct {
	room   Room
	user   int // of the agent; 0 = that of the spoke
	secret *secret

	digests digests // of artifacts

	rate   *rate.Limiter
	wrong  *rate.Limiter // of requests without the token: they take nothing from the agent's own
	heavy  chan struct{}
	server *http.Server
	ctx    context.Context // of all that is asked
	end    context.CancelFunc
	ended  chan struct{}

	mu       sync.Mutex // guards what follows
	closed   bool
	busy     sync.WaitGroup // requests; none begins once closed is set
	waits    int            // requests that wait for an answer
	watching bool           // somebody looks for answers
	look     *look          // that comes next
}

// Socket and Token are the names of the files in the directory of a door.
const (
	Socket = "socket"
	Token  = "token"
)

// Open opens the door of an attempt in dir, which it makes if need be, for the agent's user; 0 = that of this
// process. A token that is there already stays. Without a door the working directory is closed.
func Open(dir string, user int, room Room) (d *Door, err error) {
	defer func() {
		if err != nil {
			room.Work.Close()
		}
	}()
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
	d = &Door{room: room, user: user, secret: secret, rate: rate.NewLimiter(maxRequests, burst), wrong: rate.NewLimiter(maxWrong, wrongBurst), heavy: make(chan struct{}, maxHeavy),
		ended: make(chan struct{}), look: newLook()}
	d.ctx, d.end = context.WithCancel(context.Background())
	d.server = &http.Server{Handler: d.allowed(d.routes()), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10,
		BaseContext: func(net.Listener) context.Context { return d.ctx },
		ErrorLog:    log.New(io.Discard, "", 0), DisableGeneralOptionsHandler: true} // an agent decides what it would say
	go func() {
		defer close(d.ended)
		_ = d.server.Serve(&few{Listener: l, ctx: d.ctx, free: make(chan struct{}, maxConns), dials: rate.NewLimiter(maxDials, dialBurst), bars: room.Bars}) // until Close
	}()
	return d, nil
}

// enter counts a request in, unless the door is closed.
func (d *Door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.busy.Add(1)
	}
	return !d.closed
}

// Close ends all that the agent asks at this moment, and returns when nothing is answered any more, or soon.
func (d *Door) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.end()
	_ = d.server.Close()
	<-d.ended
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		d.busy.Wait()
	}()
	select {
	case <-idle:
	case <-time.After(closeTime):
	}
	d.room.Work.Close()
}
