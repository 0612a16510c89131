package node

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// ArchiveTask implements [api.StrictServerInterface].
func (s resources) ArchiveTask(ctx context.Context, r api.ArchiveTaskRequestObject) (api.ArchiveTaskResponseObject, error) {
	v, err := s.archiveTask(ctx, r.Task, true)
	return api.ArchiveTask200JSONResponse{OneTaskJSONResponse: v}, err
}

// UnarchiveTask implements [api.StrictServerInterface].
func (s resources) UnarchiveTask(ctx context.Context, r api.UnarchiveTaskRequestObject) (api.UnarchiveTaskResponseObject, error) {
	v, err := s.archiveTask(ctx, r.Task, false)
	return api.UnarchiveTask200JSONResponse{OneTaskJSONResponse: v}, err
}

func (s resources) archiveTask(ctx context.Context, task string, archive bool) (api.OneTaskJSONResponse, error) {
	h, err := s.ordered(ctx, task)
	if err != nil {
		return api.OneTaskJSONResponse{}, err
	}
	v, err := h.Archive(ctx, task, archive, control.CallerOf(ctx).String())
	return api.OneTaskJSONResponse(orderedOf(v)), err
}

// ArchiveTasks implements [api.StrictServerInterface].
func (s resources) ArchiveTasks(ctx context.Context, r api.ArchiveTasksRequestObject) (api.ArchiveTasksResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	labels, err := commands.ParseSelector(r.Body.Labels)
	if err != nil {
		return nil, err
	}
	after, err := idOf(r.Body.Cursor)
	if err != nil {
		return nil, err
	}
	n, last, err := h.ArchiveSome(ctx, store.ArchiveTerm{Older: milliseconds(r.Body.OlderThanMS), Labels: labels, After: after}, control.CallerOf(ctx).String())
	return api.ArchiveTasks200JSONResponse{Archived: n, Next: cursorOf(last)}, err
}

// LabelTask implements [api.StrictServerInterface].
func (s resources) LabelTask(ctx context.Context, r api.LabelTaskRequestObject) (api.LabelTaskResponseObject, error) {
	h, err := s.ordered(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	v, err := h.Label(ctx, r.Task, commands.Labels(r.Body.Labels), control.CallerOf(ctx).String())
	return api.LabelTask200JSONResponse{OneTaskJSONResponse: api.OneTaskJSONResponse(orderedOf(v))}, err
}
