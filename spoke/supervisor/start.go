package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// A BegunError says that an agent was begun, and is lost already: its shim was
// killed before it could tell. Nothing of it runs any more.
type BegunError struct {
	Exit Exit
}

func (e *BegunError) Error() string { return "starting the agent: " + e.Exit.Reason }

// An UnprovenError is the error of a start that went wrong where it could not be proven that nothing runs: an [*Incomplete], or what kept this
// process from looking, as a lack of open files. The attempt is not over, and its place stays taken.
type UnprovenError struct {
	Began bool // the agent may have begun, whatever its directory says
	Shim  Shim // for [Known]: it has ended, and whoever plays it is not taken for it
	Err   error
}

func (e *UnprovenError) Error() string { return e.Err.Error() }

func (e *UnprovenError) Unwrap() error { return e.Err }

// Start runs spec in the attempt directory dir, which it makes if need be and
// which serves one attempt only. It returns when the agent was executed, and
// otherwise with a [*StartError], a [*BegunError] or, before there is a shim, an
// error of the directory. When ctx ends first the attempt is ended: after an
// error nothing of it runs, unless it is an [*UnprovenError]; then see [Adopt].
func Start(ctx context.Context, dir string, spec Spec) (*Agent, error) {
	spec.Marker = cmp.Or(spec.Marker, markerOf(dir))
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	saved, err := saveSpec(dir, spec)
	if err != nil {
		return nil, err
	}
	if spec.Opened == nil {
		spec.Opened, _ = os.OpenFile(spec.Dir, unix.O_PATH|unix.O_DIRECTORY, 0) // the shim says what is wrong
		defer spec.Opened.Close()
	}
	w, shim, err := forkShim(dir, spec)
	if err != nil {
		return nil, err
	}
	return prove(ctx, dir, saved, w, shim)
}

// prove hands the attempt over to its shim and returns its agent, or ends it.
func prove(ctx context.Context, dir string, saved savedSpec, w *attempt.Conn, shim *os.Process) (*Agent, error) {
	stop := context.AfterFunc(ctx, func() { _ = shim.Kill() })
	if p, err := tree.ReadProcess(shim.Pid); err == nil { // not waited for, so it is the shim
		saved.shim = Shim{Pid: p.Pid, Start: p.Start}
	}
	run, err := handOver(w, saved)
	if err == nil && stop() {
		saved.shim.Cgroup = run.Cgroup
		return newAgent(ctx, dir, saved, w, shim, true, *run), nil
	}
	defer stop()
	err = abandon(ctx, dir, saved, w, shim, err)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("starting the agent in %s: %w", dir, errors.Join(ctx.Err(), err))
	}
	return nil, err
}

// startPatience bounds a start on an overloaded host, and one whose agent
// stopped the shim before it could say anything.
const startPatience = 30 * time.Second

// handOver sends the attempt and waits for the proof of the start.
func handOver(w *attempt.Conn, saved savedSpec) (*attempt.Running, error) {
	if err := w.SendAttempt(saved.Attempt, startPatience); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	r, err := w.ReceiveReportWithin(startPatience)
	if err != nil {
		return nil, err
	}
	if r.Failed != nil {
		return nil, r.Failed
	}
	if r.Running == nil {
		return nil, errors.New("the shim answered with neither a start nor a failure")
	}
	return r.Running, nil
}

// errNotSent says that a shim has not got its whole spec, so that it started nothing.
var errNotSent = errors.New("the shim did not take its spec")

// abandon makes sure that nothing of an attempt runs whose start went wrong.
// A shim that could not start the agent records that and ends by itself. One that was
// killed may have started it: then the agent has begun, whatever its directory says.
func abandon(ctx context.Context, dir string, saved savedSpec, w *attempt.Conn, shim *os.Process, cause error) error {
	refused, ok := errors.AsType[*StartError](cause)
	if !ok {
		_ = shim.Kill() // one that has hung up has its exit code already
	}
	state, err := shim.Wait()
	err = errors.Join(err, w.Close())
	if ok {
		return refused
	}
	never := errors.Is(cause, errNotSent) || endedByItself(state)
	saved.seen = witness{began: !never, broken: !never}
	lock, damage := attempt.TakeLock(dir)
	var exit Exit
	var unproven error
	if errors.Is(damage, fs.ErrNotExist) {
		exit, unproven = endRemoved(saved)
	} else {
		exit, unproven = conclude(ctx, dir, saved, lock, damage)
	}
	if err = errors.Join(err, unproven); err != nil {
		return &UnprovenError{Began: !never, Shim: saved.shim, Err: fmt.Errorf("ending what was started in %s: %w", dir, err)}
	}
	if !never {
		return &BegunError{exit}
	}
	return &StartError{Reason: HostFault, Text: fmt.Sprintf("the shim ended (%v) before it had started the agent (%v); its own words, if any, are in %s",
		state, cause, filepath.Join(dir, attempt.ShimErrFile))}
}

// endedByItself reports whether a shim has ended with one of its own exit codes. A
// signal that Go does not die by ends it with code 2.
func endedByItself(state *os.ProcessState) bool {
	return state != nil && state.Exited() && state.ExitCode() <= 1
}

