package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/federation/transport"
)

// What is under way when a line is cut is sent again. So the window is wide only where a line has carried much more than
// that without a cut: what is lost by cuts stays near a hundredth of what is carried.
const (
	windowLeast = 64 << 10
	windowFirst = 256 << 10
	windowMost  = 512 << 10 // twice that is less than what a hub piles up for one connection
	piecesMost  = 4         // under way; a hub takes twice that of one connection
	pieceLeast  = 32 << 10

	quick = 500 * time.Millisecond // an answer in less lets the window grow
	slow  = 2 * time.Second        // and one in more narrows it: a hub drops who is not written to within a few seconds
)

func (c *carrier) piece() int { return max(pieceLeast, c.window/piecesMost) }

func (c *carrier) narrow() {
	c.window, c.smooth = max(c.window/2, windowLeast), 0
}

// took notes that n bytes were carried, and how long that took.
func (c *carrier) took(n int, time time.Duration) {
	c.carried = true
	c.smooth += n
	switch {
	case time > slow:
		c.narrow()
	case c.smooth >= 128*c.window && time < quick:
		c.window, c.smooth = min(2*c.window, windowMost), 0
	}
}

type flight struct {
	call *transport.BlobCall
	at   int64
	n    int
	sent time.Time
}

// stuckMost is how often in a row a hub may say that something else is wanted than what it was sent.
const stuckMost = 8

// pump carries what lies behind at, several pieces at once: request makes what is sent for one, answer takes what comes for
// it and says where it goes on. It returns when all was carried, or the hub holds it.
func (c *carrier) pump(ctx context.Context, conn *transport.BlobConn, at int64, request func(at int64, n int) (transport.BlobFrame, error), answer func(transport.BlobFrame) (next int64, err error)) (held bool, err error) {
	var under []flight
	defer func() {
		for _, f := range under {
			f.call.Forget()
		}
	}()
	for stuck := 0; ; {
		for n := c.piece(); at < c.Size && len(under) < max(1, c.window/n); at += int64(under[len(under)-1].n) {
			f, err := c.send(conn, at, int(min(int64(n), c.Size-at)), request)
			if err != nil {
				return false, err
			}
			under = append(under, f)
		}
		if len(under) == 0 {
			return false, nil
		}
		first := under[0]
		f, err := c.await(ctx, first.call)
		if err != nil || f.Code == transport.BlobHeld {
			return err == nil, err
		}
		next, err := answer(f)
		if err != nil {
			return false, err
		}
		under = under[1:]
		if next == first.at+int64(first.n) {
			c.took(first.n, time.Since(first.sent))
			stuck = 0
			continue
		}
		if stuck++; stuck > stuckMost || next < 0 || next > c.Size {
			return false, fmt.Errorf("%w: the hub wants byte %d of blob %s next, again and again", transport.ErrUnavailable, next, c.Digest)
		}
		for _, f := range under { // what they say is out of date, and is said again
			if _, err := c.await(ctx, f.call); err != nil {
				return false, err
			}
		}
		under, at = nil, next
	}
}

func (c *carrier) send(conn *transport.BlobConn, at int64, n int, request func(int64, int) (transport.BlobFrame, error)) (flight, error) {
	f, err := request(at, n)
	if err != nil {
		return flight{}, err
	}
	f.Digest, f.Size, f.Offset = c.Digest, c.Size, at
	call, err := conn.Send(f)
	return flight{call: call, at: at, n: n, sent: time.Now()}, err
}
