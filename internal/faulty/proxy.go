// Package faulty breaks connections as networks do: a [Proxy] stands in the way and
// cuts, holds back, swallows and changes what goes through it.
//
// Its tests are those of internal/meshtest.
package faulty

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A Way is a direction through a proxy.
type Way int

// The two ways through a proxy.
const (
	ToHub Way = iota
	ToSpoke
)

// A Proxy stands between a spoke and its hub and breaks what goes through it.
// A new one passes everything on. Its methods may be called at any time, and
// act on connections that exist and on those to come.
type Proxy struct {
	listener net.Listener
	work     sync.WaitGroup

	mu     sync.Mutex // guards the rest
	target string
	conns  map[*net.TCPConn]bool // both ends of every connection
	faults faults
	passed [2]int64
	closed bool
}

// faults is what is broken now.
type faults struct {
	cut     bool
	swallow [2]bool
	corrupt [2]bool // the next bytes, once
	delay   time.Duration
	rate    int // bytes per second and direction; 0 for any
}

// New starts a proxy to target, host:port, which serves until Close.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening in front of %s: %w", target, err)
	}
	p := &Proxy{listener: l, target: target, conns: map[*net.TCPConn]bool{}}
	p.work.Go(p.accept)
	return p, nil
}

// Addr is the host:port to dial.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Target changes where new connections lead.
func (p *Proxy) Target(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
}

// Cut ends all connections and takes no new ones until Heal.
func (p *Proxy) Cut() {
	p.change(func(f *faults) { f.cut = true })
	p.Reset()
}

// Reset ends all connections in the middle of what they were sending.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.SetLinger(0) // RST instead of FIN
		_ = c.Close()
	}
}

// Swallow takes what goes the given ways and passes none of it on: a black hole
// that nobody is told about, until Heal.
func (p *Proxy) Swallow(ways ...Way) {
	p.change(func(f *faults) {
		for _, w := range ways {
			f.swallow[w] = true
		}
	})
}

// Corrupt flips one bit of the next bytes that go the given way.
func (p *Proxy) Corrupt(w Way) { p.change(func(f *faults) { f.corrupt[w] = true }) }

// Slow holds everything up by delay and passes rate bytes per second; rate 0 is
// as fast as it goes.
func (p *Proxy) Slow(delay time.Duration, rate int) {
	p.change(func(f *faults) { f.delay, f.rate = delay, rate })
}

// Heal ends all faults. A connection that lost bytes is of no use any more; its
// ends find out when they hear the next ones.
func (p *Proxy) Heal() { p.change(func(f *faults) { *f = faults{} }) }

// Passed returns how many bytes have gone through in one direction.
func (p *Proxy) Passed(w Way) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[w]
}

func (p *Proxy) change(how func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how(&p.faults)
}

// Close ends all connections and waits for what carried them.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Reset()
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.work.Go(func() { p.join(c.(*net.TCPConn)) })
		}
	}
}

// join connects an end that dialled us with the target and carries both ways.
func (p *Proxy) join(spoke *net.TCPConn) {
	defer p.forget(spoke)
	if !p.remember(spoke) {
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	c, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		return
	}
	hub := c.(*net.TCPConn)
	defer p.forget(hub)
	if !p.remember(hub) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.carry(hub, spoke, ToHub) })
	both.Go(func() { p.carry(spoke, hub, ToSpoke) })
	both.Wait()
}

// remember reports whether a connection may live.
func (p *Proxy) remember(c *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	return !p.faults.cut && !p.closed
}

func (p *Proxy) forget(c *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

// carry passes on what comes from one end until either end is closed; then both
// are.
func (p *Proxy) carry(to, from *net.TCPConn, w Way) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if e := p.pass(to, buf[:n], w); e != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass sends some bytes on as the present faults allow.
func (p *Proxy) pass(to io.Writer, b []byte, w Way) error {
	p.mu.Lock()
	f := p.faults
	if f.corrupt[w] {
		b[len(b)/2] ^= 1
		p.faults.corrupt[w] = false
	}
	if !f.swallow[w] {
		p.passed[w] += int64(len(b))
	}
	p.mu.Unlock()
	if f.swallow[w] {
		return nil
	}
	time.Sleep(f.delay)
	for len(b) > 0 {
		n := len(b)
		if f.rate > 0 {
			n = min(n, max(1, f.rate/20))
			time.Sleep(time.Duration(n) * time.Second / time.Duration(f.rate))
		}
		if _, err := to.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
