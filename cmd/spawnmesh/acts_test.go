package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func operatorsActs(b board) {
	b.create("A1", "--max-retries", "2")
	require.Equal(b.t, "A1 is blocked\n", b.do("backlog", "block", "--id", "A1", "--reason", "not yet"))
	b.nothing()
	require.Regexp(b.t, `it is blocked by \S+ until somebody unblocks it: not yet`, b.do("backlog", "why", "A1"))
	require.Equal(b.t, "A1 is ready\n", b.do("backlog", "unblock", "A1"))
	require.Equal(b.t, "A1 is paused\n", b.do("backlog", "pause", "A1", "--reason", "after the release"))
	b.refused(exitConflict, commands.Conflict, "is paused", "backlog", "claim", "--id", "A1", "--owner", "w")
	require.Regexp(b.t, `(?m)^why +it is paused by \S+ until somebody resumes it: after the release$`, b.do("backlog", "show", "A1"))
	require.Equal(b.t, "A1 is ready\n", b.do("backlog", "resume", "A1"))
	c := b.claim("w")
	require.Equal(b.t, "A1 is ready\n", b.do("backlog", "release", "--fence", c.Fence))
	c = b.claim("w")
	require.Equal(b.t, "is claimed by w", standing(b.show("A1")))
	b.refused(exitMisuse, commands.Validation, "to cancel a task needs a reason", "backlog", "cancel", "A1")
	require.Regexp(b.t, `^A1 is cancelled\n$`, b.do("backlog", "cancel", "A1", "--reason", "changed our minds"))
	b.refused(exitConflict, commands.StaleAttempt, "it is cancelled", "backlog", "complete", "--fence", c.Fence)
	b.refused(exitConflict, commands.Conflict, "cannot be completed", "backlog", "complete", "A1")
	require.Equal(b.t, "A1 is ready\n", b.do("backlog", "retry", "A1"))
	b.refused(exitConflict, commands.Conflict, "task A1 is queued and cannot be released", "backlog", "release", "A1")
	require.Equal(b.t, "A1 is completed\n", b.do("backlog", "complete", "A1", "--result", `{"lines":3}`))
	require.JSONEq(b.t, `{"lines":3}`, string(b.show("A1").Result))
	b.refused(exitMisuse, commands.Validation, "names no task", "backlog", "complete")
	b.refused(exitMisuse, commands.Validation, "names no task", "backlog", "unblock")
	b.refused(exitMisuse, commands.Validation, "names two", "backlog", "complete", "A1", "--id", "A2")
	b.findsAudits()
}

// saysWhatRanOut shows a task whose claim has run out: it stands as claimed until somebody takes it.
func saysWhatRanOut(b board) {
	b.create("A1")
	b.claim("w", "--ttl", "1")

	meshtest.Await(b.t, "that the claim has run out", func() bool {
		return b.show("A1").Status == backlog.BoardClaimed && strings.Contains(b.do("backlog", "show", "A1"), "ran out")
	})

	require.Regexp(b.t, `(?m)^why +the claim of w ran out; the next claim takes it$`, b.do("backlog", "show", "A1"))
	b.create("A2")
	b.claim("w", "--id", "A2")
	require.NotRegexp(b.t, `(?m)^why `, b.do("backlog", "show", "A2"), "its claim holds")
}

// findsAudits asks for the audit of a task by all its names: by the whole id and the short one, and by the key in its workspace, or in main.
func (b board) findsAudits() {
	b.t.Helper()
	rows := b.do("backlog", "audit", "A1")
	require.Contains(b.t, rows, "operator.completed")
	id := b.show("A1").ID
	for _, args := range [][]string{{id}, {commands.ShortID(id)}, {"A1", "--workspace", b.workspace}, {id, "--workspace", b.workspace}, {commands.ShortID(id), "--workspace", b.workspace}} {
		require.Equal(b.t, rows, b.hand.do(append([]string{"audit", "list", "--object"}, args...)...), args)
	}
	b.hand.do("backlog", "create", "--id", "audited", "--title", "in main")
	require.Equal(b.t, b.hand.do("backlog", "audit", "audited"), b.hand.do("audit", "list", "--object", "audited"))
	b.hand.refused(exitNotFound, `no task "audited"`, "audit", "list", "--object", "audited", "--workspace", b.workspace)
	b.hand.refused(exitMisuse, "--workspace says where the task of --object is", "audit", "list", "--workspace", b.workspace)
	require.Equal(b.t, "no audit rows\n", b.hand.run("", "audit", "list", "--object", "nothing").err)
}

