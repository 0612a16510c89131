package node

import (
	"context"
	"slices"
	"strconv"
	"time"

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
	before, err := seqOf(r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := newest(ctx, r.Params.Limit, r.Params.Since, func(limit int) ([]store.AuditRow, error) {
		return s.n.Instance.DB.AuditTrail(ctx, r.Params.Object, before, limit)
	})
	return api.ListAudit200JSONResponse(list), err
}

// ListBacklogAudit implements [api.StrictServerInterface].
func (s resources) ListBacklogAudit(ctx context.Context, r api.ListBacklogAuditRequestObject) (api.ListBacklogAuditResponseObject, error) {
	ws, err := s.workspace(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	before, err := seqOf(r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := newest(ctx, r.Params.Limit, r.Params.Since, func(limit int) ([]store.AuditRow, error) {
		return ws.Audit(ctx, r.Params.Task, before, limit)
	})
	return api.ListBacklogAudit200JSONResponse(list), err
}

// newest are rows of an audit that read finds, those of a time or later. They are the newest of all that
// are so, and no index by time is needed to find them.
func newest(ctx context.Context, asked *int, since *time.Time, read func(limit int) ([]store.AuditRow, error)) (v api.AuditList, err error) {
	limit, err := limitOf(asked, usualRows, mostRows)
	if err != nil {
		return v, err
	}
	list, err := read(limit)
	if since != nil {
		list = slices.DeleteFunc(list, func(r store.AuditRow) bool { return r.At.Before(*since) })
	}
	if len(list) == limit { // else there are no more, or they are older
		v.Next = cursorOf(strconv.FormatInt(list[0].Seq, 10))
	}
	v.Items = mapped(list, func(r store.AuditRow) api.AuditRow { return seenRow(ctx, auditRowOf(r)) })
	return v, err
}

func auditRowOf(v store.AuditRow) api.AuditRow {
	return api.AuditRow{Seq: v.Seq, At: v.At, Actor: v.Actor, Action: v.Action, Object: v.Object, Code: v.Code, Why: v.Why, Conn: v.Conn, Message: v.Message}
}
