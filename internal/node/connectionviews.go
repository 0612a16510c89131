package node

import (
	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
)

// spokeOf is a connection with a spoke, as its hub sees it.
func spokeOf(s hub.SpokeView) api.Connection {
	v := rowOf(s.Standing, s.Keeps())
	v.Remote, v.Liveness, v.NextExpectedAt = s.Remote, api.ConnectionLiveness(s.Liveness), when(s.NextExpected)
	v.Slots, v.Running, v.Queued, v.Unconfirmed = s.Slots, s.Running, s.Queued, s.Unconfirmed
	v.Capabilities, v.KillLevel, v.Isolation, v.Version, v.Policy, v.LeaseMS = s.Capabilities, s.KillLevel, s.Isolation, s.Version, s.Policy, s.LeaseMS
	v.Stopping, v.StartsNone = s.Stopping, s.StartsNone
	return v
}

// hubOf is a connection with a hub, as the host of its spoke sees it.
func hubOf(h spoke.HubView) api.Connection {
	v := rowOf(h.Standing, h.Keeps())
	v.Remote, v.LinkError, v.Running, v.Grant, v.Untold = h.Remote, h.LinkError, h.Running, grantOf(h.Grant), h.Untold
	return v
}

// rowOf is what both sides see of a connection.
func rowOf(s federation.Standing, keeps []commands.WhyReason) api.Connection {
	return api.Connection{ID: s.ID, Peer: string(s.Peer), Name: s.Name, Authority: api.ConnectionAuthority(s.Authority), State: api.ConnectionState(s.State), Reason: s.Reason, By: s.By,
		Since: s.Since, Epoch: s.Epoch, LinkKey: s.LinkKey, LinkURL: s.LinkURL, LinkPin: s.LinkPin, CreatedAt: s.CreatedAt,
		Linked: s.Linked, LinkedSince: when(s.LinkedSince), DownSince: when(s.DownSince), LastSeen: when(s.LastSeen), ClockOffset: s.ClockOffset, BeatRefused: refusedBeatOf(s.BeatRefused),
		Limited: s.Limited, Full: s.Full, FullSince: when(s.FullSince), Differs: s.Differs, RefusesKeys: string(s.RefusesKeys), KeyRevoked: s.KeyRevoked, Refuses: endedKeyOf(s.Refuses),
		PeerSays: saysOf(s.Says), Queues: mapped(s.Queues, queueOf), Frozen: latchOf(s.Frozen), FrozenScope: s.FrozenScope, Reasons: mapped(keeps, reasonOf)}
}

func grantOf(g store.GrantTerms) api.Grant {
	return api.Grant{Kinds: g.Kinds, Runtimes: g.Runtimes, Weight: g.Weight, Expires: when(g.Expires)}
}

func saysOf(v commands.ConnectionView) api.PeerSays {
	return api.PeerSays{State: v.State, Reason: v.Reason, By: v.By, Agrees: v.Agrees, Differs: v.Differs, Refuses: endedKeyOf(v.Refuses), Limited: v.Limited, Full: v.Full, Freeze: latchOf(v.Freeze), Audit: auditSays(v.Audit)}
}

func auditSays(h *commands.AuditHead) api.AuditSays {
	if h == nil {
		return api.AuditSays{}
	}
	return api.AuditSays{Refused: h.Refused}
}

func latchOf(f *commands.Freeze) api.Latch {
	if f == nil {
		return api.Latch{}
	}
	return api.Latch{Number: f.Number, Frozen: f.Frozen, Reason: f.Reason, By: f.By, Since: f.Since}
}

func endedKeyOf(k *commands.EndedKey) api.EndedKey {
	if k == nil {
		return api.EndedKey{}
	}
	return api.EndedKey{Kid: string(k.Key), Code: string(k.Code)}
}

func refusedBeatOf(b *federation.RefusedBeat) api.RefusedBeat {
	if b == nil {
		return api.RefusedBeat{}
	}
	return api.RefusedBeat{Code: string(b.Code), Why: b.Why}
}

func queueOf(q federation.QueueView) api.QueueState {
	return api.QueueState{Queue: q.Queue, Messages: q.Messages, Bytes: q.Bytes, StillSince: when(q.Still), Problem: q.Problem}
}
