package node

import (
	"context"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// ListInvites implements [api.StrictServerInterface].
func (s resources) ListInvites(ctx context.Context, _ api.ListInvitesRequestObject) (api.ListInvitesResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	list, err := h.DB.Invites(ctx)
	return api.ListInvites200JSONResponse{Items: mapped(list, inviteOf)}, err
}

// CreateInvite implements [api.StrictServerInterface].
func (s resources) CreateInvite(ctx context.Context, r api.CreateInviteRequestObject) (api.CreateInviteResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	v, err := h.Invite(ctx, r.Body.Name, milliseconds(r.Body.TTLMS), control.CallerOf(ctx).String())
	return api.CreateInvite200JSONResponse{ID: v.ID, Token: v.Token, Name: v.Name, Address: v.Address, Expires: v.Expires, Fingerprint: v.Fingerprint, Note: v.Note}, err
}

// RevokeInvite implements [api.StrictServerInterface].
func (s resources) RevokeInvite(ctx context.Context, r api.RevokeInviteRequestObject) (api.RevokeInviteResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	v, err := h.RevokeInvite(ctx, r.Invite, r.Body.Reason, control.CallerOf(ctx).String())
	return api.RevokeInvite200JSONResponse(inviteOf(v)), err
}

func inviteOf(v store.InviteView) api.Invite {
	return api.Invite{ID: v.ID, Name: v.Name, State: api.InviteState(v.State), Expires: v.Expires, By: v.By, CreatedAt: v.CreatedAt, RevokedAt: when(v.RevokedAt), Connection: v.Connection}
}
