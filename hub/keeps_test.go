package hub_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
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
