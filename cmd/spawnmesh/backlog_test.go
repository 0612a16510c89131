package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func TestBacklogBesideAHub(t *testing.T) {
	t.Parallel()
	boardsOf(t, map[string]func(b board){
		"the session":   theSeedsSession,
		"fences":        staleFences,
		"circles":       circles,
		"odd names":     oddNames,
		"nothing":       nothingToClaim,
		"waiting":       waitForATask,
		"a dead worker": deadWorker,
		"batches":       batches,
		"acts":          operatorsActs,
		"tries again":   triesAgain,
		"lists":         lists,
		"details":       details,
		"an archive":    archives,
		"grants":        grants,
		"unknown tasks": unknownTasks,
	})
}

// TestAClaimThatRanOutIsShown has a hub of its own: who waits for a task in another workspace takes back what has run out in all.
func TestAClaimThatRanOutIsShown(t *testing.T) {
	t.Parallel()
	boardsOf(t, map[string]func(b board){"ran out": saysWhatRanOut})
}

// theSeedsSession is the example of the conventions, flag by flag.
func theSeedsSession(b board) {
	var a1, a2 createdTask
	b.read(&a1, "backlog", "create", "--id", "A1", "--title", "schema", "--priority", "5")
	b.read(&a2, "backlog", "create", "--id", "A2", "--title", "service", "--depends-on", "A1", "--priority", "9")
	require.Equal(b.t, []string{"A1"}, a2.DependsOn)
	require.Equal(b.t, backlog.WaitingDeps, a2.Eligibility)
	require.Equal(b.t, []string{"A2"}, b.show("A1").Blocks)
	require.Regexp(b.t, `(?m)^blocks +A2$`, b.do("backlog", "show", "A1"))

	var c claim
	require.NoError(b.t, json.Unmarshal([]byte(b.do("backlog", "claim", "--owner", "worker-1", "--ttl", "600", "--json")), &c))
	require.Equal(b.t, "A1", c.Key, "A2 is gated on A1 and has the higher priority")
	require.Equal(b.t, "worker-1", c.Owner)
	require.Equal(b.t, backlog.BoardClaimed, c.Status)
	require.Equal(b.t, 1, c.Attempts)
	require.WithinDuration(b.t, c.ClaimedAt.Add(600*time.Second), c.Until, time.Second)
	require.Equal(b.t, a1.ID+"/1/1", c.Fence)
	require.True(b.t, strings.HasPrefix(c.Grant, "cg1."))
	b.nothing()

	require.Equal(b.t, "A1 is completed\n", b.do("backlog", "complete", "--id", "A1"))
	var ready []backlog.Task
	require.NoError(b.t, json.Unmarshal([]byte(b.do("backlog", "list", "--ready-only", "--json")), &ready))
	require.Equal(b.t, []string{"A2"}, keys(ready))
	require.Equal(b.t, backlog.EligibleReady, ready[0].Eligibility)

	require.Equal(b.t, "[]\n", b.do("backlog", "reclaim", "--json"), "nothing is stalled")
	require.Equal(b.t, "A2", b.claim("worker-2").Key)
	var back []backlog.Task
	b.read(&back, "backlog", "reclaim", "--id", "A2")
	require.Equal(b.t, []string{"A2"}, keys(back))
	require.Equal(b.t, backlog.BoardReady, b.show("A2").Status)
	require.Empty(b.t, b.show("A2").Owner)
	var s backlog.Stats
	b.read(&s, "backlog", "stats")
	require.Equal(b.t, map[backlog.BoardStatus]int64{"ready": 1, "claimed": 0, "blocked": 0, "done": 1}, s.Status)
	require.EqualValues(b.t, 1, s.Claimable)
	require.Positive(b.t, s.OldestAge)
}

