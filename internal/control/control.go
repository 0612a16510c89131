// Package control carries an operator's requests to an instance on the same host,
// as HTTP over a Unix socket in the instance's data directory.
//
// Only root and the user that the instance runs as may ask. The mode of the socket
// keeps other users from connecting, and the peer credentials of each connection
// (SO_PEERCRED) are checked again. Each request has the key of the instance, a file in the
// data directory that an agent with the user of the instance may not read. An answer is sent after its effect was committed, so
// a caller that disconnects early loses nothing.
package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/shortpath"
)

// Interrupted is the code for a caller who was interrupted before there was an answer.
const Interrupted commands.Code = "INTERRUPTED"

// Socket returns the path of the socket of the instance in dir.
func Socket(dir string) string { return filepath.Join(dir, "control.sock") }

// Local is the open socket of an instance.
type Local struct {
	net.Listener
	dir, key string
	unshown  unshown
}

// Listen opens the socket of the instance in dir, and makes the key that its requests have to show: from then on requests
// wait, and [Serve] answers them. The caller holds the instance's lock.
func Listen(ctx context.Context, dir string) (*Local, error) {
	key, err := makeKey(dir)
	if err != nil {
		return nil, fmt.Errorf("making the key of the control socket: %w", err)
	}
	path := Socket(dir)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing the old control socket: %w", err)
	}
	l, err := listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket %s: %w", path, err)
	}
	return &Local{Listener: l, dir: dir, key: key}, nil
}

// idleTime is how long a connection may wait for its next request.
const idleTime = 2 * time.Minute

// Serve answers requests that arrive at l with h until ctx ends, and waits up to
// 5 s, or until hurry is closed, for the answers that are under way. It closes l. Who an agent
// is is asked once a connection, as it is accepted: later its number may be another's. nil = nobody is.
func Serve(ctx context.Context, l *Local, h http.Handler, agent func(pid int) (bool, error), hurry <-chan struct{}, log *slog.Logger) error {
	return Run(ctx, l.server(h, agent, idleTime), l, hurry, log)
}

// server answers at l with h, and closes a connection that asks nothing more for a time.
func (s *Local) server(h http.Handler, agent func(pid int) (bool, error), idle time.Duration) *http.Server {
	return &http.Server{
		Handler:     s.allowed(h, BodyTime),
		IdleTimeout: idle,
		ConnState:   s.unshown.turned,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return identify(s.unshown.accept(ctx, c), c, agent)
		},
	}
}

// Run is [Serve] with a server of its caller, whose bounds it sets.
func Run(ctx context.Context, s *http.Server, l net.Listener, hurry <-chan struct{}, log *slog.Logger) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s.ReadHeaderTimeout, s.MaxHeaderBytes = 5*time.Second, 16<<10
	s.BaseContext = func(net.Listener) context.Context { return requests }
	s.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	s.DisableGeneralOptionsHandler = true // it answers OPTIONS * to everybody
	ended := make(chan error, 1)
	go func() {
		ended <- s.Serve(&audible{Listener: l, log: log, said: rate.Sometimes{First: 3, Interval: time.Minute}})
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serving the API at %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	cancel() // long polls and followers end now
	err := shut(context.WithoutCancel(ctx), s, stopGrace, hurry, log)
	<-ended
	return err
}

// stopGrace is how long a stop waits for answers under way.
const stopGrace = 5 * time.Second

// shut ends s. A call that does not end keeps nobody from stopping for long.
func shut(ctx context.Context, s *http.Server, most time.Duration, hurry <-chan struct{}, log *slog.Logger) error {
	grace, done := context.WithTimeout(ctx, most)
	defer done()
	go func() {
		say := time.NewTimer(200 * time.Millisecond)
		defer say.Stop()
		for {
			select {
			case <-say.C:
				log.InfoContext(grace, "stopping: waiting for answers to operators; a second signal ends the wait", "at_most", most)
			case <-hurry:
				done()
				return
			case <-grace.Done():
				return
			}
		}
	}()
	err := s.Shutdown(grace)
	if err != nil && grace.Err() != nil {
		err = s.Close()
	}
	return err
}

