package main

import (
	"context"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func sayComplete(ctx context.Context, c *api.ClientWithResponses, workspace string, f actFlags) (api.BacklogTask, error) {
	return control.Answer(c.CompleteBacklogTaskWithResponse(ctx, workspace, f.task, f.outcome()))
}

func sayFail(ctx context.Context, c *api.ClientWithResponses, workspace string, f actFlags) (api.BacklogTask, error) {
	return control.Answer(c.FailBacklogTaskWithResponse(ctx, workspace, f.task, f.outcome()))
}

func sayRelease(ctx context.Context, c *api.ClientWithResponses, workspace string, f actFlags) (api.BacklogTask, error) {
	return control.Answer(c.ReleaseBacklogTaskWithResponse(ctx, workspace, f.task, api.BacklogRelease{Fence: f.fence, Reason: f.reason, DelayMS: f.delayed()}))
}

func sayBlock(ctx context.Context, c *api.ClientWithResponses, workspace string, f actFlags) (api.BacklogTask, error) {
	return control.Answer(c.BlockBacklogTaskWithResponse(ctx, workspace, f.task, api.BacklogBlock{Fence: f.fence, Reason: f.reason}))
}

func sayUnblock(ctx context.Context, c *api.ClientWithResponses, workspace string, f actFlags) (api.BacklogTask, error) {
	return control.Answer(c.UnblockBacklogTaskWithResponse(ctx, workspace, f.task, api.Reason{Reason: f.reason}))
}

func sayCancel(ctx context.Context, c *api.ClientWithResponses, workspace string, f actFlags) (api.BacklogTask, error) {
	return control.Answer(c.CancelBacklogTaskWithResponse(ctx, workspace, f.task, api.Reason{Reason: f.reason}))
}

func sayRetry(ctx context.Context, c *api.ClientWithResponses, workspace string, f actFlags) (api.BacklogTask, error) {
	return control.Answer(c.RetryBacklogTaskWithResponse(ctx, workspace, f.task, api.BacklogRetry{Reason: f.reason, DelayMS: f.delayed()}))
}

func sayPause(ctx context.Context, c *api.ClientWithResponses, workspace string, f actFlags) (api.BacklogTask, error) {
	return control.Answer(c.PauseBacklogTaskWithResponse(ctx, workspace, f.task, api.Reason{Reason: f.reason}))
}

func sayResume(ctx context.Context, c *api.ClientWithResponses, workspace string, f actFlags) (api.BacklogTask, error) {
	return control.Answer(c.ResumeBacklogTaskWithResponse(ctx, workspace, f.task, api.Reason{Reason: f.reason}))
}
