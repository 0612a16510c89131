package spoke

import (
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
)

// Keeps says what keeps orders of a hub from being done here, what weighs most first: each reason as what the hub does, or what is
// done to it.
func (v HubView) Keeps() []commands.WhyReason {
	s := federation.Standing{Connection: v.Connection, Linked: v.Linked, BeatRefused: v.BeatRefused, ClockOffset: v.ClockOffset, Limited: v.Limited, KeyRevoked: v.KeyRevoked, Full: v.Full != nil, FullSince: v.Full,
		Differs: v.Differs, Refuses: v.Refuses, Frozen: v.Frozen, FrozenScope: v.FrozenScope, Says: v.Says, Queues: v.Queues}
	list := s.State()
	if v.State.Ended() {
		return list
	}
	if !v.Linked && v.LinkError != "" {
		list = append(list, commands.WhyReason{Code: commands.CauseLink, Text: "is not linked: " + v.LinkError, Since: v.LastSeen, Fix: "it is dialled again by itself"})
	}
	if e := v.Grant.Expires; e != nil && !time.Now().Before(*e) {
		list = append(list, commands.WhyReason{Code: commands.CauseGrant, Text: "may order nothing: its grant has expired", Since: e,
			Fix: commands.ShellLine([]string{"spawnmesh", "connections", "grant", v.Name, "--expires", "never"})})
	}
	return slices.Concat(list, s.Heartbeats(), s.Freezes(), s.Faults())
}
