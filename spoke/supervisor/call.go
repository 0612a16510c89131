package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/shortpath"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// dialShim connects to the socket in dir.
func dialShim(dir string) (*net.UnixConn, error) {
	name, done, err := shortpath.Of(filepath.Join(dir, attempt.SocketFile))
	if err != nil {
		return nil, err
	}
	defer done()
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: name})
}

// call connects to the live shim of dir.
func call(ctx context.Context, dir string, saved savedSpec) (*attempt.Conn, *os.Process, attempt.Running, error) {
	fail := func(err error) (*attempt.Conn, *os.Process, attempt.Running, error) {
		return nil, nil, attempt.Running{}, fmt.Errorf("calling the shim: %w", err)
	}
	conn, err := dialShim(dir)
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) {
		err = fmt.Errorf("%w: %w", errUntold, err)
	}
	if err != nil {
		return fail(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	w := attempt.NewConn(conn)
	shim, run, err := greet(w, conn, saved)
	if !stop() && err == nil {
		err = errors.Join(ctx.Err(), shim.Release())
	}
	if err != nil {
		return fail(errors.Join(err, w.Close()))
	}
	return w, shim, run, nil
}

// greet proves both sides to each other and receives the state of the agent.
// The process that listens is compared with what is known of the shim: any process of
// the same user can read the token. The pidfd in the returned process is opened before
// that, so it is the shim's.
func greet(w *attempt.Conn, conn *net.UnixConn, saved savedSpec) (*os.Process, attempt.Running, error) {
	pid, err := peerPid(conn)
	if err != nil {
		return nil, attempt.Running{}, err
	}
	shim, err := findProcess(pid)
	if err != nil {
		return nil, attempt.Running{}, fmt.Errorf("%w: %w", errUntold, err)
	}
	if err := saved.proveShim(pid); err != nil {
		return nil, attempt.Running{}, errors.Join(err, shim.Release())
	}
	_ = shim.Signal(syscall.SIGCONT) // its agent may have stopped it
	var r attempt.Report
	if err = w.Prove(saved.Secret()); err == nil {
		r, err = w.ReceiveReportWithin(attempt.HandshakeTime)
	}
	if err == nil && r.Running == nil {
		err = errors.New("the shim did not say what it runs")
	}
	if err != nil {
		return nil, attempt.Running{}, errors.Join(err, shim.Release())
	}
	return shim, *r.Running, nil
}

// findProcess is os.FindProcess that never goes by the number alone, as that does where no file can be opened: later the number may be
// another's.
func findProcess(pid int) (*os.Process, error) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, fmt.Errorf("opening process %d: %w", pid, err)
	}
	if err := p.WithHandle(func(uintptr) {}); errors.Is(err, os.ErrNoHandle) {
		return nil, errors.Join(fmt.Errorf("opening process %d: %w", pid, err), p.Release())
	}
	return p, nil
}

// peerPid returns the process that listens at the other end.
func peerPid(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("finding the shim: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return 0, fmt.Errorf("finding the shim: %w", err)
	}
	return int(cred.Pid), nil
}

// socketPair returns our end as a connection and the other for a child.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "shim"), os.NewFile(uintptr(fds[1]), "shim")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, fmt.Errorf("using a socket pair: %w", errors.Join(err, theirs.Close()))
	}
	return conn, theirs, nil
}
