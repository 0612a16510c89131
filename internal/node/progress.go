package node

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// mostSteps bounds what is shown of an agent's progress.
const mostSteps = 1000

// GetTaskProgress implements [api.StrictServerInterface].
func (s resources) GetTaskProgress(ctx context.Context, r api.GetTaskProgressRequestObject) (api.GetTaskProgressResponseObject, error) {
	away, err := s.isAway(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	list := []api.TaskProgress{}
	if away {
		v, err := s.n.Hub.Agent(ctx, r.Task, 0, "")
		if err != nil {
			return nil, err
		}
		if s.n.Hub.Observe(&v); v.Progress != nil {
			list = append(list, *progressOf(v.Progress, v.Attempt))
		}
		return api.GetTaskProgress200JSONResponse{Items: list}, nil
	}
	v, err := s.desk.Agent(ctx, r.Task, 0)
	if err != nil {
		return nil, err
	}
	steps, err := s.backlog.Steps(ctx, v.Task, mostSteps)
	for _, step := range steps {
		list = append(list, *progressOf(&commands.AgentProgress{Progress: step.Progress, At: step.At.UnixMilli()}, step.Attempt))
	}
	return api.GetTaskProgress200JSONResponse{Items: list}, err
}

// progressOf is what an agent has said of its progress; nil for nothing.
func progressOf(p *commands.AgentProgress, attempt int) *api.TaskProgress {
	if p == nil {
		return nil
	}
	return &api.TaskProgress{Attempt: attempt, Current: p.Current, Total: p.Total, Percent: p.Percent(), Unit: p.Unit, Step: p.Step, At: time.UnixMilli(p.At)}
}
