package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// dialShim connects to the socket in dir. A path through a descriptor is short
// however long the directory's is.
func dialShim(dir string) (*net.UnixConn, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", fd, socketFile)})
}

// call connects to the live shim of dir.
func call(ctx context.Context, dir string, saved savedSpec) (*shimConn, *os.Process, running, error) {
	fail := func(err error) (*shimConn, *os.Process, running, error) {
		return nil, nil, running{}, fmt.Errorf("calling the shim: %w", err)
	}
	conn, err := dialShim(dir)
	if err != nil {
		return fail(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	w := newShimConn(conn)
	shim, run, err := w.greet(conn, saved)
	if !stop() && err == nil {
		err = errors.Join(ctx.Err(), shim.Release())
	}
	if err != nil {
		return fail(errors.Join(err, w.close()))
	}
	return w, shim, run, nil
}

// greet proves both sides to each other and receives the state of the agent.
// The process that listens is compared with what is known of the shim: any process of
// the same user can read the token. The pidfd in the returned process is opened before
// that, so it is the shim's.
func (w *shimConn) greet(conn *net.UnixConn, saved savedSpec) (*os.Process, running, error) {
	pid, err := peerPid(conn)
	if err != nil {
		return nil, running{}, err
	}
	shim, err := os.FindProcess(pid)
	if err != nil {
		return nil, running{}, fmt.Errorf("finding the shim: %w", err)
	}
	if p, err := readProcess(pid); err != nil || p.gone() || !saved.isShim(p) {
		return nil, running{}, errors.Join(errStranger, shim.Release())
	}
	_ = shim.Signal(syscall.SIGCONT) // its agent may have stopped it
	var r report
	if err = w.prove(saved.secret()); err == nil {
		err = w.receiveWithin(handshakeTime, &r)
	}
	if err == nil && r.Running == nil {
		err = errors.New("the shim did not say what it runs")
	}
	if err != nil {
		return nil, running{}, errors.Join(err, shim.Release())
	}
	return shim, *r.Running, nil
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
