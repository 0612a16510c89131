// Package transfer hands out the blobs that spokes may have, and takes those that they are to bring.
//
// Who may have what the caller knows ([Rights]). What is refused is refused in the same words whether it is there or not.
// A spoke brings a blob piece by piece, each where the one before has ended, into a part of its own: rubbish harms nobody
// else. It is told that the hub holds the blob when all of it is on the disk under its name and that was noted.
package transfer

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/crash"
)

// Rights says what the peer of a connection may have and bring. It is asked when a transfer begins or goes on, and every few
// seconds meanwhile. What is not for that connection is [fs.ErrNotExist], every other error may pass.
type Rights interface {
	// MayGet returns the size of a blob that the peer may have.
	MayGet(ctx context.Context, conn string, d blob.Digest) (size int64, err error)

	// MayPut returns the size of a blob that the peer is to bring, and whether it has. That another peer has brought the same
	// bytes is not enough: who only knows a digest would seem to have what it names. [blob.ErrTooLarge] = it is to bring
	// it, and there is no room for it in what is kept of this connection.
	MayPut(ctx context.Context, conn string, d blob.Digest) (size int64, held bool, err error)

	// Held notes that the peer has brought a blob, which is on the disk. The peer learns of it afterwards. It may be told
	// twice.
	Held(ctx context.Context, conn string, d blob.Digest, size int64) error
}

// A Desk answers what spokes ask about blobs. Its fields are set before it is used.
type Desk struct {
	Blobs  *blob.Store
	Rights Rights
	Log    *slog.Logger
	Idle   time.Duration // how long a file stays open that nobody asks about; default 1 min

	mu   sync.Mutex
	open map[key]*file

	said rate.Sometimes // of faults
}

const (
	askEvery  = 10 * time.Second // how long a right counts
	openOfOne = 4                // files of one connection
)

type key struct {
	conn   string
	digest blob.Digest
	put    bool
}

// A file is an open blob or part, and the right to it. mu guards what is below it.
type file struct {
	key key

	mu     sync.Mutex
	closed bool
	asked  time.Time // when Rights was asked last
	used   time.Time
	idle   *time.Timer
	size   int64
	reader *blob.Reader // of a get
	part   *blob.Part   // of a put
	whole  bool         // a put has its blob on the disk, and Rights has not noted it
}

// Handle answers a request of the peer of conn. It is what [transport.Hub.Blobs] is given.
func (d *Desk) Handle(ctx context.Context, conn string, f transport.BlobFrame) transport.BlobFrame {
	o := d.take(key{conn, f.Digest, f.Put})
	answer, err := f.Answer(transport.BlobGoesOn), error(nil)
	if f.Put {
		err = d.put(ctx, o, f, &answer)
	} else {
		err = d.get(ctx, o, f, &answer)
	}
	if err != nil || answer.Code == transport.BlobHeld {
		d.close(o, o.whole)
	}
	o.mu.Unlock()
	if err != nil {
		return f.Answer(d.code(ctx, conn, f, err))
	}
	return answer
}

// code is what a peer is told of an error. What is no answer is a fault, and in the log.
func (d *Desk) code(ctx context.Context, conn string, f transport.BlobFrame, err error) transport.BlobCode {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return transport.BlobNotFound
	case errors.Is(err, blob.ErrTooLarge):
		return transport.BlobTooLarge
	case errors.Is(err, blob.ErrDamaged):
		return transport.BlobDamaged
	}
	if ctx.Err() == nil {
		d.said.Do(func() {
			d.Log.WarnContext(ctx, "a blob cannot be read or taken; the spoke asks again", "conn", conn, "blob", blob.Digest(f.Digest), "err", err)
		})
	}
	return transport.BlobUnavailable
}

func (d *Desk) get(ctx context.Context, o *file, f transport.BlobFrame, answer *transport.BlobFrame) (err error) {
	if time.Since(o.asked) > askEvery {
		if o.size, err = d.Rights.MayGet(ctx, o.key.conn, o.key.digest); err != nil {
			return err
		}
		o.asked = time.Now()
	}
	if f.Size != o.size {
		return fs.ErrNotExist
	}
	if o.reader == nil {
		if o.reader, err = d.Blobs.Open(o.key.digest); err != nil {
			return err
		}
	}
	answer.Data = make([]byte, f.Want)
	if _, err = o.reader.ReadAt(answer.Data, f.Offset); err == io.EOF {
		return blob.ErrDamaged
	}
	return err
}

