package node

import (
	"context"
	"encoding/base64"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// workspace is one of the backlog, as who asks sees and changes it.
func (s resources) workspace(ctx context.Context, name string) (*backlog.Workspace, error) {
	return s.backlog.Workspace(name, control.CallerOf(ctx).String())
}

// ListBacklogTasks implements [api.StrictServerInterface].
func (s resources) ListBacklogTasks(ctx context.Context, r api.ListBacklogTasksRequestObject) (api.ListBacklogTasksResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	f, err := filterOf(ctx, ws, r.Params)
	if err == nil && f.ReadyOnly {
		_, err = ws.Sweep(ctx) // what is due stands ready, too
	}
	if err != nil {
		return nil, err
	}
	list, err := ws.List(ctx, f)
	page := api.BacklogTaskList{Items: mapped(list, cardOf)}
	if len(list) == f.Limit && !f.ReadyOnly {
		page.Next = cursorOf(list[len(list)-1].ID)
	}
	return api.ListBacklogTasks200JSONResponse{BacklogTasksJSONResponse: api.BacklogTasksJSONResponse(page)}, err
}

// usualCards is how many tasks of the backlog a list has.
const usualCards = 100

func filterOf(ctx context.Context, ws *backlog.Workspace, p api.ListBacklogTasksParams) (f backlog.Filter, err error) {
	f = backlog.Filter{Status: backlog.BoardStatus(p.Status), State: commands.State(p.State), Phase: p.Phase, Lane: p.Lane, Owner: p.Owner, ReadyOnly: p.ReadyOnly, Limit: usualCards}
	if p.Limit != nil {
		f.Limit = *p.Limit
	}
	switch {
	case f.Limit == 0: // to the list it would be the usual number
		return f, commands.Refuse(commands.Validation, "limit is a number from 1 to 1000")
	case p.Cursor != "":
		f.Before, err = idOf(p.Cursor)
	case p.Before != "":
		var t backlog.Task
		t, err = ws.Show(ctx, p.Before)
		f.Before = t.ID
	}
	return f, err
}

// cursorOf is where a list goes on, the newest first, behind a task: ids grow, so what is created
// meanwhile stands before it.
func cursorOf(id string) string { return base64.RawURLEncoding.EncodeToString([]byte(id)) }

func idOf(cursor string) (string, error) {
	id, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(id) != 36 {
		return "", commands.Refuse(commands.Validation, "cursor %q is not the next of a list", commands.Clip(cursor))
	}
	return string(id), nil
}
