package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/store"
)

// asking starts an agent that asks a question of each text at once, and returns their ids by text once the hub knows of all.
func (h hand) asking(texts ...string) (ids map[string]string) {
	h.t.Helper()
	script := ""
	for _, text := range texts {
		script += program + " worker ask --deadline 1h '" + text + "' & "
	}
	h.spawn("--spoke", "attic", "--", "sh", "-c", script+"wait")
	require.NoError(h.t, fleet.Poll(h.t.Context(), time.Minute, "waiting for the questions", func() (bool, error) {
		var list []api.Question
		h.read(&list, 0, "inbox")
		ids = map[string]string{}
		for _, q := range list {
			ids[q.Text] = q.ID
		}
		return len(list) == len(texts), nil
	}))
	return ids
}

// An answer that the spoke refuses, and one that somebody at the spoke was faster with, are shown for what they are; and no more
// questions are listed than were asked for.
func TestAnswersThatDoNotCount(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--drain", "0s")
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	ids := h.asking("first?", "second?", "third?")
	for limit, more := range map[string]bool{"1": true, "3": false} {
		got := h.run("", "inbox", "--limit", limit)
		require.Zero(t, got.code, got.err)
		require.Equal(t, map[bool]int{true: 2, false: 4}[more], strings.Count(got.out, "\n"), got.out)
		require.Equal(t, more, strings.Contains(got.err, "there are more questions than these"), got.err)
	}
	h.refused(exitMisuse, "--limit is 1 or more", "inbox", "--limit", "0")
	require.NotContains(t, h.do("inbox"), "SENT")

	s.do("connections", "grant", "lab", "--kinds", "agent.spawn,agent.status,agent.kill")
	const why = "the grant of this connection does not allow agent.answer"
	h.refused(exitConflict, "attic has refused the answer: "+why, "answer", ids["first?"], "yes")
	shown := h.do("inbox", "show", ids["first?"])
	require.Regexp(t, `(?m)^state +open$`, shown)
	require.Regexp(t, `(?m)^reason +`+why+`$`, shown)
	require.NotRegexp(t, `(?m)^sent `, shown)
	s.do("connections", "grant", "lab", "--kinds", strings.Join(store.FullGrant().Kinds, ","))
	require.Contains(t, h.do("answer", ids["first?"], "yes"), "is answered: yes")

	require.NoError(t, m.Spokes["attic"].Stop(t.Context()))
	require.Zero(t, h.run(`{"answer": "yes"}`, "api", "POST", "/questions/"+ids["second?"]+"/answer", "-f", "-").code)
	require.Regexp(t, `(?m)^sent +yes by uid:\d+; attic has not confirmed it yet$`, h.do("inbox", "show", ids["second?"]))
	require.Regexp(t, `(?m)^ID .* DEADLINE +SENT +QUESTION\n(.*\n)*\w.* in \S+ +yes by uid:\d+ +second\?$`, h.do("inbox"))
	require.Contains(t, s.do("inbox"), "second?", "while no spoke runs")
	require.Contains(t, s.do("answer", ids["second?"], "no"), "is answered: no")
	require.NoError(t, m.Spokes["attic"].Start(t.Context()))
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for what became of it", func() (bool, error) {
		shown = h.do("inbox", "show", ids["second?"])
		return strings.Contains(shown, "differs"), nil
	}))
	require.Regexp(t, `(?m)^answer +no$`, shown)
	require.Regexp(t, `(?m)^differs +this hub sent "yes" by uid:\d+; its spoke says "no" by uid:\d+$`, shown)
}

// What cannot be granted is refused with what can be.
func TestGrantsThatThereAreNot(t *testing.T) {
	t.Parallel()
	s := hand{t: t, dir: startMesh(t).Spokes["attic"].Dir}
	for words, flags := range map[string][]string{
		`no kind of order is called "agent.fly"`:                            {"--kinds", "agent.fly"},
		"one or more of: " + strings.Join(store.FullGrant().Kinds, ", "):    {"--kinds", "agent.fly"},
		"one or more of: " + strings.Join(store.FullGrant().Runtimes, ", "): {"--runtimes", "docker"},
		"weight 0 is outside 1..1000":                                       {"--weight", "0"},
		`--expires: "soon" is neither a time`:                               {"--expires", "soon"},
		"nothing is to be changed":                                          {},
	} {
		s.refused(exitMisuse, words, append([]string{"connections", "grant", "lab"}, flags...)...)
	}
}

// What a spoke said of its work is told as old where its heartbeats do not come.
func TestWhatASpokeSaidOfItself(t *testing.T) {
	t.Parallel()
	a := &app{getenv: func(string) string { return "" }}
	seen, due := time.Now().Add(-4*time.Minute), time.Now().Add(-3*time.Minute)
	v := connectionView{SpokeView: hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: "attic", State: store.Active, Authority: store.Commands}, LastSeen: &seen}, Liveness: hub.Alive, NextExpected: &due}}
	v.Running, v.Queued, v.Slots, v.KillLevel, v.Isolation = 1, 2, 4, "cgroup", commands.IsolationNone
	require.Contains(t, a.heardOf(v), []string{"agents", "1 running, 2 queued, 4 slots"})
	v.Liveness = hub.Dead
	require.Contains(t, a.heardOf(v), []string{"agents", "1 running, 2 queued, 4 slots, as of its last heartbeat, 4m ago"})
	require.Contains(t, a.heardOf(v), []string{"heartbeat", "was due 3m ago"})
	v.LastSeen, v.NextExpected = nil, nil
	require.Contains(t, a.heardOf(v), []string{"agents", "1 running, 2 queued, 4 slots"}, "nobody has heard of it")
	v.State = store.Revoked
	for _, line := range a.heardOf(v) {
		require.NotEqual(t, "agents", line[0], "its connection is over")
	}
}
