package node

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// KillTasks implements [api.StrictServerInterface].
func (s resources) KillTasks(ctx context.Context, r api.KillTasksRequestObject) (api.KillTasksResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	labels, err := commands.ParseSelector(r.Body.Labels)
	if err != nil {
		return nil, err
	}
	sum, err := h.KillSelected(ctx, hub.KillRequest{Spoke: r.Body.Spoke, All: r.Body.All, Labels: labels, Reason: r.Body.Reason, Grace: milliseconds(r.Body.GraceMS),
		IDs: r.Body.IDs}, control.CallerOf(ctx).String())
	return api.KillTasks200JSONResponse{Killed: sum.Killed, EndedAlready: sum.EndedAlready, Later: sum.Later,
		Refused: mapped(sum.Refused, func(k hub.KillRefused) api.KillRefused {
			return api.KillRefused{ID: k.ID, Code: string(k.Code), Detail: k.Detail}
		})}, err
}
