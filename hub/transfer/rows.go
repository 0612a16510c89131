package transfer

import (
	"context"
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

// MayPut is for what results of the connection name.
func (r Rows) MayPut(ctx context.Context, conn string, d blob.Digest) (int64, bool, error) {
	begun, err := r.begun(conn, d)
	if err != nil {
		return 0, false, err
	}
	size, held, err := r.DB.WorkDue(ctx, conn, d.String(), r.Most-begun)
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

// Held notes what has come.
func (r Rows) Held(ctx context.Context, conn string, d blob.Digest, size int64) error {
	return r.DB.WorkCame(ctx, conn, commands.Blob{Digest: d.String(), Size: size})
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
