package door

import (
	"net"
	"sync"
)

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
