package attempt

import (
	"errors"
	"io"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// Shim and spoke exchange frames: the length of the body in four bytes, the
// kind of the message in one, the body. The spoke that starts a shim has a socket
// pair with it, which needs no proof, and sends the attempt first; one that adopts
// connects to the socket in the attempt directory and both prove that they know the
// token.

// A kind says what the body of a frame is.
type kind byte

const (
	kindAttempt kind = 'a' // to the shim: what to run
	kindRequest kind = 'q' // to the shim: what is asked of it
	kindRunning kind = 'r' // from it: the agent was executed
	kindFailed  kind = 'f' // from it: it was not, and why
	kindExit    kind = 'x' // from it: a record, of an end or of survivors
	kindHello   kind = 'h' // opens the handshake
	kindProof   kind = 'p' // answers for one side
)

const (
	// HandshakeTime bounds each answer of a handshake.
	HandshakeTime = 5 * time.Second
	// MaxMessage is what a message of a proven peer may have.
	MaxMessage = 1 << 20
	// MaxAttempt is what the spoke may send that starts a shim: arguments and
	// environment are in it.
	MaxAttempt = 64 << 20

	sendTime = 2 * time.Second
	header   = 5
)

// ErrGarbled says that the other side does not speak as a shim or its spoke does.
var ErrGarbled = errors.New("the other side of the shim's socket does not speak its protocol")

// A socket is what the two sides talk over: a net.Conn in a spoke, an os.File in a
// shim, where nothing imports net.
type socket interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// A Conn is one end of a connection between shim and spoke. One goroutine may
// receive while another sends.
type Conn struct {
	s socket
}

// NewConn speaks over s, which it owns from now on.
func NewConn(s socket) *Conn { return &Conn{s} }

// Close hangs up; whoever receives or sends returns.
func (c *Conn) Close() error { return c.s.Close() }

// send writes one frame to a peer that is expected to read.
func (c *Conn) send(k kind, body []byte, within time.Duration) error {
	const doing = "sending a message"
	n := len(body)
	frame := append(make([]byte, 0, header+n), byte(n>>24), byte(n>>16), byte(n>>8), byte(n), byte(k))
	if err := c.s.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return plain.Wrap(doing, err)
	}
	_, err := c.s.Write(append(frame, body...))
	return plain.Wrap(doing, err)
}

// receive reads one frame. The bound is for a peer that is none: an agent of the
// same user.
func (c *Conn) receive(most int) (kind, []byte, error) {
	const doing = "receiving a message"
	var head [header]byte
	if _, err := io.ReadFull(c.s, head[:]); err != nil {
		return 0, nil, plain.Wrap(doing, err)
	}
	n := uint32(head[0])<<24 | uint32(head[1])<<16 | uint32(head[2])<<8 | uint32(head[3])
	if n > uint32(most) {
		return 0, nil, plain.Wrap(doing, ErrGarbled)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.s, body); err != nil {
		if err == io.EOF { // after a header
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, plain.Wrap(doing, err)
	}
	return kind(head[4]), body, nil
}

// expect is receive of a kind of message.
func (c *Conn) expect(want kind, most int) ([]byte, error) {
	k, body, err := c.receive(most)
	if err == nil && k != want {
		err = plain.Wrap("receiving a message", ErrGarbled)
	}
	return body, err
}

// within lets a read fail that takes longer than d.
func (c *Conn) within(d time.Duration, read func() error) error {
	if err := c.s.SetReadDeadline(time.Now().Add(d)); err != nil {
		return plain.Wrap("receiving a message", err)
	}
	if err := read(); err != nil {
		return err
	}
	return c.s.SetReadDeadline(time.Time{})
}
