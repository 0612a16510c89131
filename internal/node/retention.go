package node

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// ListRetention implements [api.StrictServerInterface].
func (s resources) ListRetention(ctx context.Context, _ api.ListRetentionRequestObject) (api.ListRetentionResponseObject, error) {
	list, err := s.n.Instance.DB.Retention(ctx)
	return api.ListRetention200JSONResponse{Items: mapped(list, keptOf)}, err
}

// ChangeRetention implements [api.StrictServerInterface].
func (s resources) ChangeRetention(ctx context.Context, r api.ChangeRetentionRequestObject) (api.ChangeRetentionResponseObject, error) {
	db := s.n.Instance.DB
	if err := db.SetRetention(ctx, r.Kind, time.Duration(r.Body.KeepNS), control.CallerOf(ctx).String()); err != nil {
		return nil, err
	}
	list, err := db.Retention(ctx)
	if err != nil {
		return nil, err
	}
	k, err := theOne("kind", r.Kind, list, func(k store.Kept) string { return k.Kind })
	return api.ChangeRetention200JSONResponse(keptOf(k)), err
}

func keptOf(k store.Kept) api.Retention {
	return api.Retention{Kind: k.Kind, AgeSince: k.Since, KeepNS: int64(k.Keep), DefaultNS: int64(k.Default), AtOnce: k.AtOnce, SetBy: k.SetBy, PartOf: k.PartOf, Bounds: k.Bounds,
		Bytes: k.Bytes, GrownBytes: k.Grown, GrownSince: k.BytesAt, PrunedAt: k.PrunedAt, Removed: k.Removed, Behind: k.Behind}
}
