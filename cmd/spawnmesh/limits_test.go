package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func TestLimitsBesideAHub(t *testing.T) {
	t.Parallel()
	boardsOf(t, map[string]func(b board){
		"a spent budget":   spentBudget,
		"kinds of budgets": kindsOfBudgets,
		"an account":       accountWithoutBudget,
		"a quota":          quotaAtWork,
		"lanes":            lanesAtWork,
		"weights":          laneWeights,
		"a freeze":         freezeAtWork,
		"misuse of limits": misuseOfLimits,
	})
}

// A spent budget keeps what does not fit waiting, says so, and a grant wakes it.
func spentBudget(b board) {
	require.Equal(b.t, "budget daily: 1 of 1 usd left\n", b.do("budget", "create", "daily", "--dimension", "usd", "--hard", "1", "--soft", "0.5"))
	for _, key := range []string{"one", "two", "three"} {
		b.create(key, "--estimate", "usd=0.6")
	}
	first := b.claim("w")
	b.nothing()
	w := b.why("two")
	require.False(b.t, w.Claimable)
	require.Equal(b.t, []string{"budget"}, stages(w))
	text := b.do("backlog", "why", "two")
	require.Contains(b.t, text, "two cannot be claimed:\n  budget daily has 0.4 left and the task may take 0.6\n      spawnmesh --data-dir "+b.dir+" budget show daily --workspace "+b.workspace+"\n")
	require.Contains(b.t, text, "who claimed lately and could have it: ")
	b.refused(exitRefused, commands.OverBudget, "budget daily has 0.4 left", "backlog", "claim", "two")
	require.Regexp(b.t, `(?m)^daily +workspace +0\.4 +0 +0\.6 +1 +usd$`, b.do("budget", "list"))

	b.do("backlog", "complete", "--fence", first.Fence, "--usage", "usd=0.25")
	var g backlog.Budget
	b.read(&g, "budget", "show", "daily")
	require.Equal(b.t, []backlog.Amount{backlog.Unit / 4, 0, 3 * backlog.Unit / 4}, []backlog.Amount{g.Used, g.Reserved, g.Left})
	second := b.claim("w")
	require.Equal(b.t, "two", second.Key)
	b.nothing()
	b.refused(exitMisuse, commands.Validation, "needs a reason", "budget", "grant", "daily", "1")
	require.Equal(b.t, "budget daily: 1.15 of 2 usd left\n", b.do("budget", "grant", "daily", "1", "--reason", "more to do"))
	require.Equal(b.t, "three", b.claim("w").Key)
}

func kindsOfBudgets(b board) {
	require.Regexp(b.t, `^budget rolling: 5 of 5 tokens left, over the last 7d\n$`, b.do("budget", "create", "rolling", "--dimension", "tokens", "--hard", "5", "--rolling", "7d", "--scope", "lane:slow"))
	require.Regexp(b.t, `^budget nightly: 20 of 20 spawns left, until 2090-01-01 06:00:00 and then every 1d\n$`,
		b.do("budget", "create", "nightly", "--dimension", "spawns", "--hard", "20", "--resets-at", "2090-01-01 06:00", "--every", "1d"))
	require.Contains(b.t, b.do("budget", "create", "small", "--scope", "lane:a", "--dimension", "spawns", "--hard", "0", "--on-hard", "downgrade", "--downgrade-to", "b"), "budget small")
	require.Regexp(b.t, `(?m)^on hard +downgrade to b$`, b.do("budget", "show", "small"))
	require.Regexp(b.t, `(?m)^counts +the last 7d$`, b.do("budget", "show", "rolling"))
	for _, text := range []string{b.do("budget", "list"), b.do("budget", "list", "-o", "wide")} {
		requireAligned(b.t, text)
	}
	require.Regexp(b.t, `(?m)^rolling +lane:slow +5 +0 +0 +5 +tokens +queue +over the last 7d$`, b.do("budget", "list", "-o", "wide"))
	require.Equal(b.t, "nightly\nrolling\nsmall\n", b.do("budget", "list", "-o", "name"))
	b.refused(exitConflict, commands.Conflict, "spawnmesh --data-dir "+b.dir+" budget remove rolling", "budget", "create", "rolling", "--dimension", "usd", "--hard", "5")
	require.Contains(b.t, b.do("budget", "create", "rolling", "--dimension", "tokens", "--hard", "9", "--rolling", "1d", "--scope", "lane:slow"), "9 of 9 tokens left, over the last 1d")

	b.refused(exitMisuse, commands.Validation, "needs a reason", "budget", "reset", "rolling", "--yes")
	b.refused(exitMisuse, commands.Validation, "budget rolling was not reset: what it has spent would be forgotten", "budget", "reset", "rolling", "--reason", "x")
	require.Contains(b.t, b.do("budget", "reset", "rolling", "--reason", "x", "--yes"), "9 of 9 tokens left")
	b.refused(exitMisuse, commands.Validation, "add --yes if you mean it", "budget", "remove", "rolling", "--reason", "x")
	require.Equal(b.t, "budget rolling is removed\n", b.do("budget", "remove", "rolling", "--reason", "x", "--yes"))
	b.refused(exitNotFound, commands.NotFound, "no budget", "budget", "remove", "rolling", "--reason", "x", "--yes")
	b.refused(exitNotFound, commands.NotFound, "no budget", "budget", "show", "rolling")
	require.Contains(b.t, b.hand.do("audit", "list", "--object", "rolling"), "budget.removed")
}

