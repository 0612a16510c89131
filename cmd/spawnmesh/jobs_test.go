package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// withSpoke is a hub with one spoke that runs everything.
func withSpoke(t *testing.T) hand {
	t.Helper()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"], "--heartbeat", "1s", "--slots", "8"))
	return hand{t: t, dir: m.Hub.Dir}
}

// agentsOf are the titles of all agents that a hub has ordered.
func agentsOf(h hand) (titles map[string]int) {
	h.t.Helper()
	var v control.Items[hub.AgentView]
	h.read(&v, 0, "api", "GET", "/tasks?limit=10000")
	titles = map[string]int{}
	for _, a := range v.Items {
		titles[a.Title]++
	}
	return titles
}

// The jobs of a file are ordered, in its order; what is wrong with one is said with its place and does not spare the
// others; with a key the same line orders nothing twice.
func TestJobsByHand(t *testing.T) {
	t.Parallel()
	h := withSpoke(t)
	var text strings.Builder
	text.WriteString("defaults:\n  spoke: attic\n  files: [\"jobs.yaml:own\"]\njobs:\n")
	for i := range 12 {
		fmt.Fprintf(&text, "  - {title: job-%d, argv: [sh, -c, \"test -s own; exit %d\"]}\n", i, i%3)
	}
	path := put(t, "jobs.yaml", text.String(), 0o600)
	lines := func(s said) []string { return strings.Split(strings.TrimSuffix(s.out, "\n"), "\n") }

	first := h.run("", "spawn", "-f", path, "--idempotency-key", "night")

	require.Zero(t, first.code, first.err)
	require.Len(t, lines(first), 12)
	for i, line := range lines(first) {
		require.Regexp(t, fmt.Sprintf(`^[0-9a-z]{8}  attic  job-%d$`, i), line)
	}
	again := h.run("", "spawn", "-f", path, "--idempotency-key", "night")
	require.Zero(t, again.code, again.err)
	require.Equal(t, strings.ReplaceAll(first.out, "\n", "  (ordered before)\n"), again.out)
	require.Len(t, agentsOf(h), 12)

	waited := h.run("", "spawn", "-f", path, "--idempotency-key", "night", "--wait")
	require.Equal(t, exitFailed, waited.code, waited.err)
	require.Equal(t, 4, strings.Count(waited.out, "  completed  "), waited.out)
	require.Equal(t, 4, strings.Count(waited.out, "  failed: exit code 2  job-"), waited.out)
	require.Regexp(t, `(?m)^\w{8}  completed  job-3  `+path+`:8:6$`, waited.out)
	require.Equal(t, 12, strings.Count(waited.err, " was ordered before on attic: job-"))
	var ends []jobAgent
	h.read(&ends, exitFailed, "spawn", "-f", path, "--idempotency-key", "night", "--wait")
	require.Len(t, ends, 12)
	require.Equal(t, path+":5:6", ends[0].Job)
	require.True(t, ends[0].Existing)
	names := h.do("spawn", "-o", "name", "-f", path, "--idempotency-key", "night")
	require.Len(t, strings.Fields(names), 12)
	require.Len(t, strings.Fields(names)[0], 36)

	some := put(t, "some.yaml", "{argv: [\"true\"], title: s1}\n---\n{argv: [\"true\"], idempotency_key: one}\n---\n{argv: [\"true\"], title: s3}\n", 0o600)
	h.do("spawn", "--idempotency-key", "one", "--", "false")
	s := h.run("", "spawn", "-f", some)
	require.Equal(t, exitConflict, s.code, s.err)
	require.Len(t, lines(s), 2)
	require.Contains(t, s.err, some+":3:2: the idempotency key")
	h.refused(exitMisuse, "standard input has no jobs", "spawn", "-f", "-")

	long := h.run("argv: [sleep, 600]\ntitle: long\n---\nargv: [\"true\"]", "spawn", "-f", "-", "--wait", "--wait-timeout", "5s")
	require.Equal(t, exitInterrupted, long.code, long.err)
	require.Equal(t, 1, strings.Count(long.out, "  completed  true  standard input:4:1\n"), long.out)
	require.Contains(t, long.err, "agents of these jobs that have not ended: 1; this has waited for as long as it was told to")
	h.do("kill", "long", "--reason", "enough")
}

