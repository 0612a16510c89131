package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
)

// An operator sees which spokes take work, and why one does not.
func TestSpokesByHand(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	withCluster(t, m.Dir+"/attic")
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["commands"]+"isolation: none\nallow_root_agents: true\n", "--heartbeat", "1s", "--slots", "2"))
	h := hand{t: t, dir: m.Hub.Dir}
	watching := h.begin("spokes", "-w")
	shown := watching.lines()

	require.Regexp(t, `^NAME +STATE +SLOTS +RUNNING +QUEUED +SEEN +VERDICT$`, shown())
	require.Regexp(t, `^attic +active +2 +0 +0 +alive \S+ +takes work$`, shown())
	require.Regexp(t, `(?m)^verdict +takes work$`, h.do("spokes", "show", "attic"))
	require.Regexp(t, `^attic takes work; nothing keeps it from that \(0 of 2 slots in use, heard .+\)\n$`, h.do("why", "attic"))
	requireAligned(t, strings.SplitAfter(h.do("spokes", "-o", "wide"), "\nevery")[0])
	require.Equal(t, "attic\n", h.do("spokes", "-o", "name"))
	h.refused(exitNotFound, "no agent, no spoke and no task is named nowhere", "why", "nowhere")
	h.refused(exitNotFound, `no spoke "nowhere"`, "spokes", "show", "nowhere")
	h.refused(exitMisuse, "why names nothing", "why")

	h.ends(h.spawn("--spoke", "attic", "--", "rm", "-rf", "/"))
	require.Regexp(t, `(?m)^  its policy has refused lately: .*rm.* \(POLICY, .+\)$`, h.do("why", "attic"))
	namesakes(t, h)
	h.do("connections", "suspend", "attic", "--reason", "holiday")
	for row := ""; !strings.Contains(row, "is suspended by"); row = shown() {
	}
	require.Regexp(t, `(?m)^  is suspended by uid:\d+: holiday \(since [-0-9: ]+\)\n      spawnmesh --data-dir \S+ connections resume attic$`, h.do("why", "--spoke", "attic"))
	var v spokeWhy
	h.read(&v, 0, "why", "--spoke", "attic")
	require.False(t, v.TakesWork)
	require.Equal(t, "connection", v.Reasons[0].Stage)
	require.Equal(t, commands.Code("POLICY"), v.Refusals[0].Code)
	h.do("connections", "revoke", "attic", "--reason", "sold", "--yes")
	require.Regexp(t, `^1 ended; see: spawnmesh --data-dir \S+ spokes --all\n$`, h.do("spokes"))
	require.Contains(t, h.do("spokes", "--all"), "is revoked by")
	spoke := hand{t: t, dir: m.Spokes["attic"].Dir}
	require.Equal(t, "[]\n", spoke.do("spokes", "-o", "json"), "hubs are none")
	spoke.refused(exitNotFound, "lab is a hub that this instance obeys", "spokes", "show", "lab")
}

// namesakes makes what has the name of the spoke, and a task of the backlog.
// One agent at a time leaves a slot free, so the spoke takes work all the while.
func namesakes(t *testing.T, h hand) {
	id := h.spawn("--spoke", "attic", "--title", "attic", "--", "false")
	h.refused(exitMisuse, "attic names a spoke and the agent "+commands.ShortID(id), "why", "attic")
	require.Contains(t, h.do("why", "--spoke", "attic"), "attic takes work")
	require.Contains(t, h.do("why", commands.ShortID(id)), "it ")
	h.ends(id)
	h.ends(h.spawn("--spoke", "attic", "--title", "attic", "--", "false"))
	h.refused(exitMisuse, "(failed on attic); and a spoke", "why", "attic")
	h.do("backlog", "create", "--id", "A1", "--title", "schema")
	require.Contains(t, h.do("why", "A1"), "A1 is ready and nobody asks for it")
}

// Every reason that keeps a spoke from work is told, and nothing that is old.
func TestWhatKeepsASpokeFromWork(t *testing.T) {
	t.Parallel()
	seen := time.Now().Add(-4 * time.Minute)
	base := connectionView{SpokeView: hub.SpokeView{Connection: store.Connection{ID: "7", Name: "attic", State: store.Active, Authority: store.Commands, Since: seen, By: "uid:0", Reason: "sold"},
		Linked: true, LinkedSince: &seen, Liveness: "alive", LastSeen: &seen, Slots: 4, Says: commands.ConnectionView{State: "active"}}}
	tests := map[string]struct {
		change func(v *connectionView)
		says   []string
	}{
		"nothing":         {func(*connectionView) {}, nil},
		"late is no fact": {func(v *connectionView) { v.Liveness, v.Running = "late", 4 }, nil},
		"its end":         {func(v *connectionView) { v.State, v.Stopping, v.Linked = store.Revoked, true, false }, []string{"is revoked by uid:0: sold"}},
		"a suspension":    {func(v *connectionView) { v.State, v.Linked = store.Suspended, false }, []string{"is suspended by uid:0: sold"}},
		"its own":         {func(v *connectionView) { v.Says = commands.ConnectionView{State: "suspended", Reason: "lunch"} }, []string{"is suspended by attic: lunch"}},
		"no link":         {func(v *connectionView) { v.Linked, v.Running, v.StartsNone = false, 4, "x" }, []string{"is not linked"}},
		"never a link":    {func(v *connectionView) { v.Linked, v.LastSeen = false, nil }, []string{"is not linked, and was not heard of since this hub started"}},
		"no word yet":     {func(v *connectionView) { v.LastSeen, v.Liveness = nil, "never seen" }, []string{"is linked, and has said nothing yet"}},
		"silence":         {func(v *connectionView) { v.Liveness = "dead" }, []string{"is linked, and nothing is heard of it"}},
		"its slots":       {func(v *connectionView) { v.Running = 4 }, []string{"has all of its 4 slots in use; what is ordered waits there"}},
		"several": {func(v *connectionView) {
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

			reasons := (&app{}).whatKeeps(v)

			require.Len(t, reasons, len(tt.says), "%v", reasons)
			for i, want := range tt.says {
				require.Contains(t, reasons[i].What, want)
			}
		})
	}
	v := base
	v.State = store.Suspended
	require.Regexp(t, `^is suspended by uid:0: sold \(4m\)$`, (&app{output: "table"}).verdictOn(v))
	require.Regexp(t, `^is suspended by uid:0: sold since \d{4}-`, (&app{output: "wide"}).verdictOn(v))
}