func accountWithoutBudget(b board) {
	b.create("A1", "--account", "team-a")
	b.nothing()
	require.Contains(b.t, b.do("backlog", "why", "A1"), "account team-a has no budget, so it may spend nothing")
	b.do("budget", "create", "team-a", "--scope", "account:team-a", "--dimension", "usd", "--hard", "5")
	require.Equal(b.t, "A1", b.claim("w").Key)
}

func quotaAtWork(b board) {
	none := "no quotas yet; create one: spawnmesh --data-dir " + b.dir + " quota create NAME --concurrent 4\n"
	require.Equal(b.t, said{"", none, 0}, b.run("quota", "list"))
	require.Equal(b.t, "quota one: 1 at a time, 100 in 1h\n", b.do("quota", "create", "one", "--concurrent", "1", "--per-window", "100", "--window", "1h"))
	b.create("A1")
	b.create("A2")
	c := b.claim("w")
	b.nothing()
	require.Equal(b.t, []string{"quota"}, stages(b.why("A2")))
	require.Regexp(b.t, `(?m)^one +workspace +1 at a time, 100 in 1h +1 +1$`, b.do("quota", "list"))
	require.Regexp(b.t, `(?m)^active +1$`, b.do("quota", "show", "one"))
	b.do("backlog", "complete", "--fence", c.Fence)
	require.Equal(b.t, "A2", b.claim("w").Key)
	require.Equal(b.t, "quota one is removed\n", b.do("quota", "remove", "one", "--reason", "x", "--yes"))
	b.refused(exitNotFound, commands.NotFound, "no quota", "quota", "show", "one")
}

// Nothing is claimed from a paused lane; who waits for it is woken by resume.
func lanesAtWork(b board) {
	b.create("gate", "--not-before", "2090-01-01", "--lane", "slow")
	b.create("A1", "--lane", "slow")
	b.refused(exitMisuse, commands.Validation, "needs a reason", "lane", "pause", "slow")
	require.Equal(b.t, "lane slow is paused, weight 1; 2 queued, 0 claimed\n", b.do("lane", "pause", "slow", "--reason", "the build is broken"))
	b.nothing()
	require.Equal(b.t, []string{"lane"}, stages(b.why("A1")))
	require.Contains(b.t, b.do("backlog", "why", "A1"), ": the build is broken (since ")
	b.refused(exitConflict, commands.Conflict, "lane slow is paused", "backlog", "claim", "A1")
	job := b.begin(b.in([]string{"backlog", "claim", "--owner", "patient", "--lane", "slow", "--wait", "10m", "--json"})...)
	b.waits()
	began := time.Now()
	require.Regexp(b.t, `^lane slow is active, weight 1; [12] queued`, b.do("lane", "resume", "slow"), "it may be claimed by now")
	var c claim
	require.NoError(b.t, json.Unmarshal([]byte(job.end().out), &c))
	require.Equal(b.t, "A1", c.Key)
	require.Less(b.t, time.Since(began), 20*time.Second)

	b.create("A2", "--lane", "slow")
	require.Contains(b.t, b.do("lane", "drain", "slow", "--reason", "moving house"), "lane slow is draining")
	b.refused(exitRefused, commands.LaneClosed, "takes no new tasks", "backlog", "create", "--title", "x", "--lane", "slow")
	require.Equal(b.t, "A2", b.claim("w").Key)
	require.Contains(b.t, b.do("lane", "disable", "slow", "--reason", "gone"), "lane slow is disabled")
	require.Regexp(b.t, `(?m)^slow +disabled +1 +1 +2 +gone +uid:\d+ +2`, b.do("lane", "list", "-o", "wide"))
}

func laneWeights(b board) {
	require.Equal(b.t, said{"", "no lanes yet; the first task makes the lane default\n", 0}, b.run("lane", "list"))
	require.Equal(b.t, "lane urgent is active, weight 10; 0 queued, 0 claimed\n", b.do("lane", "weight", "urgent", "10"))
	var l backlog.Lane
	b.read(&l, "lane", "weight", "urgent", "1000")
	require.Equal(b.t, 1000, l.Weight)
	for _, n := range []string{"0", "1001", "x", "1.5"} {
		b.refused(exitMisuse, commands.Validation, "is not a whole number from 1 to 1000", "lane", "weight", "urgent", n)
	}
	b.refused(exitMisuse, commands.Validation, "lower-case letters", "lane", "weight", "Not A Name", "1")
}

