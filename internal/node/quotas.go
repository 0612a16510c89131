package node

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// ListQuotas implements [api.StrictServerInterface].
func (s resources) ListQuotas(ctx context.Context, r api.ListQuotasRequestObject) (api.ListQuotasResponseObject, error) {
	ws, err := s.swept(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	list, err := ws.Quotas(ctx)
	return api.ListQuotas200JSONResponse{Items: mapped(list, quotaOf)}, err
}

// SetQuota implements [api.StrictServerInterface].
func (s resources) SetQuota(ctx context.Context, r api.SetQuotaRequestObject) (api.SetQuotaResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	b := r.Body
	err = ws.SetQuota(ctx, backlog.Quota{Name: b.Name, Scope: b.Scope, Target: b.Target, Concurrent: b.Concurrent, PerWindow: b.PerWindow, Window: backlog.Seconds(times(b.WindowSeconds, time.Second))})
	if err != nil {
		return nil, err
	}
	q, err := quotaNamed(ctx, ws, b.Name)
	return api.SetQuota200JSONResponse{OneQuotaJSONResponse: oneQuota(q)}, err
}

// GetQuota implements [api.StrictServerInterface].
func (s resources) GetQuota(ctx context.Context, r api.GetQuotaRequestObject) (api.GetQuotaResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	q, err := quotaNamed(ctx, ws, r.Quota)
	return api.GetQuota200JSONResponse{OneQuotaJSONResponse: oneQuota(q)}, err
}

// RemoveQuota implements [api.StrictServerInterface].
func (s resources) RemoveQuota(ctx context.Context, r api.RemoveQuotaRequestObject) (api.RemoveQuotaResponseObject, error) {
	v, err := s.removeLimit(ctx, r.Workspace, "quota", r.Quota, r.Body.Reason, (*backlog.Workspace).RemoveQuota)
	return api.RemoveQuota200JSONResponse{RemovedJSONResponse: v}, err
}

func quotaNamed(ctx context.Context, ws *backlog.Workspace, name string) (backlog.Quota, error) {
	list, err := ws.Quotas(ctx)
	if err != nil {
		return backlog.Quota{}, err
	}
	ownFirst(list, func(q backlog.Quota) string { return q.Scope })
	return theOne("quota", name, list, func(q backlog.Quota) string { return q.Name })
}

func oneQuota(q backlog.Quota) api.OneQuotaJSONResponse { return api.OneQuotaJSONResponse(quotaOf(q)) }

func quotaOf(q backlog.Quota) api.Quota {
	return api.Quota{Name: q.Name, Scope: q.Scope, Target: q.Target, Concurrent: q.Concurrent, PerWindow: q.PerWindow, WindowSeconds: inSeconds(q.Window), Active: q.Active, InWindow: q.InWindow}
}
