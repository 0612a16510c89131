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
	v := rowOf(s.Connection)
	v.Linked, v.LinkedSince, v.Remote = s.Linked, when(s.LinkedSince), s.Remote
	v.Liveness, v.LastSeen, v.NextExpectedAt, v.ClockOffset = api.ConnectionLiveness(s.Liveness), when(s.LastSeen), when(s.NextExpected), s.ClockOffset
	v.BeatRefused = refusedBeatOf(s.BeatRefused)
	v.Slots, v.Running, v.Queued, v.Unconfirmed = s.Slots, s.Running, s.Queued, s.Unconfirmed
	v.Capabilities, v.KillLevel, v.Isolation, v.Version, v.Policy, v.LeaseMS = s.Capabilities, s.KillLevel, s.Isolation, s.Version, s.Policy, s.LeaseMS
	v.Stopping, v.StartsNone = s.Stopping, s.StartsNone
	v.Limited, v.Full, v.FullSince, v.Differs = s.Limited, s.Full, when(s.FullSince), s.Differs
	v.RefusesKeys, v.KeyRevoked = string(s.RefusesKeys), s.KeyRevoked
	v.Refuses, v.PeerSays, v.Queues = endedKeyOf(s.Refuses), saysOf(s.Says), mapped(s.Queues, queueOf)
	v.Frozen, v.FrozenScope, v.Reasons = latchOf(s.Frozen), s.FrozenScope, mapped(s.Keeps(), reasonOf)
	return v
}

// hubOf is a connection with a hub, as the host of its spoke sees it.
func hubOf(h spoke.HubView) api.Connection {
	v := rowOf(h.Connection)
	v.Linked, v.LinkedSince, v.LinkError, v.Remote = h.Linked, when(h.LinkedSince), h.LinkError, h.Remote
	v.ClockOffset, v.BeatRefused = h.ClockOffset, refusedBeatOf(h.BeatRefused)
	v.LastSeen, v.Running, v.Grant = when(h.LastSeen), h.Running, grantOf(h.Grant)
	v.Limited, v.Full, v.FullSince, v.Differs, v.Untold = h.Limited, h.Full != nil, when(h.Full), h.Differs, h.Untold
	v.RefusesKeys, v.KeyRevoked = string(h.RefusesKeys), h.KeyRevoked
	v.Refuses, v.PeerSays, v.Queues = endedKeyOf(h.Refuses), saysOf(h.Says), mapped(h.Queues, queueOf)
	v.Frozen, v.FrozenScope, v.Reasons = latchOf(h.Frozen), h.FrozenScope, mapped(h.Keeps(), reasonOf)
	return v
}

func rowOf(c store.Connection) api.Connection {
	return api.Connection{ID: c.ID, Peer: string(c.Peer), Name: c.Name, Authority: api.ConnectionAuthority(c.Authority), State: api.ConnectionState(c.State), Reason: c.Reason, By: c.By,
		Since: c.Since, Epoch: c.Epoch, LinkKey: c.LinkKey, LinkURL: c.LinkURL, LinkPin: c.LinkPin, CreatedAt: c.CreatedAt}
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
