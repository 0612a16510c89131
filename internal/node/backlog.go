package node

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// workspace is one of the backlog, as who asks sees and changes it.
func (s resources) workspace(ctx context.Context, name string) (*backlog.Workspace, error) {
	who := control.CallerOf(ctx)
	ws, err := s.backlog.Workspace(name, who.String())
	if err == nil && !who.Everywhere() {
		ws = ws.Bound()
	}
	return ws, err
}

// swept is a workspace after what time moves has been moved: claims that ran out, tasks that are due,
// budgets that begin anew.
func (s resources) swept(ctx context.Context, name string) (*backlog.Workspace, error) {
	ws, err := s.workspace(ctx, name)
	if err == nil {
		_, err = ws.Sweep(ctx)
	}
	return ws, err
}

// ListBacklogTasks implements [api.StrictServerInterface].
func (s resources) ListBacklogTasks(ctx context.Context, r api.ListBacklogTasksRequestObject) (api.ListBacklogTasksResponseObject, error) {
	open := s.workspace
	if r.Params.ReadyOnly {
		open = s.swept
	}
	ws, err := open(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	f, err := filterOf(ctx, ws, r.Params)
	if err != nil {
		return nil, err
	}
	list, err := ws.List(ctx, f)
	page := api.BacklogTaskList{Items: mapped(list, func(t backlog.Task) api.BacklogTask { return seenCard(ctx, cardOf(t)) })}
	if len(list) == f.Limit && !f.ReadyOnly {
		page.Next = cursorOf(list[len(list)-1].ID)
	}
	return api.ListBacklogTasks200JSONResponse{BacklogTasksJSONResponse: api.BacklogTasksJSONResponse(page)}, err
}

// How many tasks of the backlog a list has.
const (
	usualCards = 100
	mostCards  = 1000
)

func filterOf(ctx context.Context, ws *backlog.Workspace, p api.ListBacklogTasksParams) (f backlog.Filter, err error) {
	f = backlog.Filter{Status: backlog.BoardStatus(p.Status), State: commands.State(p.State), Phase: p.Phase, Lane: p.Lane, Owner: p.Owner, ReadyOnly: p.ReadyOnly, Archived: p.Archived}
	if f.Limit, err = limitOf(p.Limit, usualCards, mostCards); err != nil {
		return f, err
	}
	switch {
	case p.Cursor != "":
		f.Before, err = idOf(p.Cursor)
	case p.Before != "":
		var t backlog.Task
		t, err = ws.Show(ctx, p.Before)
		f.Before = t.ID
	}
	return f, err
}

// CreateBacklogTasks implements [api.StrictServerInterface].
func (s resources) CreateBacklogTasks(ctx context.Context, r api.CreateBacklogTasksRequestObject) (api.CreateBacklogTasksResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	if r.Params.IdempotencyKey != "" && len(r.Body.Items) != 1 {
		return nil, commands.Refuse(commands.Validation, "the header Idempotency-Key is for one task, and these are %d", len(r.Body.Items)).Hinting("give each its idempotency_key")
	}
	specs := make([]backlog.TaskSpec, len(r.Body.Items))
	for i, t := range r.Body.Items {
		if t.IdempotencyKey, err = keyOf(r.Params.IdempotencyKey, t.IdempotencyKey); err != nil {
			return nil, err
		}
		if specs[i], err = s.specOf(ctx, t); err != nil {
			return nil, err
		}
	}
	made, err := ws.Create(ctx, specs...)
	if err != nil {
		return nil, err
	}
	existing := map[string]bool{}
	for _, c := range made {
		existing[c.ID] = c.Existing
	}
	list, err := ws.ShowAll(ctx, mapped(made, func(c backlog.Created) string { return c.ID }))
	items := mapped(list, cardOf)
	for i := range items {
		items[i].Existing = new(existing[items[i].ID])
	}
	return api.CreateBacklogTasks200JSONResponse{BacklogTasksJSONResponse: api.BacklogTasksJSONResponse{Items: items}}, err
}

func (s resources) specOf(ctx context.Context, t api.NewBacklogTask) (spec backlog.TaskSpec, err error) {
	if string(t.Acceptance) == "null" {
		t.Acceptance = nil
	}
	spec = backlog.TaskSpec{Key: t.Key, Title: t.Title, Body: t.Body, Phase: t.Phase, Priority: t.Priority, DependsOn: t.DependsOn, Acceptance: json.RawMessage(t.Acceptance),
		IdempotencyKey: t.IdempotencyKey, Lane: t.Lane, Capabilities: t.Capabilities, Account: t.Account, MaxRetries: t.MaxRetries, BackoffMS: t.BackoffMS, OnFailedDep: t.OnFailedDependency}
	if spec.Estimate, err = unitsOf(t.Estimate); err != nil {
		return spec, err
	}
	spec.NotBefore, err = s.moment(ctx, "not_before", t.NotBefore, "delay_ms", t.DelayMS)
	return spec, err
}

// moment is a time that is named, or how long from now it is, by the clock that decides when it has come.
func (s resources) moment(ctx context.Context, name string, at time.Time, other string, ms int64) (time.Time, error) {
	switch {
	case ms == 0:
		return at, nil
	case !at.IsZero():
		return at, commands.Refuse(commands.Validation, "%s and %s are both given", name, other).Hinting("give one of them")
	}
	now, err := s.n.Instance.DB.Now(ctx)
	return now.Add(milliseconds(ms)), err
}

// GetBacklogTask implements [api.StrictServerInterface].
func (s resources) GetBacklogTask(ctx context.Context, r api.GetBacklogTaskRequestObject) (api.GetBacklogTaskResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	t, err := ws.Show(ctx, r.Task)
	return api.GetBacklogTask200JSONResponse{OneBacklogTaskJSONResponse: api.OneBacklogTaskJSONResponse(seenCard(ctx, cardOf(t)))}, err
}

// ExplainBacklogTask implements [api.StrictServerInterface].
func (s resources) ExplainBacklogTask(ctx context.Context, r api.ExplainBacklogTaskRequestObject) (api.ExplainBacklogTaskResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	w, err := ws.Why(ctx, r.Task)
	if !control.CallerOf(ctx).SeesContent() {
		w = w.WithoutWords()
	}
	return api.ExplainBacklogTask200JSONResponse{Task: seenCard(ctx, cardOf(w.Task)), Since: w.Since(), Claimable: w.Claimable, Reasons: mapped(w.Reasons, reasonOf), By: mapped(w.By, claimerOf)}, err
}

// GetBacklogStats implements [api.StrictServerInterface].
func (s resources) GetBacklogStats(ctx context.Context, r api.GetBacklogStatsRequestObject) (api.GetBacklogStatsResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	v, err := ws.Stats(ctx)
	return api.GetBacklogStats200JSONResponse{Status: counts(v.Status), Unsuccessful: v.Unsuccessful, States: counts(v.States), Claimable: v.Claimable,
		OldestReadyAt: v.OldestReady, OldestReadyAgeSeconds: v.OldestAge, ExpiredClaims: v.ExpiredClaims, Now: v.Now}, err
}

func counts[K ~string](m map[K]int64) map[string]int64 {
	out := make(map[string]int64, len(m))
	for k, n := range m {
		out[string(k)] = n
	}
	return out
}