func freezeAtWork(b board) {
	b.create("A1")
	require.Equal(b.t, said{"", "nothing is frozen\n", 0}, b.run("freeze", "list"))
	require.Regexp(b.t, `^workspace is frozen: nothing is claimed from it(; agents on spokes go on, and are ordered as before)?\n$`, b.do("freeze", "--scope", "workspace", "--reason", "bad deploy"))
	require.Contains(b.t, b.do("freeze", "--scope", "lane:default", "--reason", "too"), "lane:default is frozen: nothing is claimed from it")
	b.nothing()
	require.Equal(b.t, []string{"freeze", "freeze"}, stages(b.why("A1")))
	require.Contains(b.t, b.do("backlog", "why", "A1"), " --data-dir "+b.dir+" unfreeze --scope lane:default --reason WHY --workspace "+b.workspace+"\n")
	require.Regexp(b.t, `(?m)^workspace +2\S+ \S+ +uid:\d+ +bad deploy$`, b.do("freeze", "list"))
	require.Equal(b.t, "lane:default is no longer frozen\n", b.do("unfreeze", "--scope", "lane:default", "--reason", "x"))
	b.nothing()
	require.Equal(b.t, "workspace is no longer frozen\n", b.do("unfreeze", "--scope", "workspace", "--reason", "rolled back"))
	require.Equal(b.t, "A1", b.claim("w").Key)
	b.refused(exitNotFound, commands.NotFound, "is not frozen", "unfreeze", "--scope", "workspace", "--reason", "x")
}

func misuseOfLimits(b board) {
	tests := map[string]struct {
		says string
		args []string
	}{
		"no dimension":            {"needs --dimension and --hard", []string{"budget", "create", "x", "--hard", "1"}},
		"no limit":                {"needs --dimension and --hard", []string{"budget", "create", "x", "--dimension", "usd"}},
		"a limit below zero":      {"is not a number", []string{"budget", "create", "x", "--dimension", "usd", "--hard", "-1"}},
		"a huge limit":            {"is not a number", []string{"budget", "create", "x", "--dimension", "usd", "--hard", "99999999999999999999"}},
		"soft above hard":         {"the soft limit 2 is outside", []string{"budget", "create", "x", "--dimension", "usd", "--hard", "1", "--soft", "2"}},
		"an unknown scope":        {"is not one of", []string{"budget", "create", "x", "--dimension", "usd", "--hard", "1", "--scope", "planet"}},
		"a scope without a name":  {"needs a target, as in lane:NAME", []string{"budget", "create", "x", "--dimension", "usd", "--hard", "1", "--scope", "lane"}},
		"a workspace with a name": {"takes no target", []string{"budget", "create", "x", "--dimension", "usd", "--hard", "1", "--scope", "workspace:y"}},
		"two kinds of window":     {"a rolling window or resets, not both", []string{"budget", "create", "x", "--dimension", "usd", "--hard", "1", "--rolling", "1d", "--resets-at", "1h"}},
		"a reset at no time":      {"neither a time", []string{"budget", "create", "x", "--dimension", "usd", "--hard", "1", "--resets-at", "soon"}},
		"an odd name":             {"lower-case letters", []string{"budget", "create", "X Y", "--dimension", "usd", "--hard", "1"}},
		"nothing granted":         {"raised by more than 0", []string{"budget", "grant", "x", "0", "--reason", "x"}},
		"no limits at all":        {"how many at once", []string{"quota", "create", "x"}},
		"a window alone":          {"how many at once", []string{"quota", "create", "x", "--window", "1h"}},
		"no window":               {"needs the window's length", []string{"quota", "create", "x", "--per-window", "5"}},
		"a quota below zero":      {"0 to 1000000", []string{"quota", "create", "x", "--concurrent", "-1"}},
		"a freeze of nothing":     {"needs --scope and --reason", []string{"freeze", "--reason", "x"}},
		"a freeze for no reason":  {"needs --scope and --reason", []string{"freeze", "--scope", "workspace"}},
		"a freeze of a planet":    {"is not one of", []string{"freeze", "--scope", "planet", "--reason", "x"}},
		"unfreeze nothing":        {"what is frozen: spawnmesh --data-dir ", []string{"unfreeze", "--reason", "x"}},
	}
	for name, tt := range tests {
		b.t.Run(name, func(t *testing.T) {
			t.Parallel()
			board{hand{t: t, dir: b.dir}, b.workspace}.refused(exitMisuse, commands.Validation, tt.says, tt.args...)
		})
	}
}
