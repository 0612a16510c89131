package node

import (
	"context"
	"errors"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// ClaimBacklogTasks implements [api.StrictServerInterface]. Who waits is answered early, with nothing,
// when the instance or its database is about to stop.
func (s resources) ClaimBacklogTasks(ctx context.Context, r api.ClaimBacklogTasksRequestObject) (api.ClaimBacklogTasksResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	wait, err := waitOf(r.Params.Wait)
	if err != nil {
		return nil, err
	}
	terms := backlog.ClaimTerms{Owner: r.Body.Owner, Task: r.Body.Task, Lanes: r.Body.Lanes, Capabilities: r.Body.Capabilities, Limit: r.Body.Limit, Lease: milliseconds(r.Body.TTLMS)}
	if terms.Task != "" && wait > 0 {
		return nil, commands.Refuse(commands.Validation, "a claim of one task does not wait").Hinting("leave out task or wait")
	}
	in := s.n.Instance
	got, err := ws.ClaimWait(ctx, terms, time.Now().Add(wait), in.Leaving)
	if len(got) == 0 && (errors.Is(err, backlog.ErrLeaving) || wait > 0 && (in.Gone(err) || ctx.Err() != nil)) {
		err = nil
	}
	if len(got) == 0 && err != nil {
		return nil, err
	}
	said := api.ClaimBacklogTasks200JSONResponse{Items: claims(ctx, ws, terms.Owner, got)}
	if err != nil { // what was claimed before is claimed
		said.Problem = new(control.ProblemOf(err))
	}
	return said, nil
}

// claims are tasks as their claimer gets them, each with all that is known of it.
func claims(ctx context.Context, ws *backlog.Workspace, owner string, got []backlog.Claimed) []api.BacklogTask {
	known := map[string]backlog.Task{}
	tasks, _ := ws.ShowAll(ctx, mapped(got, func(c backlog.Claimed) string { return c.Fence.Task })) // the claims stand: their claimer must learn of them all the same
	for _, t := range tasks {
		known[t.ID] = t
	}
	return mapped(got, func(c backlog.Claimed) api.BacklogTask {
		t, ok := known[c.Fence.Task]
		if !ok {
			t = backlog.Task{ID: c.Fence.Task, ShortID: commands.ShortID(c.Fence.Task), Key: c.Key, Title: c.Title, Body: c.Body, Priority: c.Priority, Status: backlog.BoardClaimed,
				State: commands.Claimed, Lane: c.Lane, Acceptance: c.Acceptance, Owner: owner, LeaseUntil: &c.Until, Attempts: c.Fence.Attempt}
		}
		v := cardOf(t)
		v.Fence, v.Epoch, v.Type, v.Grant, v.Until = c.Fence.String(), c.Fence.Epoch, c.Type, c.Grant, &c.Until
		return v
	})
}

// RenewBacklogTask implements [api.StrictServerInterface].
func (s resources) RenewBacklogTask(ctx context.Context, r api.RenewBacklogTaskRequestObject) (api.RenewBacklogTaskResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	f, err := backlog.ParseFence(r.Body.Fence)
	if err == nil && f.Task != r.Task {
		err = ofTask(ctx, ws, f, r.Task)
	}
	if err != nil {
		return nil, err
	}
	until, err := ws.Renew(ctx, f, milliseconds(r.Body.TTLMS))
	return api.RenewBacklogTask200JSONResponse{Fence: f.String(), Until: until}, err
}

// ofTask refuses a fence that is of another task.
func ofTask(ctx context.Context, ws *backlog.Workspace, f backlog.Fence, task string) error {
	t, err := ws.Show(ctx, task)
	if err == nil && t.ID != f.Task {
		err = commands.Refuse(commands.Validation, "the fence is of task %s, not of %s", commands.ShortID(f.Task), t.Name())
	}
	return err
}

// ReclaimBacklogTask implements [api.StrictServerInterface].
func (s resources) ReclaimBacklogTask(ctx context.Context, r api.ReclaimBacklogTaskRequestObject) (api.ReclaimBacklogTaskResponseObject, error) {
	list, err := s.reclaim(ctx, r.Workspace, r.Task)
	return api.ReclaimBacklogTask200JSONResponse{BacklogTasksJSONResponse: list}, err
}

// ReclaimBacklogTasks implements [api.StrictServerInterface].
func (s resources) ReclaimBacklogTasks(ctx context.Context, r api.ReclaimBacklogTasksRequestObject) (api.ReclaimBacklogTasksResponseObject, error) {
	list, err := s.reclaim(ctx, r.Workspace, "")
	return api.ReclaimBacklogTasks200JSONResponse{BacklogTasksJSONResponse: list}, err
}

func (s resources) reclaim(ctx context.Context, workspace, task string) (api.BacklogTasksJSONResponse, error) {
	ws, err := s.workspace(ctx, workspace)
	if err != nil {
		return api.BacklogTasksJSONResponse{}, err
	}
	list, err := ws.Reclaim(ctx, task)
	return cardList(list), err
}

// VerifyClaimGrant implements [api.StrictServerInterface].
func (s resources) VerifyClaimGrant(ctx context.Context, r api.VerifyClaimGrantRequestObject) (api.VerifyClaimGrantResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	g, err := ws.VerifyGrant(ctx, r.Body.Grant)
	return api.VerifyClaimGrant200JSONResponse{Fence: g.Fence.String(), KeyID: g.KeyID, ExpiresAt: g.Expires}, err
}

// RotateGrantKey implements [api.StrictServerInterface].
func (s resources) RotateGrantKey(ctx context.Context, r api.RotateGrantKeyRequestObject) (api.RotateGrantKeyResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	id, err := ws.RotateGrantKey(ctx)
	return api.RotateGrantKey200JSONResponse{KeyID: id}, err
}
