package supervisor

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The shim and its spoke exchange lines of JSON: requests to the shim, reports
// from it. The spoke that starts a shim has a socket pair with it, which needs
// no proof, and sends the Spec first; one that adopts connects to the socket
// in the attempt directory and both prove that they know the token.

// A request is what a spoke asks of a shim. There is no answer; what comes of
// it is reported.
type request struct {
	Renew Instant    `json:"renew,omitempty"`
	Kill  *killOrder `json:"kill,omitempty"`
}

type killOrder struct {
	Reason string        `json:"reason"`
	Grace  time.Duration `json:"grace"`
}

// A report is what a shim tells: one field is set.
type report struct {
	Running   *running    `json:"running,omitempty"`
	Failed    *StartError `json:"failed,omitempty"`
	Survivors []Survivor  `json:"survivors,omitempty"`
	Exit      *Exit       `json:"exit,omitempty"`
}

// A startedReport is a report of which only Running is set. It exists because
// the first encoding of a type costs time that grows with the type, and a
// spoke waits for this one.
type startedReport struct {
	Running *running `json:"running"`
}

// running proves that the agent was executed.
type running struct {
	Pid       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	Begun     Instant   `json:"begun"` // the same, by the clock that never jumps
	Level     string    `json:"level"`
	Unlimited string    `json:"unlimited,omitempty"`
	Shim      int       `json:"shim"`
	Cgroup    string    `json:"cgroup,omitempty"`
}

// A hello opens the handshake, and a proof answers for each side.
type (
	hello struct {
		Version int    `json:"version"`
		Nonce   string `json:"nonce"`
	}
	proof struct {
		Nonce string `json:"nonce,omitempty"`
		MAC   string `json:"mac"`
	}
)

const (
	protocolVersion = 1
	handshakeTime   = 5 * time.Second
	handshakeBytes  = 4 << 10  // what an unproven peer may send at a time
	maxMessage      = 1 << 20  // what a proven one may
	maxSpec         = 64 << 20 // what the spoke may that starts a shim: arguments and environment are in it
	sendTime        = 2 * time.Second
)

var errNotProven = errors.New("the other side of the socket does not know the token of this attempt")

// mac is what a side can say only if it knows the token. The role keeps one
// side from proving itself with the other's words.
func mac(token, role, nonce, answer string) string {
	h := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(h, "%s\n%s\n%s", role, nonce, answer)
	return hex.EncodeToString(h.Sum(nil))
}

// A shimConn is one end of a connection between shim and spoke.
type shimConn struct {
	conn  net.Conn
	limit *io.LimitedReader
	most  int64 // what a message may have
	dec   *json.Decoder
}

func newShimConn(conn net.Conn) *shimConn {
	limit := &io.LimitedReader{R: conn}
	return &shimConn{conn: conn, limit: limit, most: maxMessage, dec: json.NewDecoder(limit)}
}

// send writes one line to a peer that is expected to read.
func (w *shimConn) send(v any) error { return w.sendWithin(sendTime, v) }

func (w *shimConn) sendWithin(d time.Duration, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(d)); err != nil {
		return fmt.Errorf("sending a message: %w", err)
	}
	if _, err := w.conn.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("sending a message: %w", err)
	}
	return nil
}

// receive reads one message. The bound is for a peer that has the token and is
// no shim: an agent of the same user.
func (w *shimConn) receive(v any) error {
	w.limit.N = w.most
	if err := w.dec.Decode(v); err != nil {
		return fmt.Errorf("receiving a message: %w", err)
	}
	return nil
}

// receiveWithin is receive for a peer that has to answer.
func (w *shimConn) receiveWithin(d time.Duration, v any) error {
	if err := w.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return fmt.Errorf("receiving a message: %w", err)
	}
	if err := w.receive(v); err != nil {
		return err
	}
	return w.conn.SetReadDeadline(time.Time{})
}

func (w *shimConn) close() error { return w.conn.Close() }

// prove is the connecting side of the handshake.
func (w *shimConn) prove(token string) error {
	mine := hello{Version: protocolVersion, Nonce: rand.Text()}
	if err := w.send(mine); err != nil {
		return err
	}
	var theirs proof
	if err := w.receiveWithin(handshakeTime, &theirs); err != nil {
		return err
	}
	if !hmac.Equal([]byte(theirs.MAC), []byte(mac(token, "shim", mine.Nonce, theirs.Nonce))) {
		return errNotProven
	}
	return w.send(proof{MAC: mac(token, "spoke", theirs.Nonce, mine.Nonce)})
}

// verify is the accepting side of the handshake.
func (w *shimConn) verify(token string) error {
	w.most = handshakeBytes
	var theirs hello
	if err := w.receiveWithin(handshakeTime, &theirs); err != nil {
		return err
	}
	if theirs.Version != protocolVersion {
		return fmt.Errorf("a spoke speaks version %d of the shim's protocol, this is %d", theirs.Version, protocolVersion)
	}
	nonce := rand.Text()
	if err := w.send(proof{Nonce: nonce, MAC: mac(token, "shim", theirs.Nonce, nonce)}); err != nil {
		return err
	}
	var answer proof
	if err := w.receiveWithin(handshakeTime, &answer); err != nil {
		return err
	}
	if !hmac.Equal([]byte(answer.MAC), []byte(mac(token, "spoke", nonce, theirs.Nonce))) {
		return errNotProven
	}
	w.most = maxMessage
	return nil
}

// socketPair returns our end as a connection and the other for a child.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "shim")
	conn, err := fileConn(fds[0])
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// fileConn makes a connection of a descriptor, which it takes over.
func fileConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "shim")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("using a socket pair: %w", err)
	}
	return conn, nil
}