// forkShim starts this binary as the shim of dir. /proc/self/exe is this very
// binary also after an upgrade replaced the file. The shim inherits
// no environment, so that the scan for markers can never find it. It runs in dir: its command line, which every
// process of this host reads, does not say it. Its standard input is for
// its agent, and so are the descriptors that the spec has.
func forkShim(dir string, spec Spec) (*attempt.Conn, *os.Process, error) {
	fail := func(err error) (*attempt.Conn, *os.Process, error) {
		return nil, nil, &StartError{Reason: HostFault, Text: fmt.Sprintf("the shim cannot be started: %v", err)}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fail(err)
	}
	conn, theirs, err := socketPair()
	if err != nil {
		return fail(err)
	}
	defer theirs.Close()
	input, err := openStdin(spec.Stdin)
	if err != nil {
		return fail(errors.Join(err, conn.Close()))
	}
	defer input.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fail(errors.Join(err, conn.Close()))
	}
	defer null.Close()
	words, err := os.OpenFile(filepath.Join(abs, attempt.ShimErrFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fail(errors.Join(err, conn.Close()))
	}
	defer words.Close()
	shim, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], attempt.ShimArg, ".", spec.Marker}, &os.ProcAttr{
		Dir: abs,
		// It mostly waits: one processor means fewer threads and a faster
		// start. A build with the race detector would idle for a second at
		// its end.
		Env:   []string{"GOMAXPROCS=1", "GORACE=atexit_sleep_ms=0"},
		Files: []*os.File{input, null, words, theirs, spec.Opened, spec.OpenedProgram},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fail(errors.Join(err, conn.Close()))
	}
	return attempt.NewConn(conn), shim, nil
}

// maxUser is the last user there can be; the one after it means none.
const maxUser = 1<<32 - 2

// checkSpec refuses what could only be understood by guessing.
func checkSpec(s Spec) error {
	bad := func(format string, args ...any) error {
		return &StartError{Reason: BadSpec, Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case !attempt.ValidMarker(s.Marker):
		return bad("the marker is not 32 lower-case hexadecimal digits")
	case len(s.Argv) == 0:
		return bad("there is no program to run")
	case !filepath.IsAbs(s.Argv[0]):
		return bad("the program %q is not an absolute path", s.Argv[0])
	case !filepath.IsAbs(s.Dir):
		return bad("the working directory %q is not an absolute path", s.Dir)
	case s.Timeout < 0 || s.Grace < 0 || s.Slack < 0 || s.OutputCap < 0 || s.Deadline < 0 || negative(s.Limits):
		return bad("a duration, a deadline, the output cap or a limit is negative")
	case !isText(s.Dir):
		return bad("the working directory holds a NUL or is not UTF-8")
	case (s.Confine.User.ID == 0) != (s.Confine.User.Reaper == 0), s.Confine.User.ID < 0, s.Confine.User.ID > maxUser, s.Confine.User.Reaper < 0, s.Confine.User.Reaper > maxUser:
		return bad("the agent's user is none, or lacks its reaper")
	case s.Confine.User.ID != 0 && s.Confine.User.ID == s.Confine.User.Reaper:
		return bad("the agent's user is its own reaper")
	}
	reached := slices.Concat(s.Confine.Read, s.Confine.Write, s.Confine.Wrap)
	if s.Opened == nil && slices.Contains(reached, OpenedDir) || s.OpenedProgram == nil && slices.Contains(reached, OpenedProgram) {
		return bad("the agent may reach what was not opened")
	}
	for _, path := range slices.Concat(s.Confine.Read, s.Confine.Write, s.Counted.Dirs, s.Counted.Shared) {
		if !filepath.IsAbs(path) || !isText(path) {
			return bad("the path %q that the agent may reach, or where its files are counted, is not absolute, or no text", path)
		}
	}
	if w := s.Confine.Wrap; len(w) > 0 && (!filepath.IsAbs(w[0]) || slices.ContainsFunc(w, func(arg string) bool { return !isText(arg) })) {
		return bad("what the agent is wrapped in is not an absolute path, or no text")
	}
	for _, port := range s.Confine.Ports {
		if port < 1 || port > 65535 {
			return bad("there is no port %d to connect to", port)
		}
	}
	for i, arg := range s.Argv {
		if !isText(arg) {
			return bad("argument %d holds a NUL or is not UTF-8", i)
		}
	}
	for i, entry := range s.Env { // a wrong one may be all secret: it is not shown
		if strings.IndexByte(entry, '=') < 1 || !isText(entry) {
			return bad("environment entry %d is not NAME=value in UTF-8 without NUL", i)
		}
	}
	return nil
}

func negative(l Limits) bool {
	return min(l.Memory, l.Pids, int64(l.CPU), l.CPUs, l.Files, l.Disk, l.Inodes, l.FileSize, l.Written, int64(l.Idle)) < 0
}

// isText reports whether s survives the way to the kernel unchanged: JSON would alter
// what is not UTF-8, and a NUL would cut.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
