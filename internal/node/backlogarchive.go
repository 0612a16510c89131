package node

import (
	"context"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// ArchiveBacklogTask implements [api.StrictServerInterface].
func (s resources) ArchiveBacklogTask(ctx context.Context, r api.ArchiveBacklogTaskRequestObject) (api.ArchiveBacklogTaskResponseObject, error) {
	t, err := s.archiveCard(ctx, r.Workspace, r.Task, true)
	return api.ArchiveBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

// UnarchiveBacklogTask implements [api.StrictServerInterface].
func (s resources) UnarchiveBacklogTask(ctx context.Context, r api.UnarchiveBacklogTaskRequestObject) (api.UnarchiveBacklogTaskResponseObject, error) {
	t, err := s.archiveCard(ctx, r.Workspace, r.Task, false)
	return api.UnarchiveBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: t}, err
}

func (s resources) archiveCard(ctx context.Context, workspace, task string, archive bool) (api.OneBacklogTaskJSONResponse, error) {
	ws, err := s.workspace(ctx, workspace)
	if err != nil {
		return api.OneBacklogTaskJSONResponse{}, err
	}
	t, err := ws.Archive(ctx, task, archive)
	return oneCard(t), err
}

// ArchiveBacklogTasks implements [api.StrictServerInterface].
func (s resources) ArchiveBacklogTasks(ctx context.Context, r api.ArchiveBacklogTasksRequestObject) (api.ArchiveBacklogTasksResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	after, err := idOf(r.Body.Cursor)
	if err != nil {
		return nil, err
	}
	n, last, err := ws.ArchiveSome(ctx, backlog.ArchiveTerm{Older: milliseconds(r.Body.OlderThanMS), Lane: r.Body.Lane, Phase: r.Body.Phase, After: after})
	return api.ArchiveBacklogTasks200JSONResponse{Archived: n, Next: cursorOf(last)}, err
}
