package node

import (
	"context"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// ListWorkspaces implements [api.StrictServerInterface].
func (s resources) ListWorkspaces(ctx context.Context, _ api.ListWorkspacesRequestObject) (api.ListWorkspacesResponseObject, error) {
	list, err := s.backlog.Workspaces(ctx)
	return api.ListWorkspaces200JSONResponse{Items: mapped(list, func(w backlog.WorkspaceCount) api.Workspace { return api.Workspace(w) })}, err
}
