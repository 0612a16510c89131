package door

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/remove"
	"github.com/spawnmesh/spawnmesh/internal/shortpath"
)

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
	if err := remove.All(path); err != nil { // of an earlier process, or whatever the agent has put there
		return nil, err
	}
	name, done, err := shortpath.Hidden(path)
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

// few is a listener with a bound of connections, at a time and a second. What is over it waits where the kernel keeps
// it, and costs this process nothing. Who may have none is hung up on.
type few struct {
	net.Listener
	ctx   context.Context // ends with the door
	free  chan struct{}   // takes one for each connection
	dials *rate.Limiter
	bars  func(pid int) bool // may be nil
}

// barred reports whether whoever has dialled takes a place from those whose door it is.
func (f *few) barred(c net.Conn) bool {
	if f.bars == nil {
		return false
	}
	peer := control.Peer(c)
	return peer == nil || f.bars(int(peer.Pid))
}

// Accept returns the next connection when there is a place for it.
func (f *few) Accept() (net.Conn, error) {
	select {
	case f.free <- struct{}{}:
	case <-f.ctx.Done():
		return nil, net.ErrClosed
	}
	c, err := f.next()
	if err != nil {
		<-f.free
		return nil, err
	}
	return &one{Conn: c, free: f.free}, nil
}

// next is the next connection of who may have one.
func (f *few) next() (net.Conn, error) {
	for {
		if f.dials.Wait(f.ctx) != nil {
			return nil, net.ErrClosed
		}
		c, err := f.Listener.Accept()
		if err != nil || !f.barred(c) {
			return c, err
		}
		_ = c.Close()
	}
}

// one is one of few connections.
type one struct {
	net.Conn
	free  chan struct{}
	close sync.Once
}

// Close makes room for the next one.
func (o *one) Close() error {
	err := net.ErrClosed
	o.close.Do(func() {
		err = o.Conn.Close()
		<-o.free
	})
	return err
}
