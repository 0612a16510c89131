package node

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/store"
)

// mostStrays is how many rows that were put in are named.
const mostStrays = 10

// GetAuditCheckpoint implements [api.StrictServerInterface].
func (s resources) GetAuditCheckpoint(ctx context.Context, _ api.GetAuditCheckpointRequestObject) (api.GetAuditCheckpointResponseObject, error) {
	in := s.n.Instance
	_, err := in.DB.GrowAuditTree(ctx)
	if err == nil {
		err = s.n.checkpoint(ctx)
	}
	if err != nil && commands.CodeOf(err) != commands.AuditBroken { // a reader finds out what is broken
		return nil, err
	}
	c, err := in.DB.LastCheckpoint(ctx, in.Keys.Identity)
	return api.GetAuditCheckpoint200JSONResponse(checkpointOf(c, string(in.Keys.InstanceID()), in.Keys.Identity.Public())), err
}

func checkpointOf(c store.Checkpoint, instance string, public []byte) api.AuditCheckpoint {
	v := api.AuditCheckpoint{Instance: instance, PublicKey: base64.StdEncoding.EncodeToString(public), Size: c.Size, Note: c.Note}
	if c.Note != "" {
		v.Root, v.At = base64.StdEncoding.EncodeToString(c.Root[:]), &c.At
	}
	if c.Era > 0 {
		at := time.UnixMicro(c.Era).UTC()
		v.RestoredAt = &at
	}
	return v
}

// ListAuditCheckpoints implements [api.StrictServerInterface].
func (s resources) ListAuditCheckpoints(ctx context.Context, _ api.ListAuditCheckpointsRequestObject) (api.ListAuditCheckpointsResponseObject, error) {
	list, err := s.n.Instance.DB.PeerCheckpoints(ctx, "")
	return api.ListAuditCheckpoints200JSONResponse{Items: mapped(list, func(p store.PeerCheckpoint) api.PeerCheckpoint {
		return api.PeerCheckpoint{Peer: p.Peer, Conn: p.Conn, Checkpoint: checkpointOf(p.Checkpoint, string(p.Instance), p.Public), ReceivedAt: p.Received,
			Refused: p.Refused, Why: p.Why, RefusedAt: p.RefusedAt}
	})}, err
}

// ListAuditLeaves implements [api.StrictServerInterface].
func (s resources) ListAuditLeaves(ctx context.Context, r api.ListAuditLeavesRequestObject) (api.ListAuditLeavesResponseObject, error) {
	limit, err := limitOf(r.Params.Limit, usualRows, mostRows)
	if err == nil && r.Params.From < 0 {
		err = commands.Refuse(commands.Validation, "from is a number, 0 or more")
	}
	if err != nil {
		return nil, err
	}
	list, size, err := s.n.Instance.DB.AuditLeaves(ctx, r.Params.From, limit)
	if err != nil {
		return nil, err
	}
	v := api.ListAuditLeaves200JSONResponse{Items: mapped(list, leafOf), Size: size}
	if len(list) < limit && r.Params.Strays { // it looks at all rows
		v.Strays, err = s.n.Instance.DB.AuditStrays(ctx, mostStrays)
	}
	return v, err
}

func leafOf(l audittree.Leaved) api.AuditLeaf {
	v := api.AuditLeaf{Leaf: l.Leaf, Seq: l.Seq, Hash: base64.StdEncoding.EncodeToString(l.Hash[:])}
	if r := l.Row; r != nil {
		v.Row = &api.AuditRecord{Seq: r.Seq, At: r.At, Workspace: r.Workspace, Actor: r.Actor, Action: r.Action, Object: r.Object, Tasks: r.Tasks, Code: r.Code, Why: r.Why, Conn: r.Conn, Message: r.Message}
	}
	return v
}