// Who stops waiting for jobs keeps the ids of those that go on; what was refused is told with its job.
func TestWhoStopsWaitingKeepsTheIDs(t *testing.T) {
	t.Parallel()
	h := withSpoke(t)
	h.do("spawn", "--idempotency-key", "one", "--", "false")
	path := put(t, "jobs.yaml", "{argv: [sleep, 600], title: long}\n---\n{argv: [\"true\"], idempotency_key: one}\n---\n{argv: [sleep, 601], idempotency_key: two}\n", 0o600)
	waits := func(output string) said {
		s := h.run("", "spawn", "-f", path, "--wait", "--wait-timeout", "2s", "-o", output)
		require.Equal(t, exitInterrupted, s.code, s.err)
		return s
	}
	var list []struct {
		ID, State, Job string
		Existing       bool
		Error          struct{ Code, Message string }
	}

	ids := strings.Fields(waits("name").out)
	require.NoError(t, json.Unmarshal([]byte(waits("json").out), &list))

	require.Len(t, ids, 2)
	require.Len(t, list, 3)
	require.Equal(t, []string{path + ":1:2", path + ":3:2", path + ":5:2"}, []string{list[0].Job, list[1].Job, list[2].Job})
	require.Contains(t, []string{"queued", "running"}, list[0].State)
	require.Equal(t, "IDEMPOTENCY", list[1].Error.Code)
	require.Equal(t, ids[1], list[2].ID)
	require.Equal(t, []bool{false, true}, []bool{list[0].Existing, list[2].Existing})
	lines := strings.Split(strings.TrimSpace(waits("ndjson").out), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], `"code":"IDEMPOTENCY"`)
	require.Contains(t, lines[2], `"id":"`+ids[1]+`"`)
	require.Contains(t, h.run("", "kill", "--all", "--reason", "enough", "--grace", "0s", "--yes").out, "the kill of 4 agents is ordered")
}

// All spokes of a file are there before the first of its jobs is ordered.
func TestJobsOnSpokesThatAreNotThere(t *testing.T) {
	t.Parallel()
	h := withSpoke(t)
	path := put(t, "jobs.yaml", "{argv: [\"true\"], spoke: attic}\n---\n{argv: [\"true\"], spoke: nobody}\n---\n{argv: [\"true\"], spoke: nowhere}\n", 0o600)

	s := h.run("", "spawn", "-f", path)

	require.Equal(t, exitNotFound, s.code, s.err)
	require.Contains(t, s.err, path+":3:2: no connection \"nobody\"\n")
	require.Contains(t, s.err, path+":5:2: no connection \"nowhere\"\n")
	require.Contains(t, s.err, "nothing of "+path+" was ordered\n")
	h.refused(exitNotFound, path+":1:1: no connection \"nobody\"", "spawn", "-f", rewritten(t, path, "argv: [\"true\"]\nspoke: nobody\n"))
	require.Empty(t, agentsOf(h))
	var views []hub.SpokeView
	h.read(&views, 0, "connections", "list")
	h.do("spawn", "-f", rewritten(t, path, "{argv: [\"true\"], spoke: "+views[0].ID+"}\n---\n{argv: [\"true\"]}\n"))
	require.Len(t, agentsOf(h), 1, "two of one title")
}

// rewritten is a file with another text.
func rewritten(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Where a job was put in front since its key was used, no job is ordered a second time.
func TestAFileThatWasChangedSinceItsKey(t *testing.T) {
	t.Parallel()
	h := withSpoke(t)
	text := func(titles ...string) (all string) {
		for _, title := range titles {
			all += "{title: " + title + ", runtime: noop, argv: []}\n---\n"
		}
		return all
	}
	path := put(t, "jobs.yaml", text("a", "b"), 0o600)
	h.do("spawn", "-f", path, "--idempotency-key", "night")

	s := h.run("", "spawn", "-f", rewritten(t, path, text("new", "a", "b")), "--idempotency-key", "night")

	require.Equal(t, exitConflict, s.code, s.err)
	require.Empty(t, s.out)
	require.Contains(t, s.err, path+":1:2: the idempotency key")
	require.Contains(t, s.err, "0 of 3 jobs were ordered; those from "+path+":3:2 on were not tried\na file that was changed wants another --idempotency-key, or an idempotency_key in each job")
	require.Equal(t, map[string]int{"a": 1, "b": 1}, agentsOf(h))
	s = h.run("", "spawn", "-f", rewritten(t, path, text("a", "new", "b", "c")), "--idempotency-key", "night")
	require.Equal(t, exitConflict, s.code, s.err)
	require.Contains(t, s.err, "1 of 4 jobs were ordered")
	require.Equal(t, map[string]int{"a": 1, "b": 1}, agentsOf(h))
	h.do("spawn", "-f", rewritten(t, path, text("a", "b", "c")), "--idempotency-key", "night")
	require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, agentsOf(h))
}