func triesAgain(b board) {
	b.create("A1", "--max-retries", "1")
	b.create("A2", "--depends-on", "A1", "--on-failed-dependency", "cancel")
	b.create("A3", "--depends-on", "A1", "--on-failed-dependency", "hold")
	result := filepath.Join(b.t.TempDir(), "result.json")
	require.NoError(b.t, os.WriteFile(result, []byte(`["no", "luck"]`), 0o644))

	first := b.claim("w")
	require.Regexp(b.t, `^A1 is (ready|not ready before 2)`, b.do("backlog", "fail", "--fence", first.Fence, "--reason", "flaky"))
	got := b.show("A1")
	require.Equal(b.t, 1, got.Retries)
	require.Equal(b.t, commands.Queued, got.State)
	b.refused(exitMisuse, commands.Validation, "to fail a task needs a reason", "backlog", "fail", "A1")
	require.Regexp(b.t, `^A1 is failed`, b.do("backlog", "fail", "A1", "--reason", "given up", "--result", "@"+result))

	require.JSONEq(b.t, `["no", "luck"]`, string(b.show("A1").Result))
	require.Equal(b.t, commands.Cancelled, b.show("A2").State)
	require.Equal(b.t, commands.Queued, b.show("A3").State)
	require.Contains(b.t, b.do("backlog", "why", "A3"), "it depends on A1, which is failed")
	require.Equal(b.t, "A1 is ready\n", b.do("backlog", "retry", "--id", "A1"))
	require.Equal(b.t, "A1 is completed\n", b.do("backlog", "complete", "A1"))
	require.Equal(b.t, "A3", b.claim("w").Key)
}

func lists(b board) {
	none := "spawnmesh --data-dir " + b.dir + " backlog "
	const others = `(; other workspaces have tasks, or had some lately: .* workspace list, then --workspace NAME)?\n$`
	require.Regexp(b.t, `^no tasks yet; create one: `+none+`create --title TEXT --workspace lists`+others, b.run("backlog", "list").err)
	b.create("one", "--phase", "M1", "--lane", "slow")
	two := b.create("two", "--phase", "M2")
	b.create("three", "--depends-on", "one,two")
	b.claim("w", "--id", "one")
	var list []backlog.Task
	for args, want := range map[string][]string{
		"": {"three", "two", "one"}, "--status claimed": {"one"}, "--status ready": {"three", "two"}, "--state queued": {"three", "two"}, "--ready-only": {"two"},
		"--phase M1": {"one"}, "--phase M2 --status done": nil, "--lane slow": {"one"}, "--owner w": {"one"}, "--limit 1": {"three"},
		"--limit 1 --before three": {"two"}, "--before " + two.ID: {"one"}, "--before " + two.ID[:18]: {"one"},
	} {
		b.read(&list, append([]string{"backlog", "list"}, strings.Fields(args)...)...)
		require.Equal(b.t, want, keys(list), args)
	}
	table, wide := b.do("backlog", "list"), b.do("backlog", "list", "-o", "wide")
	for _, text := range []string{table, wide} {
		requireAligned(b.t, text)
		require.NotRegexp(b.t, `[ \t]\n`, text)
	}
	require.Regexp(b.t, `(?m)^one +claimed +0 +\S+ +w +do one$`, table)
	require.Regexp(b.t, `(?m)^three +ready +2 of 2 tasks +0 .* queued +default +0 +\S{36}$`, wide)
	require.Equal(b.t, "three\ntwo\none\n", b.do("backlog", "list", "-o", "name"))
	require.Regexp(b.t, `^no such tasks; all of them: `+none+`list --workspace lists`+others, b.run("backlog", "list", "--status", "blocked").err)
	for _, args := range [][]string{nil, {"--status", "blocked"}, {"--ready-only"}} {
		elsewhere := b.hand.run("", slices.Concat([]string{"backlog", "list", "--workspace", "nobodys"}, args)...)
		require.Contains(b.t, elsewhere.err, "; other workspaces have tasks, or had some lately: spawnmesh --data-dir "+b.dir+" workspace list, then --workspace NAME\n")
	}
	b.refused(exitMisuse, commands.Validation, "is not one of ready, claimed, blocked, done", "backlog", "list", "--status", "open")
	b.refused(exitMisuse, commands.Validation, "is not a state of a task", "backlog", "list", "--state", "open")
	b.refused(exitMisuse, commands.Validation, "from 1 to 1000", "backlog", "list", "--limit", "1001")
	b.refused(exitMisuse, commands.Validation, "from 1 to 1000", "backlog", "list", "--limit", "0")
	b.refused(exitNotFound, commands.NotFound, "no task", "backlog", "list", "--before", "nowhere")
	for limit, more := range map[string]string{"2": "there are more tasks than these; see more with --limit N\n", "3": ""} {
		require.Equal(b.t, more, b.run("backlog", "list", "--limit", limit).err)
		require.Equal(b.t, more, b.run("backlog", "list", "--limit", limit, "-o", "json").err)
	}
	require.Equal(b.t, "there are more rows than these; see more with --limit N\n", b.run("backlog", "audit", "--limit", "1").err)
}

