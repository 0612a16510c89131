package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/blob"
)

// DefaultMaxBlob is how large an input may be where nothing else is said.
const DefaultMaxBlob = 4 << 30

// Blobs are the bytes that this hub holds.
func (h *Hub) Blobs() *blob.Store { return h.blobs }

// TakeBlob keeps what r has, so that orders can name it.
func (h *Hub) TakeBlob(ctx context.Context, r io.Reader, actor string) (b commands.Blob, err error) {
	d, size, err := h.blobs.Write(r, h.MaxBlob)
	_, disk := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, blob.ErrTooLarge):
		return b, commands.Refuse(commands.PayloadTooLarge, "the bytes are more than %s, which is the most that this hub takes of one input", commands.SizeInWords(h.MaxBlob)).
			Hinting("whoever runs the hub can let it take more: hub run --max-input SIZE")
	case disk:
		r := commands.Refuse(commands.StoreDown, "the hub cannot keep the bytes on its disk now")
		r.Err = err
		return b, r
	case err != nil:
		return b, err
	}
	b = commands.Blob{Digest: d.String(), Size: size}
	if err := h.DB.KeepBlob(ctx, b, actor); err != nil {
		return b, err
	}
	if _, err := h.blobs.Size(d); err != nil { // the same bytes were forgotten, which were old, while these came
		return b, commands.Refuse(commands.StoreDown, "the bytes were removed as old ones at this moment").Hinting("send them once more")
	}
	return b, nil
}

func (h *Hub) openBlobs(dir string) (err error) {
	if h.MaxBlob == 0 {
		h.MaxBlob = DefaultMaxBlob
	}
	if h.blobs, err = blob.Open(dir); err != nil {
		return fmt.Errorf("opening the hub: %w", err)
	}
	return nil
}
