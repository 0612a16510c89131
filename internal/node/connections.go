package node

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
)

// find returns the connection that a request names, whichever role it belongs to.
func (n *Node) find(name string) (federation.Status, error) {
	return n.board.Find(name, n.authorities()...)
}

// authorities are those of the connections that are this instance's business.
func (n *Node) authorities() (list []store.Authority) {
	if n.Spoke != nil {
		list = append(list, store.Obeys)
	}
	if n.Hub != nil {
		list = append(list, store.Commands)
	}
	return list
}

// ListConnections implements [api.StrictServerInterface].
func (s resources) ListConnections(ctx context.Context, _ api.ListConnectionsRequestObject) (api.ListConnectionsResponseObject, error) {
	list := make([]api.Connection, 0)
	if s.n.Spoke != nil {
		hubs, err := s.n.Spoke.Hubs(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, mapped(hubs, hubOf)...)
	}
	if s.n.Hub != nil {
		spokes, err := s.n.Hub.Spokes(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, mapped(spokes, spokeOf)...)
	}
	return api.ListConnections200JSONResponse{Items: list}, nil
}

// GetConnection implements [api.StrictServerInterface].
func (s resources) GetConnection(ctx context.Context, r api.GetConnectionRequestObject) (api.GetConnectionResponseObject, error) {
	c, err := s.n.find(r.Connection)
	if err != nil {
		return nil, err
	}
	if c.Authority == store.Commands {
		v, err := s.n.Hub.SpokeOf(ctx, c)
		return api.GetConnection200JSONResponse(spokeOf(v)), err
	}
	v, err := s.n.Spoke.Hub(ctx, c)
	return api.GetConnection200JSONResponse(hubOf(v)), err
}

// SuspendConnection implements [api.StrictServerInterface].
func (s resources) SuspendConnection(ctx context.Context, r api.SuspendConnectionRequestObject) (api.SuspendConnectionResponseObject, error) {
	v, err := s.change(ctx, r.Connection, "suspend", r.Body.Reason)
	return api.SuspendConnection200JSONResponse{ChangedJSONResponse: v}, err
}

// ResumeConnection implements [api.StrictServerInterface].
func (s resources) ResumeConnection(ctx context.Context, r api.ResumeConnectionRequestObject) (api.ResumeConnectionResponseObject, error) {
	v, err := s.change(ctx, r.Connection, "resume", r.Body.Reason)
	return api.ResumeConnection200JSONResponse{ChangedJSONResponse: v}, err
}

// RevokeConnection implements [api.StrictServerInterface].
func (s resources) RevokeConnection(ctx context.Context, r api.RevokeConnectionRequestObject) (api.RevokeConnectionResponseObject, error) {
	v, err := s.change(ctx, r.Connection, "revoke", r.Body.Reason)
	return api.RevokeConnection200JSONResponse{ChangedJSONResponse: v}, err
}

// change is an operator's right on both sides: to stop commanding or obeying, for a while or for good.
func (s resources) change(ctx context.Context, name, verb, reason string) (api.ChangedJSONResponse, error) {
	c, err := s.n.board.Change(ctx, name, federation.Change{Verb: verb, Reason: reason, Actor: control.CallerOf(ctx).String()}, s.n.authorities()...)
	return api.ChangedJSONResponse{ID: c.ID, Name: c.Name, Authority: api.ConnectionChangeAuthority(c.Authority), State: api.ConnectionState(c.State), Reason: c.Reason, By: c.By,
		Since: c.Since, Untold: c.Untold, Already: c.Already, PeerSays: saysOf(c.Says)}, err
}

// ResyncConnection implements [api.StrictServerInterface].
func (s resources) ResyncConnection(ctx context.Context, r api.ResyncConnectionRequestObject) (api.ResyncConnectionResponseObject, error) {
	v, err := s.n.board.Resync(ctx, r.Connection, control.CallerOf(ctx).String(), s.n.authorities()...)
	return api.ResyncConnection200JSONResponse{Name: v.Name, Ours: v.Ours, Theirs: v.Theirs, Learnt: v.Learnt, Resumed: v.Resumed,
		Confirmed: v.Confirmed, Reopened: v.Reopened, Renumbered: v.Renumbered, Base: v.Base}, err
}

// ChangeGrant implements [api.StrictServerInterface].
func (s resources) ChangeGrant(ctx context.Context, r api.ChangeGrantRequestObject) (api.ChangeGrantResponseObject, error) {
	c, err := s.n.find(r.Connection)
	if s.n.Spoke == nil || err == nil && c.Authority == store.Commands {
		return nil, commands.Refuse(commands.Validation, "what a hub may ask for is decided by the host of the spoke").Hinting("there: spawnmesh connections grant NAME")
	}
	if err != nil {
		return nil, err
	}
	change := spoke.GrantChange{Kinds: r.Body.Kinds, Runtimes: r.Body.Runtimes, Weight: r.Body.Weight, Expires: r.Body.Expires}
	g, err := s.n.Spoke.SetGrant(ctx, c.ID, change, control.CallerOf(ctx).String())
	return api.ChangeGrant200JSONResponse(grantOf(g)), err
}

// ReloadPolicy implements [api.StrictServerInterface].
func (s resources) ReloadPolicy(ctx context.Context, r api.ReloadPolicyRequestObject) (api.ReloadPolicyResponseObject, error) {
	here, err := s.spoke()
	if err != nil {
		return nil, err
	}
	c, err := here.ReloadPolicy(context.WithoutCancel(ctx), control.CallerOf(ctx).String(), r.Params.Expected)
	return api.ReloadPolicy200JSONResponse{Policy: c.Policy, Was: c.Was, Isolation: c.Level, Lifted: c.Lifted}, err
}
