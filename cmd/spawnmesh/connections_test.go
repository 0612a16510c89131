package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/store"
)

// Either side cuts a connection off, brings it back, and ends it for good; work
// that was ordered meanwhile is done once, or never.
func TestConnectionsByHand(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	showConnections(t, h, s)
	suspendAndResume(t, h, h, "attic")
	suspendAndResume(t, h, s, "lab")
	suspendedTwice(t, h, s)
	revokeBothSides(t, h, s)

	// The same host joins again, as a new connection of the same name.
	require.NoError(t, m.Spokes["attic"].Stop(t.Context()))
	s.refused(exitConflict, "has not joined", "spoke", "run")
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s"))

	require.Equal(t, commands.Completed, h.ends(h.spawn("--spoke", "attic", "--", "true")).State)
	var views []hub.SpokeView
	h.read(&views, 0, "connections", "list")
	require.Len(t, views, 1)
	h.read(&views, 0, "connections", "list", "--all")
	require.Len(t, views, 2)
	require.Equal(t, hub.Ended, views[1].Liveness)
}

func showConnections(t *testing.T, h, s hand) {
	require.Regexp(t, `(?m)^attic +active +up \S+ +alive \S+ +4 +0 +0$`, h.do("connections", "list"))
	require.Regexp(t, `(?m)^lab +active +up \S+ +- +- +0 +-$`, s.do("connections", "list"))
	requireAligned(t, h.do("connections", "list", "-o", "wide"))
	require.Equal(t, "attic\n", h.do("conn", "list", "-o", "name"))
	require.Regexp(t, `(?m)^authority +this instance commands attic$`, h.do("connections", "show", "attic"))
	require.Regexp(t, `(?m)^authority +this instance obeys lab$`, s.do("connections", "show", "lab"))
	var v hub.SpokeView
	s.read(&v, 0, "connections", "show", "lab")
	require.True(t, v.Linked)
	require.Regexp(t, `(?m)^logs `, h.do("retention"))
	require.NotRegexp(t, `(?m)^logs `, s.do("retention"), "output is kept by hubs")
	for side, name := range map[*hand]string{&h: "attic", &s: "lab"} {
		require.Regexp(t, `(?m)^compared +messages to `+name+` up to \d+, from `+name+` up to \d+$`, side.do("connections", "resync", name))
		var settled hub.Settlement
		side.read(&settled, 0, "connections", "resync", name)
		require.Equal(t, name, settled.Name)
		require.Zero(t, settled.Settled)
	}
	awaitLinked(t, h, true)
	h.refused(exitNotFound, "see: spawnmesh --data-dir "+h.dir+" connections list", "connections", "resync", "nowhere")
	h.refused(exitNotFound, "see: spawnmesh --data-dir "+h.dir+" connections list", "connections", "show", "nowhere")
	s.refused(exitNotFound, "see: spawnmesh --data-dir "+s.dir+" connections list", "connections", "suspend", "nowhere", "--reason", "x")
}

// suspendAndResume cuts the connection off from one side, where it has this name.
// What runs goes on and its result waits; what is ordered meanwhile waits too,
// and expires where it must not wait that long.
func suspendAndResume(t *testing.T, h, side hand, name string) {
	g, tr := newGate(t), newTrace(t)
	running := h.spawn("--spoke", "attic", "--", "sh", "-c", g.wait())
	h.runs(running)
	side.refused(exitMisuse, "--reason", "connections", "suspend", name)

	require.Equal(t, name+" is suspended\n", side.do("connections", "suspend", name, "--reason", "holiday"))
	require.Regexp(t, `^`+name+` is suspended already, by uid:\d+ since \S+ \S+: holiday; the reason stays, and nothing was changed\n$`, side.do("connections", "suspend", name, "--reason", "two"))

	require.Regexp(t, `(?m)^`+name+`: suspended by uid:\d+: holiday$`, side.do("connections", "list"))
	if side.dir == h.dir {
		awaitLinked(t, h, false)
		h.refused(exitMisuse, "the only spoke, attic, is suspended", "spawn", "--", "true")
		require.Regexp(t, `(?m)^spoke attic +is suspended by uid:\d+: holiday \(\S+\); see: spawnmesh --data-dir \S+ connections show attic$`, h.do("doctor"))
	} else {
		require.Regexp(t, `(?m)^link to lab +suspended by uid:\d+: holiday$`, side.do("doctor"))
		awaitLinked(t, h, true)
	}
	id := newID()
	h.spawn(append([]string{"--spoke", "attic", "--id", id, "--"}, tr.agent(id, "0")...)...)
	never := h.spawn("--spoke", "attic", "--expires-in", "1s", "--", "false")
	if side.dir == h.dir {
		require.Contains(t, h.run("", "status", id).err, "it waits for the connection with attic, which is suspended")
		saysNotNow(t, h)
		require.Regexp(t, `^note: it would not run now: the connection with attic is suspended: holiday\n$`, h.run("", "spawn", "--spoke", "attic", "--expires-in", "1s", "--", "false").err)
	}
	g.open(t)
	require.Contains(t, side.do("connections", "show", name), "holiday")
	h.until(never, func(v hub.AgentView) bool { return time.Now().After(v.ExpiresAt) })
	h.until(id, func(v hub.AgentView) bool { return v.AcceptedAt == nil })
	require.Equal(t, name+" is active\n", side.do("connections", "resume", name))

	awaitLinked(t, h, true)
	require.Equal(t, commands.Completed, h.ends(id).State)
	require.Equal(t, commands.Completed, h.ends(running).State)
	require.Equal(t, commands.CommandExpired, h.ends(never).Reason)
	starts, ends := tr.counts(t)
	require.Equal(t, 1, starts[id])
	require.Equal(t, 1, ends[id])
}