func details(b board) {
	body := filepath.Join(b.t.TempDir(), "body")
	require.NoError(b.t, os.WriteFile(body, []byte("first\nsecond\n"), 0o644))
	made := b.create("A1", "--body-file", body, "--acceptance", "it builds", "--acceptance", "tests pass", "--phase", "M1", "--lane", "slow", "--account", "team-a",
		"--estimate", "usd=0.5,tokens=2000", "--estimate", "minutes=3", "--capability", "gpu", "--max-retries", "3", "--priority", "-7")
	require.Equal(b.t, "first\nsecond", made.Body)
	require.JSONEq(b.t, `["it builds","tests pass"]`, string(made.Acceptance))
	require.Equal(b.t, map[string]backlog.Amount{"usd": backlog.Unit / 2, "tokens": 2000 * backlog.Unit, "minutes": 3 * backlog.Unit}, made.Estimate)

	text := b.do("backlog", "show", commands.ShortID(made.ID))
	for _, want := range []string{`(?m)^key +A1$`, `(?m)^status +ready$`, `(?m)^claims +0, 0 of 3 retries spent$`, `(?m)^needs +gpu$`, `(?m)^estimate +3 minutes, 2000 tokens, 0.5 usd$`,
		`(?m)^acceptance +it builds$`, `(?m)^acceptance +tests pass$`, `\n\nfirst\nsecond\n$`} {
		require.Regexp(b.t, want, text)
	}
	require.NotRegexp(b.t, `[ \t]\n`, text)
	object := b.create("A2", "--acceptance", `{"tests": "pass"}`)
	require.JSONEq(b.t, `{"tests": "pass"}`, string(object.Acceptance))
	claimed := b.run("backlog", "claim", "--owner", "w")
	require.Regexp(b.t, `^claimed +A2\ntitle +do A2\nuntil +2\S+ \S+\nfence +\S+/1/1\ngrant +cg1\.\S+\nacceptance +\{"tests":.*"pass"\}\n$`, claimed.out)
	require.Regexp(b.t, `when it is done: .* backlog complete --fence \S+/1/1\n$`, claimed.err)
	require.Regexp(b.t, `(?s)^ready +1\nclaimed +1\nblocked +0\ndone +0\nclaimable now +1\noldest of them .*\)\nexpired claims +0\n$`, b.do("backlog", "stats"))
	s := b.hand.run("from standard input\n", b.in([]string{"backlog", "create", "--title", "piped", "--body-file", "-", "-o", "json"})...)
	require.Contains(b.t, s.out, `"body": "from standard input"`)
}

