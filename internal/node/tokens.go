package node

import (
	"cmp"
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/token"
	"github.com/spawnmesh/spawnmesh/store"
)

// How long a token can be used.
const (
	usualTokenLife   = 90 * 24 * time.Hour
	longestTokenLife = 366 * 24 * time.Hour
)

// ListTokens implements [api.StrictServerInterface].
func (s resources) ListTokens(ctx context.Context, _ api.ListTokensRequestObject) (api.ListTokensResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	list, err := h.DB.Tokens(ctx)
	return api.ListTokens200JSONResponse{Items: mapped(list, tokenOf)}, err
}

// CreateToken implements [api.StrictServerInterface].
func (s resources) CreateToken(ctx context.Context, r api.CreateTokenRequestObject) (api.CreateTokenResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	if err := api.CheckRole(r.Body.Role); err != nil {
		return nil, commands.Refuse(commands.Validation, "%v", err).Hinting("a role is one of: viewer, operator, worker, federation-admin, owner")
	}
	life, err := lifeOf(r.Body.TTLMS)
	if err != nil {
		return nil, err
	}
	t := token.New()
	expires, err := h.DB.AddToken(ctx, store.NewToken{ID: t.ID, Digest: t.Digest(), Name: r.Body.Name, Role: string(r.Body.Role), Workspace: r.Body.Workspace, Life: life, Actor: control.CallerOf(ctx).String()})
	return api.CreateToken200JSONResponse{ID: t.ID, Token: t.Text(), Name: r.Body.Name, Role: r.Body.Role, Workspace: r.Body.Workspace, Expires: expires}, err
}

// lifeOf is how long a token can be used that is to last for some milliseconds.
func lifeOf(ms int64) (time.Duration, error) {
	life := cmp.Or(milliseconds(ms), usualTokenLife)
	if life < time.Second || life > longestTokenLife {
		return 0, commands.Refuse(commands.Validation, "a token can be used for 1s to %s, not %s", commands.Lasting(longestTokenLife), commands.Lasting(life))
	}
	return life, nil
}

// RevokeToken implements [api.StrictServerInterface].
func (s resources) RevokeToken(ctx context.Context, r api.RevokeTokenRequestObject) (api.RevokeTokenResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	v, err := h.DB.RevokeToken(ctx, r.Token, r.Body.Reason, control.CallerOf(ctx).String())
	return api.RevokeToken200JSONResponse(tokenOf(v)), err
}

// ConfirmToken implements [api.StrictServerInterface].
func (s resources) ConfirmToken(ctx context.Context, r api.ConfirmTokenRequestObject) (api.ConfirmTokenResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	v, err := h.DB.ConfirmToken(ctx, r.Token, r.Body.Reason, control.CallerOf(ctx).String())
	return api.ConfirmToken200JSONResponse(tokenOf(v)), err
}

func tokenOf(v store.TokenView) api.Token {
	return api.Token{ID: v.ID, Name: v.Name, State: api.TokenState(v.State), Role: api.Role(v.Role), Workspace: v.Workspace, Expires: v.Expires, By: v.By, CreatedAt: v.CreatedAt,
		RevokedAt: when(v.RevokedAt), UsedAt: when(v.UsedAt)}
}
