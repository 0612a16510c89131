package supervisor

import (
	"errors"
	"net"
	"os"
	"time"
)

// listen accepts adopters until the shim leaves. Who does not know the token
// gets no answer, and the agent none at all: it may have the user whose files
// hold the token, and would renew its own lease.
func (s *shim) listen() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, until some peers have gone
			time.Sleep(acceptPause)
			continue
		}
		if ofOurTree(conn) {
			_ = conn.Close()
			continue
		}
		w := newShimConn(conn)
		s.readers.Go(func() {
			if w.verify(s.secret()) == nil && s.join(w) {
				s.attend(w)
				return
			}
			_ = w.close()
		})
	}
}

const acceptPause = 100 * time.Millisecond

// ofOurTree reports whether the peer descends from this process, or cannot be
// told: every process of the agent's tree does, for we are its subreaper.
func ofOurTree(conn net.Conn) bool {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return true
	}
	pid, err := peerPid(unixConn)
	for err == nil && pid > 1 && pid != os.Getpid() {
		var p process
		p, err = readProcess(pid)
		pid = p.ppid
	}
	return err != nil || pid == os.Getpid()
}

// attend passes the requests of a spoke on until it hangs up.
func (s *shim) attend(w *shimConn) {
	defer s.part(w)
	for {
		var r request
		if w.receive(&r) != nil {
			return
		}
		select {
		case s.requests <- r:
		case <-s.ending:
			return
		}
	}
}

// join greets w and puts it among those who are told. Both under the lock, so
// that no report comes before the greeting or is missed after it.
func (s *shim) join(w *shimConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ending:
		return false
	default:
	}
	if w.send(startedReport{&s.run}) != nil {
		return false
	}
	if s.final != nil && w.send(report{Exit: s.final}) != nil {
		return false
	}
	if len(s.survivors) > 0 && w.send(report{Survivors: s.survivors}) != nil {
		return false
	}
	s.peers[w] = true
	return true
}

func (s *shim) part(w *shimConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, w)
	_ = w.close()
}

// tell reports to every spoke. One that does not read is hung up on; it will
// find the record, or the shim, later.
func (s *shim) tell(r report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.peers {
		if w.send(r) != nil {
			_ = w.close()
			delete(s.peers, w)
		}
	}
}

// hangUp ends every attend and every handshake.
func (s *shim) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.peers {
		_ = w.close()
	}
}