// listen makes the socket with mode 0600 before anybody can connect to it.
func listen(ctx context.Context, path string) (net.Listener, error) {
	name, done, err := shortpath.Of(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := (&net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var mode error
		// The mode of the descriptor becomes the mode of the file at bind.
		if err := raw.Control(func(fd uintptr) { mode = unix.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return mode
	}}).Listen(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l, nil
}

// identify notes the user at the other end of a connection, when it is one who
// may ask.
func identify(ctx context.Context, c net.Conn, agent func(pid int) (bool, error)) context.Context {
	var caller Principal
	if cred := Peer(c); cred != nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid()) {
		caller = user(int(cred.Uid))
		if agent != nil {
			caller.agent, caller.untold = agent(int(cred.Pid))
		}
	}
	return WithCaller(ctx, caller)
}

// Peer is the process that has dialled a Unix socket, as the kernel saw it then; nil where that cannot be told.
func Peer(c net.Conn) (cred *unix.Ucred) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil {
		return nil
	}
	return cred
}

// BodyTime is how long a body may take to arrive, also one that nobody reads: the server reads the
// rest before it answers. At the end of a body it takes the deadline away, so no answer is cut off.
const BodyTime = 30 * time.Second

// refusedTime is how long the body of a request that is refused may take to arrive.
const refusedTime = time.Second

// allowed hands on to h what who may control the instance asks. Who may not is hung up on: such a connection holds nothing for long.
func (s *Local) allowed(h http.Handler, bodyTime time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.judge(r); err != nil {
			BoundBody(w, r, min(bodyTime, refusedTime))
			w.Header().Set("Connection", "close") // the next connection may show another key, or tell who asks
			Error(w, err)
			return
		}
		s.unshown.shown(r)
		r.Header.Del(keyHeader)
		BoundBody(w, r, bodyTime)
		h.ServeHTTP(w, r)
	})
}

// judge says why who asks may not. The key comes first: who has it not learns nothing else.
func (s *Local) judge(r *http.Request) error {
	who := Caller(r)
	switch err := s.checkKey(r); {
	case err != nil:
		return err
	case !who.Known():
		return commands.Refuse(commands.Forbidden, "only the user that runs this instance may control it")
	case who.untold != nil:
		return cannotTell(who.untold)
	case who.agent: // at isolation: none it may read the key
		return commands.Refuse(commands.Forbidden, "agents may not control an instance")
	}
	return nil
}

// cannotTell refuses who may be an agent, or the operator: err kept this instance from looking.
func cannotTell(err error) error {
	why, hint := err, "ask again, or end it"
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		why = errno // what was read is of no use to who asks
		if errno == syscall.EMFILE || errno == syscall.ENFILE {
			hint = "raise the limit, or end it"
		}
	}
	return commands.Refuse(commands.NotReady, "this instance cannot tell now who asks: %v", why).Hinting("%s", hint)
}

// BoundBody bounds the body of a request that begins now, and how long it takes to arrive. One that is read as it comes may take as long as it comes.
func BoundBody(w http.ResponseWriter, r *http.Request, within time.Duration) {
	if api.Streams(r) {
		f := &flowing{ReadCloser: r.Body, c: http.NewResponseController(w), within: within}
		f.more()
		r.Body = f
		return
	}
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within))
	}
	r.Body = http.MaxBytesReader(w, r.Body, 512<<10)
}

// Fail answers r with err. Where r was ended before it had an answer, as when the instance stops, there is none: who asked
// finds the answer cut off, which says that the instance went away, and asks again where that is right. An error would say that
// something is wrong with the request, or with the instance.
func Fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		panic(http.ErrAbortHandler)
	}
	Error(w, err)
}

