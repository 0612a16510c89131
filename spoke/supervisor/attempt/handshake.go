package attempt

import (
	"errors"
	"os"
	"strconv"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

const (
	protocolVersion = 5       // with each change of what is sent
	handshakeBytes  = 4 << 10 // what an unproven peer may send at a time
)

// ErrNotProven says that who answers on the socket of an attempt is not its shim.
var ErrNotProven = errors.New("the other side of the socket does not know the token of this attempt")

// A proof answers for one side of a handshake.
type proof struct {
	nonce, code string
}

// code is what a side can say only if it knows the secret. The role keeps one
// side from proving itself with the other's words.
func code(secret, role, nonce, answer string) string {
	sum := plain.HMAC([]byte(secret), []byte(role+"\n"+nonce+"\n"+answer))
	return plain.Hex(sum[:])
}

// Prove is the connecting side of the handshake.
func (c *Conn) Prove(secret string) error {
	mine, err := nonce()
	if err != nil {
		return err
	}
	if err := c.hello(protocolVersion, mine); err != nil {
		return err
	}
	theirs, err := c.receiveProof()
	if err != nil {
		return err
	}
	if !plain.Equal([]byte(theirs.code), []byte(code(secret, "shim", mine, theirs.nonce))) {
		return ErrNotProven
	}
	return c.sendProof(proof{code: code(secret, "spoke", theirs.nonce, mine)})
}

// Verify is the accepting side of the handshake.
func (c *Conn) Verify(secret string) error {
	version, theirs, err := c.receiveHello()
	if err != nil {
		return err
	}
	if version != protocolVersion {
		return errors.New("a spoke speaks version " + strconv.FormatInt(version, 10) + " of the shim's protocol, this is " + strconv.Itoa(protocolVersion))
	}
	mine, err := nonce()
	if err != nil {
		return err
	}
	if err := c.sendProof(proof{nonce: mine, code: code(secret, "shim", theirs, mine)}); err != nil {
		return err
	}
	answer, err := c.receiveProof()
	if err != nil {
		return err
	}
	if !plain.Equal([]byte(answer.code), []byte(code(secret, "spoke", mine, theirs))) {
		return ErrNotProven
	}
	return nil
}

func (c *Conn) hello(version int64, nonce string) error {
	var w writer
	w.number(version)
	w.text(nonce)
	return c.send(kindHello, w, sendTime)
}

func (c *Conn) receiveHello() (version int64, nonce string, err error) {
	err = c.within(HandshakeTime, func() error {
		body, err := c.expect(kindHello, handshakeBytes)
		if err != nil {
			return err
		}
		r := reader{rest: body}
		version, nonce = r.number(), r.text()
		return plain.Wrap("receiving a hello", r.end())
	})
	return version, nonce, err
}

func (c *Conn) sendProof(p proof) error {
	var w writer
	w.text(p.nonce)
	w.text(p.code)
	return c.send(kindProof, w, sendTime)
}

func (c *Conn) receiveProof() (p proof, err error) {
	err = c.within(HandshakeTime, func() error {
		body, err := c.expect(kindProof, handshakeBytes)
		if err != nil {
			return err
		}
		r := reader{rest: body}
		p = proof{nonce: r.text(), code: r.text()}
		return plain.Wrap("receiving a proof", r.end())
	})
	return p, err
}

// nonce is a text that was never used before.
func nonce() (string, error) {
	f, err := os.Open("/dev/urandom")
	if err != nil {
		return "", plain.Wrap("making a nonce", err)
	}
	defer f.Close()
	var b [16]byte
	if _, err := f.Read(b[:]); err != nil {
		return "", plain.Wrap("making a nonce", err)
	}
	return plain.Hex(b[:]), nil
}
