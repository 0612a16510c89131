package node

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// ListKeys implements [api.StrictServerInterface].
func (s resources) ListKeys(ctx context.Context, _ api.ListKeysRequestObject) (api.ListKeysResponseObject, error) {
	v, err := s.n.Instance.DB.KeysView(ctx)
	return api.ListKeys200JSONResponse{KeysJSONResponse: keysOf(v)}, err
}

// RotateKey implements [api.StrictServerInterface].
func (s resources) RotateKey(ctx context.Context, r api.RotateKeyRequestObject) (api.RotateKeyResponseObject, error) {
	v, err := s.n.board.ChangeKey(ctx, store.KeyChange{OverlapMS: r.Body.OverlapMS, Reason: r.Body.Reason, Actor: control.CallerOf(ctx).String()})
	return api.RotateKey200JSONResponse{KeysJSONResponse: keysOf(v)}, err
}

// RevokeKey implements [api.StrictServerInterface].
func (s resources) RevokeKey(ctx context.Context, r api.RevokeKeyRequestObject) (api.RevokeKeyResponseObject, error) {
	if r.Body.Key == "" || r.Body.Reason == "" { // without a key it would be a rotation
		return nil, commands.Refuse(commands.Validation, "to revoke a key needs its id, or \"current\", and a reason")
	}
	v, err := s.n.board.ChangeKey(ctx, store.KeyChange{Revoke: r.Body.Key, Reason: r.Body.Reason, Actor: control.CallerOf(ctx).String()})
	return api.RevokeKey200JSONResponse{KeysJSONResponse: keysOf(v)}, err
}

func keysOf(v store.KeysView) api.KeysJSONResponse {
	return api.KeysJSONResponse{
		Identity: string(v.Identity), Fingerprint: v.Fingerprint, Version: v.Version, Waiting: v.Waiting,
		Signing: mapped(v.Signing, func(k store.OwnKeyView) api.SigningKey {
			return api.SigningKey{ID: string(k.ID), State: api.SigningKeyState(k.State), Since: k.Since, RetiredAt: when(k.Retired), VerifiesUntil: when(k.Until), RevokedAt: when(k.Revoked), Reason: k.Reason, SignsFor: k.Peers}
		}),
		Peers: mapped(v.Peers, func(k store.PeerKeyView) api.PeerKey {
			return api.PeerKey{Peer: k.Peer, ID: string(k.ID), Use: api.PeerKeyUse(k.Use), State: api.PeerKeyState(k.State), Since: k.Since, Until: when(k.Until), RevokedAt: when(k.Revoked)}
		}),
	}
}