func grants(b board) {
	b.create("A1")
	c := b.claim("w")
	require.Regexp(b.t, `^the grant holds: attempt 1 of task `+commands.ShortID(c.ID)+`, until 2`, b.do("backlog", "grant", "verify", c.Grant))
	s := b.hand.run(c.Grant+"\n", b.in([]string{"backlog", "grant", "verify", "-", "--json"})...)
	require.Contains(b.t, s.out, `"fence": "`+c.Fence+`"`)
	require.Regexp(b.t, `^new grants are signed with the key \S+\n$`, b.do("backlog", "grant", "rotate"))
	require.Contains(b.t, b.do("backlog", "grant", "verify", c.Grant), "the grant holds", "what is out stays valid")

	parts := strings.Split(c.Grant, ".")
	forged := func(at int, text string) string {
		list := append([]string{}, parts...)
		list[at] = text
		return strings.Join(list, ".")
	}
	b.refused(exitUntrusted, commands.GrantMalformed, "is not a claim grant", "backlog", "grant", "verify", "nonsense")
	b.refused(exitUntrusted, commands.GrantMalformed, "is not a claim grant", "backlog", "grant", "verify", c.Grant[:len(c.Grant)-1])
	b.refused(exitUntrusted, commands.GrantKeyUnknown, "does not have", "backlog", "grant", "verify", forged(1, "0123456789abcdef"))
	b.refused(exitUntrusted, commands.GrantMismatch, "does not fit what it says", "backlog", "grant", "verify", forged(3, "2"))
	b.do("backlog", "complete", "--fence", c.Fence)
	b.refused(exitUntrusted, commands.GrantUnknown, "has ended or was claimed again", "backlog", "grant", "verify", c.Grant)
}

func unknownTasks(b board) {
	b.create("A1")
	for _, args := range []string{"show A9", "why A9", "claim A9", "complete A9", "fail A9 --reason x", "release A9", "block A9", "unblock A9", "cancel A9 --reason x",
		"retry A9", "reclaim A9", "reclaim --id A9", "link --from A1 --to A9", "unlink --from A9 --to A1", "show 00000000-0000-7000-8000-000000000000"} {
		b.refused(exitNotFound, commands.NotFound, "no task", append([]string{"backlog"}, strings.Fields(args)...)...)
	}
	b.refused(exitNotFound, commands.NotFound, "there is no such task", "backlog", "create", "--title", "x", "--depends-on", "A9")
	fence := "00000000-0000-7000-8000-000000000000/1/1"
	b.refused(exitNotFound, commands.NotFound, "no task", "backlog", "complete", "--fence", fence)
	b.hand.refused(exitMisuse, "workspace", "backlog", "list", "--workspace", "Not A Name")
}

func archives(b board) {
	b.create("one")
	b.create("two")
	b.hand.refused(4, "only what has ended is archived", b.in([]string{"backlog", "archive", "one"})...)
	for _, key := range []string{"one", "two"} {
		b.do("backlog", "complete", key)
	}
	require.Equal(b.t, "one is archived\ntwo is archived\n", b.do("backlog", "archive", "one", "two"))
	require.Empty(b.t, b.run("backlog", "list", "-o", "name").out)
	require.Equal(b.t, said{"", "no tasks but those that are archived, 2; list them: spawnmesh --data-dir " + b.dir + " " + strings.Join(b.in([]string{"backlog", "list", "--archived"}), " ") + "\n", 0}, b.run("backlog", "list"))
	require.Equal(b.t, "two\none\n", b.do("backlog", "list", "--archived", "-o", "name"))
	require.Regexp(b.t, `(?m)^archived +2`, b.do("backlog", "show", "one"))
	require.NotNil(b.t, b.show("one").ArchivedAt)
	got := b.run("backlog", "unarchive", "none", "two")
	require.Equal(b.t, 3, got.code, "the first problem")
	require.Equal(b.t, "two is in lists again\n", got.out, "what is named beside it is done")
	require.Equal(b.t, "two\n", b.do("backlog", "list", "-o", "name"))
	b.refused(exitMisuse, commands.Validation, "only what has ended is archived", "backlog", "list", "--archived", "--ready-only")
	b.hand.refused(exitMisuse, "ids name tasks, and so do", b.in([]string{"backlog", "archive", "one", "--lane", "default"})...)
	b.hand.refused(exitMisuse, "no task is named", b.in([]string{"backlog", "archive"})...)
	b.create("late", "--phase", "M1")
	b.do("backlog", "cancel", "late", "--reason", "done")
	require.Equal(b.t, "0 tasks archived\n", b.do("backlog", "archive", "--older-than", "1h"))
	require.Equal(b.t, "1 task archived\n", b.do("backlog", "archive", "--lane", "default", "--phase", "M1"))
}