// Nothing of a file is ordered where a part of it cannot be; nor where it is used as it cannot be.
func TestJobsThatAreNotOrdered(t *testing.T) {
	t.Parallel()
	h := withSpoke(t)
	two := put(t, "two.yaml", "argv: [echo, one]\n---\nargv: [echo, two]\n", 0o600)
	wrong := put(t, "wrong.yaml", "argv: [echo, one]\n---\nargv: [echo, two]\npriorty: 1\n---\nargv: [echo]\npriority: 1000\n", 0o600)
	s := h.run("", "spawn", "-f", wrong)
	require.Equal(t, exitMisuse, s.code)
	require.Contains(t, s.err, wrong+":4:1: priorty: there is no such field; did you mean: priority\n")
	h.refused(exitMisuse, "one agent at a time can be followed", "spawn", "-f", two, "--follow")
	h.refused(exitMisuse, "one agent at a time can be followed", "run", "-f", two)
	h.refused(exitMisuse, "a command is given beside --jobs", "spawn", "-f", two, "--", "true")
	h.refused(exitMisuse, "--id is for one agent", "spawn", "-f", two, "--id", "0193a3c0-2222-7aaa-8bbb-77f4a4fefe01")
	h.refused(exitMisuse, "both read standard input", "spawn", "-f", "-", "--stdin")
	h.refused(exitMisuse, "no such file", "spawn", "-f", two+"x")
	require.Empty(t, agentsOf(h))

	one := h.run("", "run", "-f", put(t, "one.yaml", "argv: [echo, one]\n", 0o600))
	require.Zero(t, one.code, one.err)
	require.Equal(t, "one\n", one.out)
	fed := h.run("fed", "spawn", "-f", two, "--stdin", "-o", "json")
	require.Zero(t, fed.code, fed.err)
	var list []jobAnswer
	require.NoError(t, json.Unmarshal([]byte(fed.out), &list))
	require.Equal(t, []string{two + ":1:1", two + ":3:1"}, []string{list[0].Job, list[1].Job})
	require.Contains(t, h.do("status", list[1].ID), "standard input")
	nobody := hand{t: t, dir: t.TempDir()}
	gone := nobody.run("", "spawn", "-f", two)
	require.Equal(t, exitUnreachable, gone.code, gone.err)
	require.Empty(t, gone.out)
}

// Who interrupts is told what was ordered, and which jobs were not tried; the same line goes on there.
func TestAnInterruptWhileJobsAreOrdered(t *testing.T) {
	t.Parallel()
	h := withSpoke(t)
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "{title: job-%d, runtime: noop, argv: []}\n---\n", i)
	}
	path := put(t, "jobs.yaml", text.String(), 0o600)
	c := h.command(t.Context(), "spawn", "-f", path, "--idempotency-key", "night")
	var errOut bytes.Buffer
	c.Stderr = &errOut
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	in := bufio.NewScanner(out)
	require.True(t, in.Scan(), "the first is ordered")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	printed := 1
	for in.Scan() {
		printed++
	}
	_ = c.Wait()

	require.Equal(t, exitInterrupted, c.ProcessState.ExitCode(), errOut.String())
	told := regexp.MustCompile(`(\d+) of 3000 jobs were ordered; those from (\S+) on were not tried\nthe same line with its --idempotency-key orders what is missing\n`).FindStringSubmatch(errOut.String())
	require.NotNil(t, told, errOut.String())
	require.Equal(t, fmt.Sprint(printed), told[1])
	require.Contains(t, told[2], path+":")
	ordered := len(agentsOf(h))
	require.GreaterOrEqual(t, ordered, printed)
	require.LessOrEqual(t, ordered, printed+jobsAtOnce, "and what may have been ordered")

	small := put(t, "small.yaml", strings.Join(strings.SplitAfter(text.String(), "---\n")[:printed+20], ""), 0o600)
	h.do("spawn", "-f", small, "--idempotency-key", "night")
	titles := agentsOf(h)
	require.Len(t, titles, max(printed+20, ordered))
	for title, n := range titles {
		require.Equal(t, 1, n, title)
	}
	require.Eventually(t, func() bool { return h.run("", "agents", "--open", "-o", "name").out == "" }, time.Minute, 100*time.Millisecond)
}
