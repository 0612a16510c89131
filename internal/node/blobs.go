package node

import (
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// PutBlob implements [api.StrictServerInterface].
func (s resources) PutBlob(ctx context.Context, r api.PutBlobRequestObject) (api.PutBlobResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	b, err := h.TakeBlob(ctx, r.Body, control.CallerOf(ctx).String())
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = &api.InputError{Status: http.StatusRequestTimeout, Err: errors.New("the body did not come on in time")}
	}
	return api.PutBlob200JSONResponse{Digest: b.Digest, Size: b.Size}, err
}