func (d *Desk) put(ctx context.Context, o *file, f transport.BlobFrame, answer *transport.BlobFrame) (err error) {
	if time.Since(o.asked) > askEvery {
		size, held, err := d.Rights.MayPut(ctx, o.key.conn, o.key.digest)
		if err != nil {
			return err
		}
		if held {
			o.whole, answer.Code, answer.Offset = false, transport.BlobHeld, size
			return nil
		}
		o.size, o.asked = size, time.Now()
	}
	if f.Size != o.size {
		return fs.ErrNotExist
	}
	if o.part == nil && !o.whole {
		if o.part, err = d.Blobs.Part(o.key.conn, o.key.digest, o.size); err != nil {
			return err
		}
	}
	if !o.whole {
		if f.Offset == o.part.Offset() {
			if err := o.part.Append(f.Data); err != nil {
				return err
			}
		}
		if answer.Offset = o.part.Offset(); answer.Offset < o.size {
			return nil
		}
	}
	return d.hold(ctx, o, answer)
}

// hold makes what has come a blob, and has that noted.
func (d *Desk) hold(ctx context.Context, o *file, answer *transport.BlobFrame) error {
	if !o.whole {
		part := o.part
		o.part = nil
		if err := part.Finish(); err != nil {
			return err
		}
		o.whole = true
		crash.Point("hub: a blob is named")
	}
	if err := d.Rights.Held(ctx, o.key.conn, o.key.digest, o.size); err != nil {
		return err
	}
	o.whole, answer.Code, answer.Offset = false, transport.BlobHeld, o.size
	return nil
}

// take returns the open file of k, or a new one, locked.
func (d *Desk) take(k key) *file {
	for {
		d.mu.Lock()
		if d.open == nil {
			d.open, d.said = map[key]*file{}, rate.Sometimes{First: 3, Interval: time.Minute}
		}
		o := d.open[k]
		if o == nil {
			o = &file{key: k}
			d.open[k] = o
		}
		o.used = time.Now() // guarded by d.mu
		over := d.over(k.conn)
		d.mu.Unlock()
		if over != nil {
			d.expire(over)
		}
		o.mu.Lock()
		if !o.closed {
			if o.idle != nil {
				o.idle.Stop()
			}
			o.idle = time.AfterFunc(cmp.Or(d.Idle, time.Minute), func() { d.expire(o) })
			return o
		}
		o.mu.Unlock()
	}
}

// over returns the file of a connection that was used least lately, where it has too many. The caller holds mu.
func (d *Desk) over(conn string) (oldest *file) {
	n := 0
	for k, o := range d.open {
		if k.conn != conn {
			continue
		}
		if n++; oldest == nil || o.used.Before(oldest.used) {
			oldest = o
		}
	}
	if n <= openOfOne {
		return nil
	}
	return oldest
}

func (d *Desk) expire(o *file) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d.close(o, false)
}

// close closes the files of o, and forgets it unless its right is to be asked for once more. The caller holds the lock of o.
func (d *Desk) close(o *file, keep bool) {
	var err error
	if o.reader != nil {
		err = o.reader.Close()
	}
	if o.part != nil {
		err = errors.Join(err, o.part.Close())
	}
	if err != nil {
		d.Log.Debug("closing a blob", "blob", o.key.digest, "err", err)
	}
	o.reader, o.part, o.asked = nil, nil, time.Time{}
	if keep {
		return
	}
	o.closed = true
	if o.idle != nil {
		o.idle.Stop()
	}
	d.mu.Lock()
	if d.open[o.key] == o {
		delete(d.open, o.key)
	}
	d.mu.Unlock()
}

// Close closes all files. Nothing is asked of the desk any more.
func (d *Desk) Close() {
	d.mu.Lock()
	var all []*file
	for _, o := range d.open {
		all = append(all, o)
	}
	d.mu.Unlock()
	for _, o := range all {
		d.expire(o)
	}
}