// saysNotNow orders what cannot run now, and is told so by each way of ordering. When the link went down is shown, too.
func saysNotNow(t *testing.T, h hand) {
	const note = "note: it would not run now: the connection with attic is suspended: holiday\n"
	order := []string{"--spoke", "attic", "--expires-in", "1s"}
	for _, how := range [][]string{{"--wait"}, {"--follow"}, {"--wait", "-o", "json"}, {"--wait", "-o", "name"}} {
		s := h.run("", slices.Concat([]string{"spawn"}, how, order, []string{"--wait-timeout", "1s", "--", "false"})...)
		require.Equal(t, 1, strings.Count(s.err, note), "%v: %s", how, s.err)
	}
	jobs := put(t, "two.yaml", "jobs: [{argv: [false], spoke: attic, expires_in: 1s}, {argv: [false], spoke: attic, expires_in: 1s}]\n", 0o600)
	for _, how := range [][]string{nil, {"--wait", "--wait-timeout", "1s"}} {
		s := h.run("", slices.Concat([]string{"spawn", "-f", jobs}, how)...)
		require.Equal(t, 2, strings.Count(s.err, ": it would not run now: the connection with attic is suspended: holiday\n"), "%v: %s", how, s.err)
		require.Contains(t, s.err, "note: "+jobs+":1:")
	}
	var v connectionView
	h.read(&v, 0, "connections", "show", "attic")
	require.NotNil(t, v.DownSince)
	require.Regexp(t, `(?m)^attic .* down (now|\d+[sm]) `, h.do("connections", "list"))
	require.Regexp(t, `(?m)^link +down (now|\d+[sm])`, h.do("connections", "show", "attic"))
}

// suspendedTwice suspends the connection on both sides, and the hub learns of what its
// resume does not end.
func suspendedTwice(t *testing.T, h, s hand) {
	require.Empty(t, s.run("", "connections", "suspend", "lab", "--reason", "lunch").err, "it is linked")
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the hub to hear of it", func() (bool, error) {
		var v hub.SpokeView
		h.read(&v, 0, "connections", "show", "attic")
		return v.Says.State == string(store.Suspended), nil
	}))
	require.Empty(t, h.run("", "connections", "suspend", "attic", "--reason", "holiday").err)
	awaitLinked(t, h, false)

	require.Contains(t, h.run("", "connections", "resume", "attic").err, "attic has suspended the connection, too: lunch; nothing goes over it until it is resumed there, with: spawnmesh connections resume "+connectionID(h, "attic"))
	awaitLinked(t, h, true)
	require.Empty(t, s.run("", "connections", "resume", "lab").err)
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the hub to hear of it", func() (bool, error) {
		var v hub.SpokeView
		h.read(&v, 0, "connections", "show", "attic")
		return v.Says.State == string(store.Active), nil
	}))
}

// connectionID is how both sides may name a connection.
func connectionID(side hand, name string) string {
	var v hub.SpokeView
	side.read(&v, 0, "connections", "show", name)
	return v.ID
}

func awaitLinked(t *testing.T, h hand, want bool) {
	t.Helper()
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the link", func() (bool, error) {
		var v hub.SpokeView
		h.read(&v, 0, "connections", "show", "attic")
		return v.Linked == want, nil
	}))
}

// revokeBothSides ends the connection for good: first the hub, then the spoke,
// which ends what it runs for the hub.
func revokeBothSides(t *testing.T, h, s hand) {
	s.refused(exitMisuse, "add --yes", "connections", "revoke", "lab", "--reason", "x")
	g := newGate(t)
	h.runs(h.spawn("--spoke", "attic", "--", "sh", "-c", g.wait()))
	require.NotZero(t, processes(t, "sh", "-c", g.wait())) // a shell that forks is two for a moment

	require.Equal(t, "attic is revoked\n", h.do("connections", "revoke", "attic", "--reason", "sold", "--yes"))

	h.refused(exitUntrusted, "the connection with attic is revoked\n           what to do about it: spawnmesh --data-dir "+h.dir+" why attic\n", "spawn", "--spoke", "attic", "--", "true")
	h.refused(exitConflict, "cannot become active\n           it never comes back; to let its host join anew: spawnmesh --data-dir "+h.dir+" invite --name attic\n", "connections", "resume", "attic")
	require.Regexp(t, `^1 ended; see: spawnmesh --data-dir \S+ connections list --all\n$`, h.do("connections", "list"))
	require.Regexp(t, `(?m)^attic +revoked +- +ended \S+ +- +- +-$`, h.do("connections", "list", "--all"))
	h.refused(exitNoSpoke, "invite one: spawnmesh --data-dir "+h.dir+" invite --name NAME", "spawn", "--any", "--", "true")
	h.refused(exitMisuse, "this hub has no spoke that could take the order", "spawn", "--", "true")
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the spoke to learn of it", func() (bool, error) {
		var v hub.SpokeView // who has learned of it from the hub has nobody to tell, and does not run for that
		s.read(&v, 0, "connections", "show", "lab")
		return v.State == store.Revoked && v.By == "peer", nil
	}))
	require.Equal(t, "lab is revoked\n", s.do("connections", "revoke", "lab", "--reason", "sold", "--yes"))
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for its agents to end", func() (bool, error) {
		return processes(t, "sh", "-c", g.wait()) == 0, nil
	}))
	s.refused(exitConflict, "it never comes back; join anew, with a token that its operator makes: spawnmesh --data-dir "+s.dir+" spoke join ", "connections", "resume", "lab")
}