// Error answers with err as a problem.
func Error(w http.ResponseWriter, err error) {
	p := ProblemOf(err)
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// ProblemOf is err as a problem (RFC 9457). What a person may act on is a
// [commands.Refused]; anything else is a defect or an outage, and its text says which.
func ProblemOf(err error) api.Problem {
	err = explain(err)
	p := api.Problem{Code: string(commands.CodeOf(err)), Detail: err.Error()}
	if r, ok := errors.AsType[*commands.Refused](err); ok {
		p.Detail, p.Hint, p.Run, p.MayBeDone = r.Why, r.Hint, r.Run, r.MayBeDone
	}
	p.Type, p.Title, p.Status = "urn:spawnmesh:problem:"+p.Code, commands.Title(commands.Code(p.Code)), status(commands.Code(p.Code))
	if bad, ok := errors.AsType[*api.InputError](err); ok {
		p.Status = bad.Status
	}
	return p
}

// inputCodes are the codes of requests that cannot be what the document says, where they are not [commands.Validation].
var inputCodes = map[int]commands.Code{
	http.StatusNotFound:             commands.NotFound,
	http.StatusMethodNotAllowed:     commands.MethodNotAllowed,
	http.StatusUnsupportedMediaType: commands.UnsupportedMedia,

	http.StatusRequestEntityTooLarge: commands.PayloadTooLarge,
	http.StatusRequestTimeout:        commands.RequestTimeout,
}

// mayBeDone ends what is said where nobody knows whether what was asked was done.
const mayBeDone = "what was asked may have been done all the same"

// explain puts err into words for a person where it comes from a database that does
// not answer: who asked may try again.
func explain(err error) error {
	if bad, ok := errors.AsType[*api.InputError](err); ok {
		return &commands.Refused{Code: cmp.Or(inputCodes[bad.Status], commands.Validation), Why: bad.Error(), Err: bad}
	}
	code := commands.CodeOf(err)
	switch {
	case errors.Is(err, commands.ErrMayBeDone) && (code == commands.Internal || code == commands.StoreDown):
		return &commands.Refused{Code: commands.StoreDown, MayBeDone: true, Why: "this instance cannot store or read now; " + mayBeDone,
			Hint: "look whether it was, or ask again with the same id or idempotency key: nothing is done twice then", Err: err}
	case code != commands.Internal || !outage(err):
		return err
	}
	return &commands.Refused{Code: commands.StoreDown, Why: "this instance cannot store or read now; nothing was accepted",
		Hint: "look at its log and its Postgres, then try again", Err: err}
}

// sqlError is an answer of Postgres.
type sqlError interface {
	error
	SQLState() string
}

// readOnly is what a server answers that takes no changes now.
const readOnly = "25006"

// outage reports whether the database could not be reached, or answered that it
// cannot work now. Any other answer of it is a defect of ours.
func outage(err error) bool {
	if pg, ok := errors.AsType[sqlError](err); ok {
		class := pg.SQLState()[:min(2, len(pg.SQLState()))]
		return pg.SQLState() == readOnly || slices.Contains([]string{"08", "40", "53", "55", "57", "58", "XX"}, class)
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed") || strings.Contains(err.Error(), "closed pool")
}

func status(code commands.Code) int {
	switch code {
	case commands.NotFound:
		return http.StatusNotFound
	case commands.Validation, commands.BadEnv, commands.BadPath, commands.Ambiguous:
		return http.StatusBadRequest
	case commands.Forbidden:
		return http.StatusForbidden
	case commands.MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case commands.UnsupportedMedia:
		return http.StatusUnsupportedMediaType
	case commands.PayloadTooLarge:
		return http.StatusRequestEntityTooLarge
	case commands.RequestTimeout:
		return http.StatusRequestTimeout
	case commands.Unauthenticated:
		return http.StatusUnauthorized
	case commands.Misdirected:
		return http.StatusMisdirectedRequest
	case commands.TooManyRequests:
		return http.StatusTooManyRequests
	case commands.StoreDown, commands.NotReady:
		return http.StatusServiceUnavailable
	case commands.Internal:
		return http.StatusInternalServerError
	}
	return http.StatusConflict
}

// Reply answers r with v, or with err where that is not nil.
func Reply(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err != nil {
		Fail(w, r, err)
		return
	}
	JSON(w, v)
}

// JSON answers with v.
func JSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// AgentTerms narrow a list of agents.
type AgentTerms struct {
	Spoke, Hub string // where they run, who ordered them; "" = anywhere, anybody
	Open       bool   // without those that have ended
	Archived   bool   // of a hub: those that are archived, which no other list has
	Labels     commands.Selector
	Before     string // only those with a lower id; "" = the newest
	Limit      int
}

// A Check is one thing that an instance looked at, and what is wrong with it.
type Check struct {
	Name    string   `json:"name"`
	OK      bool     `json:"ok"`
	Note    string   `json:"note,omitempty"` // what there is to say of it when it is fine
	Problem string   `json:"problem,omitempty"`
	Run     []string `json:"run,omitempty"`    // as in [commands.Refused]
	Remote  bool     `json:"remote,omitempty"` // it needs another host, too: restarting this instance mends nothing
}

// DatabaseCheck is the name of the check whether the database answers.
const DatabaseCheck = "postgres"

// NewCheck makes a check of an error.
func NewCheck(name string, err error) Check {
	if err == nil {
		return Check{Name: name, OK: true}
	}
	c := Check{Name: name, Problem: err.Error()}
	if r, ok := errors.AsType[*commands.Refused](err); ok && r.Hint != "" {
		c.Problem, c.Run = c.Problem+"; "+r.Hint, r.Run
	}
	return c
}
