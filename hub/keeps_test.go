package hub_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// Every reason that keeps a spoke from work is told, and nothing that is old.
func TestWhatKeepsASpokeFromWork(t *testing.T) {
	t.Parallel()
	seen := time.Now().Add(-4 * time.Minute)
	base := hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{ID: "7", Name: "attic", State: store.Active, Authority: store.Commands, Since: seen, By: "uid:0", Reason: "sold"},
		Linked: true, LinkedSince: &seen, LastSeen: &seen, Says: commands.ConnectionView{State: "active"}}, Liveness: hub.Alive, Slots: 4}
	tests := map[string]struct {
		change func(v *hub.SpokeView)
		says   []string
	}{
		"nothing":         {func(*hub.SpokeView) {}, nil},
		"late is no fact": {func(v *hub.SpokeView) { v.Liveness, v.Running = hub.Late, 4 }, nil},
		"its end":         {func(v *hub.SpokeView) { v.State, v.Stopping, v.Linked = store.Revoked, true, false }, []string{"is revoked by uid:0: sold"}},
		"a suspension":    {func(v *hub.SpokeView) { v.State, v.Linked = store.Suspended, false }, []string{"is suspended by uid:0: sold"}},
		"its own":         {func(v *hub.SpokeView) { v.Says = commands.ConnectionView{State: "suspended", Reason: "lunch"} }, []string{"is suspended by attic: lunch"}},
		"no link":         {func(v *hub.SpokeView) { v.Linked, v.Running, v.StartsNone = false, 4, "x" }, []string{"is not linked"}},
		"never a link":    {func(v *hub.SpokeView) { v.Linked, v.LastSeen = false, nil }, []string{"is not linked, and was not heard of since this hub started"}},
		"no word yet":     {func(v *hub.SpokeView) { v.LastSeen, v.Liveness = nil, hub.NeverSeen }, []string{"is linked, and has said nothing yet"}},
		"silence":         {func(v *hub.SpokeView) { v.Liveness = hub.Dead }, []string{"is linked, and nothing is heard of it"}},
		"its grant":       {func(v *hub.SpokeView) { v.Declines = []commands.Decline{{Code: commands.DeclinesExpired}} }, []string{"takes nothing of this hub: the grant there has expired"}},
		"an old word": {func(v *hub.SpokeView) {
			v.Declines, v.Linked = []commands.Decline{{Code: commands.DeclinesExpired}}, false
		}, []string{"is not linked"}},
		"a newer word": {func(v *hub.SpokeView) { v.Declines = []commands.Decline{{Code: "tide"}} }, []string{"does not take all that this hub orders (tide)"}},
		"its slots":    {func(v *hub.SpokeView) { v.Running = 4 }, []string{"has all of its 4 slots in use; what is ordered waits there"}},
		"several": {func(v *hub.SpokeView) {
			v.Stopping, v.Isolation, v.StartsNone, v.Differs, v.Full, v.Limited = true, commands.IsolationUnmet, "no disk", "restored", true, true
			v.Says.Limited, v.Says.Full, v.Says.Refuses, v.Refuses = true, true, &commands.EndedKey{Key: "k1", Code: "KEY_REVOKED"}, &commands.EndedKey{Key: "k2", Code: "KEY_REVOKED"}
			v.Queues = []federation.QueueView{{Queue: "reports of attic", Problem: "none was taken"}, {Queue: "logs of attic"}}
		}, []string{"is stopping", "starts no program", "starts nothing now: no disk", "nothing is relayed: restored", "refuses the key", "signs with the key k2",
			"takes less than", "sends more than", "keeps no more messages", "no more of its messages", "reports of attic: none"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := base
			tt.change(&v)

			reasons := v.Keeps()

			require.Len(t, reasons, len(tt.says), "%v", reasons)
			for i, want := range tt.says {
				require.Contains(t, reasons[i].Text, want)
			}
		})
	}
}

// A clock that differs has one remedy, which is said once.
func TestTheRemedyForAClockIsSaidOnce(t *testing.T) {
	t.Parallel()
	ahead := &federation.RefusedBeat{Code: signing.TimeFuture, Why: "issued 1h0m0s in this host's future" + signing.CompareClocks}
	for name, change := range map[string]func(s *federation.Standing){
		"heartbeats": func(s *federation.Standing) { s.BeatRefused = ahead },
		"messages":   func(s *federation.Standing) { s.Ahead = ahead },
	} {
		v := federation.Standing{Connection: store.Connection{State: store.Active}, Linked: true}
		change(&v)
		list := v.Heartbeats()
		require.Len(t, list, 1, name)
		require.Equal(t, 1, strings.Count(list[0].Text+"; "+list[0].Fix, "compare the clocks"), name)
		require.Contains(t, list[0].Text, "(TIME_FUTURE): issued 1h0m0s in this host's future")
	}
}

