package node

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// ListLanes implements [api.StrictServerInterface].
func (s resources) ListLanes(ctx context.Context, r api.ListLanesRequestObject) (api.ListLanesResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	list, err := ws.Lanes(ctx)
	return api.ListLanes200JSONResponse{Items: mapped(list, laneOf)}, err
}

// closings name what makes a lane other than active.
var closings = map[string]string{"paused": "pause a lane", "draining": "drain a lane", "disabled": "disable a lane"}

// ChangeLane implements [api.StrictServerInterface].
func (s resources) ChangeLane(ctx context.Context, r api.ChangeLaneRequestObject) (api.ChangeLaneResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	l := backlog.Lane{Name: r.Lane, State: r.Body.State, Reason: r.Body.Reason}
	closing := closings[l.State]
	switch w := r.Body.Weight; {
	case closing != "" && l.Reason == "":
		return nil, lacksReason(closing)
	case w == nil && l.State == "":
		return nil, commands.Refuse(commands.Validation, "a change of lane %s names its state, its weight, or both", commands.Clip(l.Name))
	case w != nil && *w == 0: // to the lane it would be the weight that it has
		return nil, commands.Refuse(commands.Validation, "weight 0 is outside 1..1000")
	case w != nil:
		l.Weight = *w
	}
	if err := ws.SetLane(ctx, l); err != nil {
		return nil, err
	}
	list, err := ws.Lanes(ctx)
	if err != nil {
		return nil, err
	}
	l, err = theOne("lane", l.Name, list, func(l backlog.Lane) string { return l.Name })
	return api.ChangeLane200JSONResponse(laneOf(l)), err
}

func laneOf(l backlog.Lane) api.Lane {
	return api.Lane{Name: l.Name, State: l.State, Weight: l.Weight, Reason: l.Reason, Actor: l.Actor, Since: l.Since, Queued: l.Queued, Claimed: l.Claimed}
}
