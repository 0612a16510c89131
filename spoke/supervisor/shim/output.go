package shim

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// lastWords is how long after the end of the tree output is still waited for.
// Everything the tree wrote is in the pipe by then; only a descriptor that was
// handed to a stranger can keep the pipe open.
const lastWords = 500 * time.Millisecond

// A capture moves one output stream of the agent to a file. The pipe is
// always drained, so the agent never blocks however much it writes. The file
// only ever grows, so a follower may read it meanwhile: first the head, as it
// is written; after the end a line that says what was dropped, and the tail.
type capture struct {
	pipe *os.File
	file *os.File
	hash plain.SHA256
	head int64 // room left in the head
	size int64 // of the tail
	tail *ring // made when the head is full

	total, inFile int64
	written       int64             // by the agent; total is without what was taken out of it
	heard         func(total int64) // called before anything is kept; nil = nobody listens
	hide          *redactor         // takes secrets out; nil = there are none
}

// newCapture makes the file and returns, besides, the end of the pipe that is
// for the agent.
func newCapture(name string, limit int64) (*capture, int, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, -1, plain.Wrap("making an output file", err)
	}
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
		return nil, -1, errors.Join(plain.Wrap("making an output pipe", err), file.Close())
	}
	// Only our end is non-blocking; the agent gets a pipe like any other.
	if err := syscall.SetNonblock(p[0], true); err != nil {
		return nil, -1, errors.Join(plain.Wrap("making an output pipe", err), file.Close(), syscall.Close(p[0]), syscall.Close(p[1]))
	}
	c := &capture{pipe: os.NewFile(uintptr(p[0]), name), file: file, size: limit / 2}
	c.head = limit - c.size
	return c, p[1], nil
}

// drain reads until every holder of the pipe is gone or cut was called.
func (c *capture) drain() {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.pipe.Read(buf)
		c.take(buf[:n])
		if err != nil {
			c.hide.end(c.keep)
			return
		}
	}
}

// cut ends drain soon.
func (c *capture) cut() { _ = c.pipe.SetReadDeadline(time.Now().Add(lastWords)) }

// take hears what the agent has written.
func (c *capture) take(b []byte) {
	if c.written += int64(len(b)); len(b) > 0 && c.heard != nil {
		c.heard(c.written)
	}
	c.hide.put(b, c.keep)
}

func (c *capture) keep(b []byte) {
	c.total += int64(len(b))
	if n := min(int64(len(b)), c.head); n > 0 {
		c.head -= n
		if c.write(b[:n]) != nil {
			c.head = 0 // the disk is full: go on with the tail, it may fit later
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return
	}
	if c.tail == nil {
		c.tail = newRing(c.size)
	}
	c.tail.put(b)
}

// write appends to the file and its digest.
func (c *capture) write(b []byte) error {
	n, err := c.file.Write(b)
	c.hash.Write(b[:n])
	c.inFile += int64(n)
	if err != nil {
		return plain.Wrap("keeping output", err)
	}
	return nil
}

// finish completes the file after drain has returned.
func (c *capture) finish() attempt.Output {
	var older, newer []byte
	if c.tail != nil {
		older, newer = c.tail.kept()
		defer c.tail.free()
	}
	out := attempt.Output{Bytes: c.total}
	tail := c.total - int64(len(older)+len(newer)) // where it begins in the stream
	if tail > c.inFile {
		gap := attempt.Gap{From: c.inFile, To: tail, At: c.inFile}
		out.Gaps = append(out.Gaps, gap)
		_ = c.write(gap.Note())
	}
	before := c.inFile
	if c.write(older) == nil {
		_ = c.write(newer)
	}
	if end := tail + c.inFile - before; end < c.total { // the disk is full
		if n := len(out.Gaps); n > 0 && out.Gaps[n-1].At == c.inFile { // not even its line had room
			out.Gaps[n-1].To = c.total
		} else {
			out.Gaps = append(out.Gaps, attempt.Gap{From: end, To: c.total, At: c.inFile})
		}
	}
	for _, g := range out.Gaps {
		out.Dropped += g.To - g.From
	}
	sum := c.hash.Sum()
	out.Size, out.SHA256 = c.inFile, plain.Hex(sum[:])
	_ = c.file.Close()
	_ = c.pipe.Close()
	return out
}
