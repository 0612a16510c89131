package node

import (
	"context"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// GetTaskWork implements [api.StrictServerInterface].
func (s resources) GetTaskWork(ctx context.Context, r api.GetTaskWorkRequestObject) (api.GetTaskWorkResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	b, bytes, err := h.Work(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	return api.GetTaskWork200ApplicationOctetStreamResponse{Body: bytes, ContentLength: b.Size}, nil // it is closed with the answer
}