func staleFences(b board) {
	b.create("A1")
	b.create("A2")
	old := b.claim("first", "--id", "A1")
	require.Equal(b.t, "A1 is ready\n", b.do("backlog", "reclaim", "--id", "A1"))
	now := b.claim("second", "--id", "A1")

	for _, verb := range []string{"complete", "fail", "release", "block", "renew"} {
		b.refused(exitConflict, commands.StaleAttempt, "second holds it with attempt 2", "backlog", verb, "--fence", old.Fence)
	}
	require.Equal(b.t, now.Fence, fmt.Sprintf("%s/2/%d", now.ID, now.Epoch))
	require.Equal(b.t, "second", b.show("A1").Owner, "nothing was changed")

	b.refused(exitMisuse, commands.Validation, "the fence is of task A1, not of A2", "backlog", "complete", "A2", "--fence", now.Fence)
	other := b.show("A2").ID
	_, rest, _ := strings.Cut(now.Fence, "/")
	b.refused(exitConflict, commands.StaleAttempt, "it is queued; nothing was changed", "backlog", "complete", "--fence", other+"/"+rest)
	for _, bad := range []string{"x", now.ID, now.ID + "/0/1", now.ID + "/1/-1", now.Fence + "/1", now.Fence + "' OR 1=1"} {
		b.refused(exitMisuse, commands.Validation, "is not a fence", "backlog", "complete", "--fence", bad)
	}
	require.Contains(b.t, b.do("backlog", "renew", "--fence", now.Fence, "--ttl", "1h"), "the claim lasts until ")
	require.WithinDuration(b.t, time.Now().Add(time.Hour), *b.show("A1").LeaseUntil, time.Minute)
	require.Equal(b.t, "A1 is completed\n", b.do("backlog", "complete", "--fence", now.Fence))
	require.Equal(b.t, "A1 is completed\n", b.do("backlog", "complete", "--fence", now.Fence), "said again")
}

func circles(b board) {
	for _, key := range []string{"a", "b", "c"} {
		b.create(key)
	}
	require.Equal(b.t, "b depends on a\n", b.do("backlog", "link", "--from", "b", "--to", "a"))
	require.Equal(b.t, "c depends on b\n", b.do("backlog", "link", "--from", "c", "--to", "b"))

	b.refused(exitConflict, commands.Cycle, "a -> c -> b -> a", "backlog", "link", "--from", "a", "--to", "c")
	b.refused(exitConflict, commands.Cycle, "a cannot depend on itself", "backlog", "link", "--from", "a", "--to", "a")
	require.Empty(b.t, b.show("a").DependsOn)
	require.Equal(b.t, "b depends on no other task\n", b.do("backlog", "unlink", "--from", "b", "--to", "a"))
	require.Equal(b.t, "a depends on c\n", b.do("backlog", "link", "--from", "a", "--to", "c"), "no circle any more")
	b.refused(exitNotFound, commands.NotFound, "does not depend", "backlog", "unlink", "--from", "b", "--to", "a")
	b.refused(exitMisuse, commands.Validation, "needs --from and --to", "backlog", "link", "--from", "b")
}

// What a caller chooses as a key is kept as it is, whatever a database or a
// shell would make of it.
func oddNames(b board) {
	for i, key := range []string{"with some spaces", `x'); DROP TABLE tasks; --`, `"quoted" \ and %s`, "größer 日本 🦊", "-1", "123456", strings.Repeat("k", backlog.MaxKey)} {
		var made createdTask
		b.read(&made, "backlog", "create", "--id="+key, "--title", "odd "+key[:1], "--idempotency-key", fmt.Sprint("odd-", i))
		require.Equal(b.t, key, made.Key)
		var got backlog.Task
		b.read(&got, "backlog", "show", "--id="+key)
		require.Equal(b.t, made.ID, got.ID)
	}
	require.Contains(b.t, b.do("backlog", "list"), "with some spaces")
	var list []backlog.Task
	b.read(&list, "backlog", "list")
	require.Len(b.t, list, 7, "nothing was dropped")
	var again createdTask
	b.read(&again, "backlog", "create", "--id", "with some spaces", "--title", "odd w", "--idempotency-key", "odd-0")
	require.True(b.t, again.Existing)
	require.Equal(b.t, said{"with some spaces\n", "this task was created before, and is ready\n", 0},
		b.run("backlog", "create", "--id", "with some spaces", "--title", "odd w", "--idempotency-key", "odd-0"))
	b.refused(exitConflict, commands.Idempotency, "odd-0", "backlog", "create", "--title", "another", "--idempotency-key", "odd-0")
}

