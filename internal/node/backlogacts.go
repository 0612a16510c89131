package node

import (
	"context"
	"encoding/json"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// CompleteBacklogTask implements [api.StrictServerInterface].
func (s resources) CompleteBacklogTask(ctx context.Context, r api.CompleteBacklogTaskRequestObject) (api.CompleteBacklogTaskResponseObject, error) {
	t, err := s.act(ctx, r.Workspace, r.Task, *r.Body, (*backlog.Workspace).Complete)
	return api.CompleteBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// FailBacklogTask implements [api.StrictServerInterface].
func (s resources) FailBacklogTask(ctx context.Context, r api.FailBacklogTaskRequestObject) (api.FailBacklogTaskResponseObject, error) {
	if r.Body.Fence == "" && r.Body.Reason == "" {
		return nil, lacksReason("fail a task")
	}
	t, err := s.act(ctx, r.Workspace, r.Task, *r.Body, (*backlog.Workspace).Fail)
	return api.FailBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// ReleaseBacklogTask implements [api.StrictServerInterface].
func (s resources) ReleaseBacklogTask(ctx context.Context, r api.ReleaseBacklogTaskRequestObject) (api.ReleaseBacklogTaskResponseObject, error) {
	said := api.BacklogOutcome{Fence: r.Body.Fence, Reason: r.Body.Reason}
	t, err := s.act(ctx, r.Workspace, r.Task, said, later(r.Body.DelayMS, (*backlog.Workspace).Release))
	return api.ReleaseBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// BlockBacklogTask implements [api.StrictServerInterface].
func (s resources) BlockBacklogTask(ctx context.Context, r api.BlockBacklogTaskRequestObject) (api.BlockBacklogTaskResponseObject, error) {
	t, err := s.act(ctx, r.Workspace, r.Task, api.BacklogOutcome{Fence: r.Body.Fence, Reason: r.Body.Reason}, (*backlog.Workspace).Block)
	return api.BlockBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// UnblockBacklogTask implements [api.StrictServerInterface].
func (s resources) UnblockBacklogTask(ctx context.Context, r api.UnblockBacklogTaskRequestObject) (api.UnblockBacklogTaskResponseObject, error) {
	t, err := s.act(ctx, r.Workspace, r.Task, api.BacklogOutcome{Reason: r.Body.Reason}, (*backlog.Workspace).Unblock)
	return api.UnblockBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// PauseBacklogTask implements [api.StrictServerInterface].
func (s resources) PauseBacklogTask(ctx context.Context, r api.PauseBacklogTaskRequestObject) (api.PauseBacklogTaskResponseObject, error) {
	if r.Body.Reason == "" {
		return nil, lacksReason("pause a task")
	}
	t, err := s.act(ctx, r.Workspace, r.Task, api.BacklogOutcome{Reason: r.Body.Reason}, (*backlog.Workspace).Pause)
	return api.PauseBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// ResumeBacklogTask implements [api.StrictServerInterface].
func (s resources) ResumeBacklogTask(ctx context.Context, r api.ResumeBacklogTaskRequestObject) (api.ResumeBacklogTaskResponseObject, error) {
	t, err := s.act(ctx, r.Workspace, r.Task, api.BacklogOutcome{Reason: r.Body.Reason}, (*backlog.Workspace).Resume)
	return api.ResumeBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// CancelBacklogTask implements [api.StrictServerInterface].
func (s resources) CancelBacklogTask(ctx context.Context, r api.CancelBacklogTaskRequestObject) (api.CancelBacklogTaskResponseObject, error) {
	if r.Body.Reason == "" {
		return nil, lacksReason("cancel a task")
	}
	t, err := s.act(ctx, r.Workspace, r.Task, api.BacklogOutcome{Reason: r.Body.Reason}, (*backlog.Workspace).Cancel)
	return api.CancelBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// RetryBacklogTask implements [api.StrictServerInterface].
func (s resources) RetryBacklogTask(ctx context.Context, r api.RetryBacklogTaskRequestObject) (api.RetryBacklogTaskResponseObject, error) {
	t, err := s.act(ctx, r.Workspace, r.Task, api.BacklogOutcome{Reason: r.Body.Reason}, later(r.Body.DelayMS, (*backlog.Workspace).Retry))
	return api.RetryBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// lacksReason refuses what nobody may do without saying why.
func lacksReason(what string) error {
	return commands.Refuse(commands.Validation, "to %s needs a reason", what).Hinting("say why; it is recorded")
}

// An act moves one task on.
type act = func(ws *backlog.Workspace, ctx context.Context, a backlog.Act) (backlog.Task, error)

// later is an act after which the task is not ready before a time is over.
func later(ms int64, do act) act {
	return func(ws *backlog.Workspace, ctx context.Context, a backlog.Act) (backlog.Task, error) {
		a.Delay = milliseconds(ms)
		return do(ws, ctx, a)
	}
}

// act does what somebody said of a task.
func (s resources) act(ctx context.Context, workspace, task string, said api.BacklogOutcome, do act) (api.OneBacklogTaskJSONResponse, error) {
	var none api.OneBacklogTaskJSONResponse
	ws, err := s.workspace(ctx, workspace)
	if err != nil {
		return none, err
	}
	a := backlog.Act{Task: task, Reason: said.Reason, Result: json.RawMessage(said.Result)}
	if a.Usage, err = unitsOf(said.Usage); err != nil {
		return none, err
	}
	if said.Fence == "" && control.CallerOf(ctx).NeedsFence() {
		return none, commands.Refuse(commands.Validation, "a worker speaks of a task that it has claimed").Hinting("send the fence that its claim has given")
	}
	if said.Fence != "" {
		f, err := backlog.ParseFence(said.Fence)
		if err != nil {
			return none, err
		}
		a.Fence = &f
	}
	t, err := do(ws, ctx, a)
	return oneCard(t), err
}

// LinkBacklogTask implements [api.StrictServerInterface].
func (s resources) LinkBacklogTask(ctx context.Context, r api.LinkBacklogTaskRequestObject) (api.LinkBacklogTaskResponseObject, error) {
	t, err := s.relate(ctx, r.Workspace, r.Task, r.Body.To, (*backlog.Workspace).Link)
	return api.LinkBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// UnlinkBacklogTask implements [api.StrictServerInterface].
func (s resources) UnlinkBacklogTask(ctx context.Context, r api.UnlinkBacklogTaskRequestObject) (api.UnlinkBacklogTaskResponseObject, error) {
	t, err := s.relate(ctx, r.Workspace, r.Task, r.Body.To, (*backlog.Workspace).Unlink)
	return api.UnlinkBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// relate changes what a task depends on.
func (s resources) relate(ctx context.Context, workspace, from, to string, do func(ws *backlog.Workspace, ctx context.Context, from, to string) error) (api.OneBacklogTaskJSONResponse, error) {
	var t backlog.Task
	ws, err := s.workspace(ctx, workspace)
	if err == nil {
		err = do(ws, ctx, from, to)
	}
	if err == nil {
		t, err = ws.Show(ctx, from)
	}
	return oneCard(t), err
}
