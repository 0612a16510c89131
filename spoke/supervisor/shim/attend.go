package shim

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// acceptPause is how long a shim without a free descriptor waits for one.
const acceptPause = 100 * time.Millisecond

// listen accepts adopters until the shim leaves. Who does not know the token
// gets no answer, and no agent any at all: it may have the user whose files hold
// the tokens, and would renew its own lease or end another one.
func (s *shim) listen() {
	for {
		fd, err := accept(s.socket)
		if err != nil { // out of descriptors, until some peers have gone; or the socket was closed
			select {
			case <-s.ending:
				return
			case <-time.After(acceptPause):
				continue
			}
		}
		if ofAnAgent(fd) {
			_ = syscall.Close(fd)
			continue
		}
		w := attempt.NewConn(os.NewFile(uintptr(fd), "spoke"))
		if !s.meet(w) {
			return
		}
		s.readers.Go(func() {
			defer s.part(w)
			if w.Verify(s.Secret()) == nil && s.join(w) {
				s.attend(w)
			}
		})
	}
}

// accept waits for a connection.
func accept(socket *os.File) (fd int, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return -1, err
	}
	var failed error
	err = raw.Read(func(listener uintptr) bool {
		fd, _, failed = syscall.Accept4(int(listener), syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
		return failed != syscall.EAGAIN && failed != syscall.EINTR && failed != syscall.ECONNABORTED
	})
	return fd, errors.Join(err, failed)
}

// ofAnAgent reports whether the peer is an agent, this one's or another's, or cannot be told.
// The one peer of a shim is its spoke, and has its user.
func ofAnAgent(fd int) bool {
	peer, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil || int(peer.Uid) != os.Getuid() {
		return true
	}
	inside, _ := tree.Inside(int(peer.Pid))
	return inside
}

// attend passes the requests of a spoke on until it hangs up.
func (s *shim) attend(w *attempt.Conn) {
	for {
		r, err := w.ReceiveRequest()
		if err != nil {
			return
		}
		select {
		case s.requests <- r:
		case <-s.ending:
			return
		}
	}
}

// meet takes note of a connection, so that hangUp ends its handshake too. It is closed where
// the shim leaves.
func (s *shim) meet(w *attempt.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ending:
		_ = w.Close()
		return false
	default:
		s.peers[w] = false
		return true
	}
}

// join greets w and puts it among those who are told. Both under the lock, so
// that no report comes before the greeting or is missed after it.
func (s *shim) join(w *attempt.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ending:
		return false
	default:
	}
	if w.SendReport(attempt.Report{Running: &s.run}) != nil {
		return false
	}
	if s.told != nil && w.SendReport(attempt.Report{Exit: s.told}) != nil {
		return false
	}
	s.peers[w] = true
	return true
}

func (s *shim) part(w *attempt.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, w)
	_ = w.Close()
}

// tell reports to every spoke, now and to those that come later. One that does not
// read is hung up on; it will find the record, or the shim, later.
func (s *shim) tell(e attempt.Exit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = e.Record()
	s.tellAll(attempt.Report{Exit: s.told})
}

// tellAll is called with mu.
func (s *shim) tellAll(r attempt.Report) {
	for w, joined := range s.peers {
		if joined && w.SendReport(r) != nil {
			_ = w.Close()
			delete(s.peers, w)
		}
	}
}

// tellPause tells every spoke, now and those that come later, whether the tree stands still.
func (s *shim) tellPause(p attempt.Pause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run.Pause = p
	s.tellAll(attempt.Report{Running: &s.run})
}

// hangUp ends every attend and every handshake.
func (s *shim) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.peers {
		_ = w.Close()
	}
}
