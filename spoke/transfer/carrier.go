package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// What is tried in vain before a blob is given up.
const (
	wholesMost  = 3  // times that all of it came, and was something else
	missingMost = 8  // times that the hub did not have it
	unnamedMost = 60 // times that the hub knew of no result that names it: a result may come later than what it names, by minutes at most
)

// tries are what is remembered of a blob between two tries. Who carries it has them.
type tries struct {
	after           time.Time // of the next one
	delay           time.Duration
	wholes, missing int
	window          int // how many bytes are under way at most
	smooth          int // carried since the window changed
}

// A carrier carries one blob, alone.
type carrier struct {
	Blob
	*tries
	t       *Transfers
	line    *line
	carried bool // something, since the last error
}

// run carries the blob, to its end unless something is in the way: others have its place then, and it is tried again after a while. It
// tells the source what came of it, and reports whether it has.
func (c *carrier) run(ctx context.Context) (over bool) {
	for ctx.Err() == nil {
		err := c.try(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			return c.tell(ctx, func() error { return c.t.Source.Done(ctx, c.Blob) })
		case c.hopeless(err):
			c.t.Log.WarnContext(ctx, "a blob is given up", "conn", c.Conn, "blob", c.Digest, "put", c.Put, "err", err)
			return c.tell(ctx, func() error { return c.t.Source.Failed(ctx, c.Blob, err) })
		}
		c.t.Log.DebugContext(ctx, "a blob goes on later", "conn", c.Conn, "blob", c.Digest, "put", c.Put, "err", err)
		if e, ok := errors.AsType[*early](err); ok {
			c.after = e.until
			return false
		}
		if !c.carried {
			c.delay = min(max(2*c.delay, delayFirst), c.t.longest())
			c.after = time.Now().Add(wait.Spread(c.delay))
			return false
		}
		c.delay, c.carried = 0, false
	}
	return false
}

// try carries what is left over the connection there is, or a new one.
func (c *carrier) try(ctx context.Context) error {
	conn, err := c.line.open(ctx)
	if err != nil {
		return err
	}
	if c.Put {
		err = c.bring(ctx, conn)
	} else {
		err = c.fetch(ctx, conn)
	}
	if ofLine(err) && ctx.Err() == nil {
		c.line.broke(conn, c.carried)
		c.narrow()
	}
	return err
}

// ofLine reports whether err is of the connection: another one is tried, and waits for its time.
func ofLine(err error) bool {
	return errors.Is(err, transport.ErrUnavailable) || errors.Is(err, transport.ErrRefused) || errors.Is(err, transport.ErrPin)
}

// hopeless reports whether the blob is given up for err.
func (c *carrier) hopeless(err error) bool {
	var code transport.BlobCode
	if refused, ok := errors.AsType[*transport.BlobRefused](err); ok {
		code = refused.Code
	}
	switch {
	case code == transport.BlobDamaged || errors.Is(err, blob.ErrDamaged):
		c.wholes++
		return c.wholes >= wholesMost
	case code == transport.BlobNotFound:
		c.missing++
		return c.missing >= missingMost && !c.Put || c.missing >= unnamedMost
	case code == transport.BlobTooLarge || code == transport.BlobInvalid:
		return true
	}
	return c.Put && errors.Is(err, fs.ErrNotExist)
}

// tell tells the source until it has heard, and reports whether it has.
func (c *carrier) tell(ctx context.Context, how func() error) bool {
	for delay := time.Duration(0); ; {
		err := how()
		if err == nil {
			return true
		}
		c.t.Log.DebugContext(ctx, "noting what came of a blob", "blob", c.Digest, "err", err)
		delay = min(max(2*delay, delayFirst), c.t.longest())
		if wait.For(ctx, wait.Spread(delay)) != nil {
			return false
		}
	}
}

// fetch gets what has not come.
func (c *carrier) fetch(ctx context.Context, conn *transport.BlobConn) error {
	part, err := c.t.Blobs.Part(c.Conn, c.Digest, c.Size)
	if err != nil {
		return err
	}
	_, err = c.pump(ctx, conn, part.Offset(),
		func(at int64, n int) (transport.BlobFrame, error) { return transport.BlobFrame{Want: n}, nil },
		func(f transport.BlobFrame) (int64, error) {
			err := part.Append(f.Data)
			return part.Offset(), err
		})
	if err != nil {
		return errors.Join(err, part.Close())
	}
	return part.Finish()
}

// bring puts what the hub does not have: it is asked first, with no bytes.
func (c *carrier) bring(ctx context.Context, conn *transport.BlobConn) error {
	r, err := c.t.Blobs.Open(c.Digest)
	if err != nil {
		return err
	}
	defer r.Close()
	first, err := c.ask(ctx, conn, transport.BlobFrame{Put: true, Digest: c.Digest, Size: c.Size})
	if err != nil || first.Code == transport.BlobHeld {
		return err
	}
	held, err := c.pump(ctx, conn, first.Offset,
		func(at int64, n int) (transport.BlobFrame, error) {
			f := transport.BlobFrame{Put: true, Data: make([]byte, n)}
			if _, err := r.ReadAt(f.Data, at); err != nil {
				return f, fmt.Errorf("reading blob %s: %w", c.Digest, cutShort(err))
			}
			return f, nil
		},
		func(f transport.BlobFrame) (int64, error) { return f.Offset, nil })
	if err == nil && !held {
		err = fmt.Errorf("%w: the hub has all of blob %s and does not hold it", transport.ErrUnavailable, c.Digest)
	}
	return err
}

// cutShort is err, damage where it is the end of a file that should go on.
func cutShort(err error) error {
	if err == io.EOF {
		return blob.ErrDamaged
	}
	return err
}

// ask sends one request and waits for its answer.
func (c *carrier) ask(ctx context.Context, conn *transport.BlobConn, f transport.BlobFrame) (transport.BlobFrame, error) {
	call, err := conn.Send(f)
	if err != nil {
		return f, err
	}
	return c.await(ctx, call)
}

func (c *carrier) await(ctx context.Context, call *transport.BlobCall) (transport.BlobFrame, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.t.Patience, 30*time.Second))
	defer cancel()
	return call.Await(ctx)
}
