package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
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
	hash hash.Hash
	head int64 // room left in the head
	size int64 // of the tail
	tail *ring // made when the head is full

	total, inFile int64
}

// newCapture makes the file and returns, besides, the end of the pipe that is
// for the agent.
func newCapture(name string, limit int64) (*capture, int, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, -1, fmt.Errorf("making an output file: %w", err)
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, errors.Join(fmt.Errorf("making an output pipe: %w", err), file.Close())
	}
	// Only our end is non-blocking; the agent gets a pipe like any other.
	if err := unix.SetNonblock(p[0], true); err != nil {
		return nil, -1, errors.Join(fmt.Errorf("making an output pipe: %w", err), file.Close(), unix.Close(p[0]), unix.Close(p[1]))
	}
	c := &capture{pipe: os.NewFile(uintptr(p[0]), name), file: file, hash: sha256.New(), size: limit / 2}
	c.head = limit - c.size
	return c, p[1], nil
}

// drain reads until every holder of the pipe is gone or cut was called.
func (c *capture) drain() {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.pipe.Read(buf)
		c.keep(buf[:n])
		if err != nil {
			return
		}
	}
}

// cut ends drain soon.
func (c *capture) cut() { _ = c.pipe.SetReadDeadline(time.Now().Add(lastWords)) }

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
		return fmt.Errorf("keeping output: %w", err)
	}
	return nil
}

// finish completes the file after drain has returned.
func (c *capture) finish() Output {
	var older, newer []byte
	if c.tail != nil {
		older, newer = c.tail.kept()
		defer c.tail.free()
	}
	out := Output{Bytes: c.total}
	tail := c.total - int64(len(older)+len(newer)) // where it begins in the stream
	if tail > c.inFile {
		gap := Gap{From: c.inFile, To: tail, At: c.inFile}
		out.Gaps = append(out.Gaps, gap)
		_ = c.write(gap.note())
	}
	before := c.inFile
	if c.write(older) == nil {
		_ = c.write(newer)
	}
	if end := tail + c.inFile - before; end < c.total { // the disk is full
		if n := len(out.Gaps); n > 0 && out.Gaps[n-1].At == c.inFile { // not even its line had room
			out.Gaps[n-1].To = c.total
		} else {
			out.Gaps = append(out.Gaps, Gap{From: end, To: c.total, At: c.inFile})
		}
	}
	for _, g := range out.Gaps {
		out.Dropped += g.To - g.From
	}
	out.Size, out.SHA256 = c.inFile, hex.EncodeToString(c.hash.Sum(nil))
	_ = c.file.Close()
	_ = c.pipe.Close()
	return out
}

// note is the line that stands in the file for what is missing.
func (g Gap) note() []byte {
	return fmt.Appendf(nil, "\n[%d bytes dropped: %d to %d of what was written]\n", g.To-g.From, g.From, g.To-1)
}

// cutNote ends the file of a stream whose shim is dead.
const cutNote = "\n[the shim was killed: what it had not stored yet is lost]\n"

// noteRoom is more than all the lines have that stand in a file for what is missing.
const noteRoom = 1 << 10

// cutOutput completes the file of a stream whose shim is gone, and describes it. Of a
// file that is longer than most, which no shim writes, the rest is cut off. The caller
// holds the lock. An error is that of ctx: the file may be long.
func cutOutput(ctx context.Context, dir string, stream Stream, most int64) (Output, error) {
	out := Output{Cut: true}
	f, err := openPlain(filepath.Join(dir, string(stream)), unix.O_RDWR|unix.O_APPEND)
	if err != nil {
		return out, nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > most && f.Truncate(most) != nil {
		return out, nil
	}
	h := sha256.New()
	if out.Bytes, err = io.Copy(h, io.LimitReader(until{ctx, f}, most)); err != nil {
		return out, ctx.Err()
	}
	n, _ := f.WriteString(cutNote) // on a full disk the record alone says so
	h.Write([]byte(cutNote[:n]))
	out.Size, out.SHA256 = out.Bytes+int64(n), hex.EncodeToString(h.Sum(nil))
	return out, nil
}

// until reads as long as its context lasts.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u until) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}
