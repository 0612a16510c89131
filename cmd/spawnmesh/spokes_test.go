package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
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
	require.Regexp(t, `(?m)^version +`+regexp.QuoteMeta(strings.TrimSpace(h.do("version", "-o", "name")))+`$`, h.do("spokes", "show", "attic"))
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
	require.Equal(t, commands.CauseConnection, v.Reasons[0].Code)
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

// What keeps a spoke is shown with since when.
func TestAVerdictSaysSinceWhen(t *testing.T) {
	t.Parallel()
	since := time.Now().Add(-4 * time.Minute)
	v := connectionView{Reasons: []commands.WhyReason{{Code: commands.CauseConnection, Text: "is suspended by uid:0: sold", Since: &since}}}
	require.Equal(t, "is suspended by uid:0: sold (4m)", (&app{output: "table"}).verdictOn(v))
	require.Regexp(t, `^is suspended by uid:0: sold since \d{4}-`, (&app{output: "wide"}).verdictOn(v))
	require.Equal(t, "takes work", (&app{}).verdictOn(connectionView{}))
}
