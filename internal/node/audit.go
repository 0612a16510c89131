package node

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store"
)

// How many rows of the audit one answer has.
const (
	usualRows = 1000
	mostRows  = 10000
)

// ListAudit implements [api.StrictServerInterface].
func (s resources) ListAudit(ctx context.Context, r api.ListAuditRequestObject) (api.ListAuditResponseObject, error) {
	limit := usualRows
	if r.Params.Limit != nil {
		limit = *r.Params.Limit
	}
	if limit < 1 || limit > mostRows {
		return nil, commands.Refuse(commands.Validation, "limit is a number from 1 to %d", mostRows)
	}
	list, err := s.n.Instance.DB.AuditTrail(ctx, r.Params.Object, limit)
	if since := r.Params.Since; since != nil {
		list = AuditSince(list, *since)
	}
	return api.ListAudit200JSONResponse{Items: AuditRows(list)}, err
}

// AuditSince are those of the newest rows that are of a time or later. They are the newest of all that
// are so, and no index by time is needed to find them.
func AuditSince(newest []store.AuditRow, at time.Time) []store.AuditRow {
	return slices.DeleteFunc(newest, func(r store.AuditRow) bool { return r.At.Before(at) })
}

// AuditRows are rows of an audit as the API has them.
func AuditRows(list []store.AuditRow) []api.AuditRow {
	return mapped(list, func(v store.AuditRow) api.AuditRow {
		return api.AuditRow{Seq: v.Seq, At: v.At, Actor: v.Actor, Action: v.Action, Object: v.Object, Code: v.Code, Why: v.Why, Conn: v.Conn, Message: v.Message}
	})
}