// What keeps a spoke from taking work is told of each agent that waits for it, accepted or not.
func TestWhatKeepsASpokeKeepsItsAgents(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ended := &commands.EndedKey{Key: "k1", Code: signing.KeyRevoked}
	declines := func(code string) func(v *hub.SpokeView) {
		return func(v *hub.SpokeView) {
			v.Declines = []commands.Decline{{Code: code, What: string(commands.SpawnKind)}}
		}
	}
	for cause, changes := range map[commands.Cause][]func(v *hub.SpokeView){
		commands.CauseConnection: {func(v *hub.SpokeView) { v.State, v.Linked = store.Suspended, false }, func(v *hub.SpokeView) { v.State, v.Linked = store.Revoked, false },
			func(v *hub.SpokeView) { v.Says.State = commands.ConnSuspended }},
		commands.CauseLink: {func(v *hub.SpokeView) { v.Linked = false }, func(v *hub.SpokeView) { v.LastSeen, v.Liveness = nil, hub.NeverSeen }, func(v *hub.SpokeView) { v.Liveness = hub.Dead }},
		commands.CauseClock: {func(v *hub.SpokeView) { v.BeatRefused = &federation.RefusedBeat{Code: signing.TimeFuture} }, func(v *hub.SpokeView) { v.Ahead = &federation.RefusedBeat{Code: signing.TimeFuture} },
			func(v *hub.SpokeView) { v.ClockOffset = "-5m0s" }},
		commands.CauseGrant:  {declines(commands.DeclinesExpired), declines(commands.DeclinesKind)},
		commands.CausePolicy: {declines(commands.DeclinesPolicy)},
		commands.CauseLane:   {declines(commands.DeclinesLane)},
		commands.CauseFreeze: {func(v *hub.SpokeView) { v.Frozen = &commands.Freeze{Frozen: true} }, func(v *hub.SpokeView) { v.Frozen, v.FreezeUnheard = &commands.Freeze{Frozen: true}, true },
			func(v *hub.SpokeView) { v.Says.Freeze = &commands.Freeze{Frozen: true} }},
		commands.CauseStopping:  {func(v *hub.SpokeView) { v.Stopping = true }},
		commands.CauseIsolation: {func(v *hub.SpokeView) { v.Isolation = commands.IsolationUnmet }},
		commands.CauseHost:      {func(v *hub.SpokeView) { v.StartsNone = "no disk" }},
		commands.CauseHistories: {func(v *hub.SpokeView) { v.Differs = "restored" }},
		commands.CauseKey: {func(v *hub.SpokeView) { v.Says.Refuses = ended }, func(v *hub.SpokeView) { v.Refuses = ended }, func(v *hub.SpokeView) { v.KeyLost = true },
			func(v *hub.SpokeView) { v.BeatRefused = &federation.RefusedBeat{Code: signing.KeyUnknown} }},
		commands.CauseRate:  {func(v *hub.SpokeView) { v.Limited = true }, func(v *hub.SpokeView) { v.Says.Limited = true }},
		commands.CauseInbox: {func(v *hub.SpokeView) { v.Full = true }, func(v *hub.SpokeView) { v.Says.Full = true }},
		commands.CauseQueue: {func(v *hub.SpokeView) {
			v.Queues = []federation.QueueView{{Queue: "reports of attic", Problem: "none was taken"}}
		},
			func(v *hub.SpokeView) { v.BeatRefused = &federation.RefusedBeat{Code: commands.Validation} }},
		commands.CauseSlots: {func(v *hub.SpokeView) { v.Running = 4 }},
	} {
		is := func(r commands.WhyReason) bool { return r.Code == cause }
		for i, change := range changes {
			at := linked(change)
			require.True(t, slices.ContainsFunc(at.Keeps(), is), "%s %d", cause, i)
			for _, accepted := range []*time.Time{nil, &now} {
				list := hub.Why(hub.AgentView{Mirror: store.Mirror{Task: "7", Spoke: "attic", State: commands.Queued, AcceptedAt: accepted}}, at)

				n := len(slices.DeleteFunc(slices.Clone(list), func(r commands.WhyReason) bool { return !is(r) }))
				require.Equal(t, 1, n, "%s %d, accepted %v: %v", cause, i, accepted, list)
			}
		}
	}
}
