package node

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// ListBudgets implements [api.StrictServerInterface].
func (s resources) ListBudgets(ctx context.Context, r api.ListBudgetsRequestObject) (api.ListBudgetsResponseObject, error) {
	ws, err := s.swept(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	list, err := ws.Budgets(ctx)
	return api.ListBudgets200JSONResponse{Items: mapped(list, budgetOf)}, err
}

// SetBudget implements [api.StrictServerInterface].
func (s resources) SetBudget(ctx context.Context, r api.SetBudgetRequestObject) (api.SetBudgetResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	g, err := s.newBudget(ctx, *r.Body)
	if err != nil {
		return nil, err
	}
	if err := ws.SetBudget(ctx, g); err != nil {
		return nil, err
	}
	g, err = budgetNamed(ctx, ws, g.Name)
	return api.SetBudget200JSONResponse{OneBudgetJSONResponse: oneBudget(g)}, err
}

func (s resources) newBudget(ctx context.Context, b api.NewBudget) (g backlog.Budget, err error) {
	g = backlog.Budget{Name: b.Name, Scope: b.Scope, Target: b.Target, Dimension: b.Dimension, OnHard: b.OnHard, DowngradeTo: b.DowngradeTo,
		Rolling: backlog.Seconds(times(b.RollingSeconds, time.Second)), Every: backlog.Seconds(times(b.EverySeconds, time.Second))}
	if g.Hard, err = backlog.ParseAmount(b.Hard.String()); err != nil {
		return g, err
	}
	if b.Soft != nil {
		soft, err := backlog.ParseAmount(b.Soft.String())
		if err != nil {
			return g, err
		}
		g.Soft = &soft
	}
	at, err := s.moment(ctx, "resets_at", b.ResetsAt, "resets_in_ms", b.ResetsInMS)
	if !at.IsZero() {
		g.ResetsAt = &at
	}
	return g, err
}

// GetBudget implements [api.StrictServerInterface].
func (s resources) GetBudget(ctx context.Context, r api.GetBudgetRequestObject) (api.GetBudgetResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	g, err := budgetNamed(ctx, ws, r.Budget)
	return api.GetBudget200JSONResponse{OneBudgetJSONResponse: oneBudget(g)}, err
}

// GrantBudget implements [api.StrictServerInterface].
func (s resources) GrantBudget(ctx context.Context, r api.GrantBudgetRequestObject) (api.GrantBudgetResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err == nil && r.Body.Reason == "" {
		err = lacksReason("raise a budget")
	}
	if err != nil {
		return nil, err
	}
	more, err := backlog.ParseAmount(r.Body.Amount.String())
	if err != nil {
		return nil, err
	}
	g, err := ws.GrantBudget(ctx, r.Budget, more, r.Body.Reason)
	return api.GrantBudget200JSONResponse{OneBudgetJSONResponse: oneBudget(g)}, err
}

// ResetBudget implements [api.StrictServerInterface].
func (s resources) ResetBudget(ctx context.Context, r api.ResetBudgetRequestObject) (api.ResetBudgetResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err == nil && r.Body.Reason == "" {
		err = lacksReason("reset a budget")
	}
	if err != nil {
		return nil, err
	}
	g, err := ws.ResetBudget(ctx, r.Budget, r.Body.Reason)
	return api.ResetBudget200JSONResponse{OneBudgetJSONResponse: oneBudget(g)}, err
}

// RemoveBudget implements [api.StrictServerInterface].
func (s resources) RemoveBudget(ctx context.Context, r api.RemoveBudgetRequestObject) (api.RemoveBudgetResponseObject, error) {
	v, err := s.removeLimit(ctx, r.Workspace, "budget", r.Budget, r.Body.Reason, (*backlog.Workspace).RemoveBudget)
	return api.RemoveBudget200JSONResponse{RemovedJSONResponse: v}, err
}

// removeLimit removes a budget or a quota.
func (s resources) removeLimit(ctx context.Context, workspace, what, name, reason string, remove func(ws *backlog.Workspace, ctx context.Context, name, reason string) error) (api.RemovedJSONResponse, error) {
	ws, err := s.workspace(ctx, workspace)
	if err == nil && reason == "" {
		err = lacksReason("remove a " + what)
	}
	if err == nil {
		err = remove(ws, ctx, name, reason)
	}
	return api.RemovedJSONResponse{Removed: name}, err
}

func budgetNamed(ctx context.Context, ws *backlog.Workspace, name string) (backlog.Budget, error) {
	list, err := ws.Budgets(ctx)
	if err != nil {
		return backlog.Budget{}, err
	}
	ownFirst(list, func(g backlog.Budget) string { return g.Scope })
	return theOne("budget", name, list, func(g backlog.Budget) string { return g.Name })
}

// ownFirst puts the limits of the instance last: a workspace's own is meant where both have a name.
func ownFirst[T any](list []T, scopeOf func(T) string) {
	place := func(x T) int {
		if scopeOf(x) == "instance" {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b T) int { return place(a) - place(b) })
}

// theOne finds the limit called name.
func theOne[T any](what, name string, list []T, nameOf func(T) string) (T, error) {
	for _, x := range list {
		if nameOf(x) == name {
			return x, nil
		}
	}
	var none T
	return none, commands.Refuse(commands.NotFound, "no %s %q", what, commands.Clip(name)).Hinting("see").Running(what, "list")
}

func oneBudget(g backlog.Budget) api.OneBudgetJSONResponse {
	return api.OneBudgetJSONResponse(budgetOf(g))
}

func budgetOf(g backlog.Budget) api.Budget {
	v := api.Budget{Name: g.Name, Scope: g.Scope, Target: g.Target, Dimension: g.Dimension, Hard: amountOf(g.Hard), OnHard: g.OnHard, DowngradeTo: g.DowngradeTo,
		RollingSeconds: inSeconds(g.Rolling), ResetsAt: g.ResetsAt, EverySeconds: inSeconds(g.Every),
		Used: amountOf(g.Used), Reserved: amountOf(g.Reserved), Left: amountOf(g.Left), SoftSince: g.SoftSince}
	if g.Soft != nil {
		v.Soft = new(amountOf(*g.Soft))
	}
	return v
}

func inSeconds(d backlog.Seconds) int64 { return int64(time.Duration(d) / time.Second) }
