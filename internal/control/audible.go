package control

import (
	"errors"
	"log/slog"
	"net"

	"golang.org/x/time/rate"
)

// audible is a listener that says in the log why nobody gets in, as where there are no open files left. The server tries
// again by itself, so what keeps failing is said a few times, and then now and then.
type audible struct {
	net.Listener
	log  *slog.Logger
	said rate.Sometimes
}

// Accept waits for a connection.
func (l *audible) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		l.said.Do(func() {
			l.log.Warn("no connection can be accepted; it is tried again", "at", l.Addr().String(), "err", err)
		})
	}
	return c, err
}