func nothingToClaim(b board) {
	b.nothing()
	require.Equal(b.t, "null\n", b.do("backlog", "claim", "-o", "ndjson"))
	require.Equal(b.t, "[]\n", b.do("backlog", "claim", "--batch", "3", "--json"))
	require.Empty(b.t, b.do("backlog", "claim", "-o", "name"))
	began := time.Now()
	b.nothing("--wait", "300ms")
	require.GreaterOrEqual(b.t, time.Since(began), 300*time.Millisecond)
	require.Equal(b.t, said{"", "nothing can be claimed now; what keeps a task: spawnmesh --data-dir " + b.dir + " backlog why ID\n", 0}, b.run("backlog", "claim"))
	b.create("gpu", "--capability", "gpu", "--capability", "big")
	b.nothing("--capability", "gpu")
	b.refused(exitNoSpoke, commands.Capability, "needs capability big", "backlog", "claim", "gpu", "--capability", "gpu")
	b.create("later", "--not-before", "1h")
	b.refused(exitConflict, commands.Conflict, "it waits for its time", "backlog", "claim", "later")
	require.Contains(b.t, b.do("backlog", "why", "later"), "it waits for its time (until ")
	require.Equal(b.t, "gpu", b.claim("w", "--capability", "gpu", "--capability", "big", "--capability", "more").Key)
}

// A claimer that waits gets a task the moment that another process creates it.
func waitForATask(b board) {
	b.create("gate", "--not-before", "2090-01-01")
	job := b.begin(b.in([]string{"backlog", "claim", "--owner", "patient", "--wait", "10m", "--json"})...)
	b.waits()
	made := b.create("A1")

	s := job.end()

	var c claim
	require.NoError(b.t, json.Unmarshal([]byte(s.out), &c), "%s%s", s.out, s.err)
	require.Equal(b.t, "A1", c.Key)
	require.Less(b.t, c.ClaimedAt.Sub(made.CreatedAt), 10*time.Second)
}

// The task of a worker that is never heard of again goes to the next one when
// the claim's time is over, and the first one's fence is void.
func deadWorker(b board) {
	b.create("A1")
	dead := b.claim("dead", "--ttl", "1")

	next := b.claim("next", "--wait", "1m")

	require.Equal(b.t, "A1", next.Key)
	require.Equal(b.t, 2, next.Attempts)
	require.False(b.t, next.ClaimedAt.Before(dead.Until), "not before its time")
	b.refused(exitConflict, commands.StaleAttempt, "next holds it with attempt 2", "backlog", "renew", "--fence", dead.Fence)
}

func batches(b board) {
	for i := range 5 {
		b.create(fmt.Sprint("T", i), "--priority", fmt.Sprint(i))
	}
	var list []claim
	b.read(&list, "backlog", "claim", "--owner", "w", "--batch", "3")
	require.Len(b.t, list, 3)
	require.Equal(b.t, "T4", list[0].Key, "the highest priority first")
	lines := strings.Split(strings.TrimSpace(b.do("backlog", "claim", "--owner", "w", "--batch", "9", "-o", "ndjson")), "\n")
	require.Len(b.t, lines, 2)
	require.NoError(b.t, json.Unmarshal([]byte(lines[1]), &list[0]))
	require.Equal(b.t, "T0", list[0].Key)
	b.refused(exitMisuse, commands.Validation, "--batch is from 1 to 1000", "backlog", "claim", "--batch", "0")
	b.refused(exitMisuse, commands.Validation, "neither --batch nor --wait", "backlog", "claim", "T0", "--wait", "1s")
}
