package transfer

import (
	"context"
	"errors"
	"io/fs"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/store"
)

// Rows are the rights that a hub's database knows.
type Rows struct {
	DB    *store.DB
	Blobs *blob.Store
	Most  int64 // bytes that are kept of what one connection has brought, parts included
}

// MayGet is for orders over the connection that have not ended.
func (r Rows) MayGet(ctx context.Context, conn string, d blob.Digest) (int64, error) {
	size, err := r.DB.InputFor(ctx, conn, d.String())
	return size, plain(err)
}

// MayPut is for what results of the connection name. What is noted and not on the disk, as after a restore, is to be brought again.
func (r Rows) MayPut(ctx context.Context, conn string, d blob.Digest) (int64, bool, error) {
	begun, err := r.begun(conn, d)
	if err != nil {
		return 0, false, err
	}
	size, held, err := r.DB.WorkDue(ctx, conn, d.String(), r.Most-begun)
	if err == nil && held {
		held, err = r.here(d, size)
	}
	return size, held, plain(err)
}

// begun is how much a connection has brought of other blobs that are not whole.
func (r Rows) begun(conn string, d blob.Digest) (all int64, err error) {
	parts, err := r.Blobs.Parts()
	for _, p := range parts {
		if p.From == conn && p.Digest != d && err == nil {
			var n int64
			n, err = r.Blobs.Came(conn, p.Digest)
			all += n
		}
	}
	return all, err
}

// here reports whether a blob is on the disk.
func (r Rows) here(d blob.Digest, size int64) (bool, error) {
	n, err := r.Blobs.Size(d)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return n == size, err
}

// Held notes what has come. Where somebody has removed the same bytes meanwhile, which were old, it is to come again.
func (r Rows) Held(ctx context.Context, conn string, d blob.Digest, size int64) error {
	if err := r.DB.WorkCame(ctx, conn, commands.Blob{Digest: d.String(), Size: size}); err != nil {
		return err
	}
	here, err := r.here(d, size)
	if err == nil && !here {
		err = blob.ErrDamaged
	}
	return err
}

// plain is err in the words of [Rights].
func plain(err error) error {
	switch commands.CodeOf(err) {
	case commands.NotFound:
		return fs.ErrNotExist
	case commands.PayloadTooLarge:
		return blob.ErrTooLarge
	}
	return err
}
