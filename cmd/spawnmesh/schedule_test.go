package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// A schedule from its creation to its end, as it is typed.
func TestSchedulesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}

	made := h.do("schedule", "create", "nightly", "--cron", "30  2 * * mon-fri", "--zone", "Asia/Kathmandu", "--spoke", "attic", "--title", "backup", "--label", "app=web", "--env", "MODE=full", "--", "sh", "-c", "echo $MODE")
	require.Regexp(t, `^schedule nightly was created, in the zone Asia/Kathmandu; due next: \w{3} [-0-9]{10} 02:30 \+0545 \(here .*\)\n$`, made)
	require.Regexp(t, `(?m)^nightly +active +30 2 \* \* mon-fri +Asia/Kathmandu +[-0-9]{10} 02:30 \+0545 +- +-$`, h.do("schedule", "list"))

	id := strings.TrimSpace(h.do("schedule", "run", "nightly", "-o", "name"))
	v := h.ends(id)
	require.Equal(t, "full\n", resultOf(v).Stdout.Tail)
	require.Regexp(t, `(?m)^schedule +nightly$`, h.do("status", id))
	shown := h.do("schedule", "show", "nightly")
	for _, words := range []string{`due +30 2 \* \* mon-fri in Asia/Kathmandu`, `overlap +skip: `, `command +sh -c 'echo \$MODE'`, `variables +MODE`, `labels +app=web`, `last +` + commands.ShortID(id) + ` at `, `created +.* by `} {
		require.Regexp(t, "(?m)^"+words, shown)
	}
	require.Equal(t, 5, strings.Count(shown, " 02:30 +0545"))
	require.NotContains(t, shown, "full")
	require.Regexp(t, `(?m)^when asked +ordered, [a-z].* +`+commands.ShortID(id)+` +0 *$`, h.do("schedule", "fires", "nightly"))

	require.Equal(t, "schedule nightly is paused\n", h.do("schedule", "pause", "nightly", "--reason", "the disk"))
	require.Regexp(t, `^schedule nightly is paused already, by uid:\d+ since \S+ \S+: the disk; the reason stays, and nothing was changed\n$`, h.do("schedule", "pause", "nightly", "--reason", "another"))
	require.Regexp(t, `(?m)^state +paused: the disk$`, h.do("schedule", "show", "nightly"))
	require.Regexp(t, `(?m)^paused +[-0-9]{10} [:0-9]{8} by uid:\d+$`, h.do("schedule", "show", "nightly"))
	require.Regexp(t, `(?m)^nightly .* [-0-9]{10} [:0-9]{8} +uid:\d+ *$`, h.do("schedule", "list", "-o", "wide"))
	require.Contains(t, h.do("schedule", "change", "nightly", "--cron", "0 4 * * *", "--zone", "UTC"), "was changed; it is paused")
	require.Contains(t, h.do("schedule", "resume", "nightly"), "04:00 UTC")
	h.refused(exitMisuse, "add --yes if you mean it", "schedule", "delete", "nightly")
	require.Equal(t, "schedule nightly is deleted\n", h.do("schedule", "delete", "nightly", "--yes", "--reason", "the host was sold"))
	h.refused(exitNotFound, "there is no schedule", "schedule", "show", "nightly")
	require.Regexp(t, `(?m)^schedule +nightly$`, h.do("status", id), "its agents are known by it")
	require.Regexp(t, `schedule\.deleted .*the host was sold; 0 4 \* \* \* in UTC`, h.do("audit", "list", "--object", "nightly"))

	t.Run("of a file", func(t *testing.T) { schedulesOfFiles(t, h) })
	t.Run("that is wrong", func(t *testing.T) {
		h.refused(exitMisuse, "needs --cron", "schedule", "create", "x", "--", "true")
		h.refused(exitMisuse, "needs a name", "schedule", "create", "--cron", "@daily", "--", "true")
		h.refused(exitMisuse, `the hour "24" is not understood`, "schedule", "create", "x", "--cron", "0 24 * * *", "--", "true")
		h.refused(exitMisuse, "nothing is to be changed", "schedule", "change", "x")
		h.refused(exitMisuse, "needs a reason", "schedule", "pause", "x")
		h.refused(exitMisuse, "needs a reason", "schedule", "pause", "x", "--reason", "  ")
		h.refused(exitMisuse, "schedule create x --cron @daily -- CMD", "schedule", "create", "x", "--cron", "@daily")
		h.refused(exitMisuse, "takes the name of a schedule, or --all", "schedule", "resume")
		h.refused(exitMisuse, "takes the name of a schedule, or --all", "schedule", "resume", "x", "--all")
		require.Equal(t, "no schedule is paused because of a restore\n", h.do("schedule", "resume", "--all"))
	})
	t.Run("that could not run now", func(t *testing.T) { schedulesThatCannotRun(t, h) })
}

// The job of a file is ordered by a schedule as it is by spawn.
func schedulesOfFiles(t *testing.T, h hand) {
	dir := t.TempDir()
	file := func(name, text string) string {
		at := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		return at
	}
	file("token", "sesame-from-a-file")
	one := file("one.yaml", "argv: [sh, -c, 'echo got ${#TOKEN}']\nspoke: attic\nsecrets: {TOKEN: '@token'}\n")
	h.do("schedule", "create", "filed", "--cron", "@weekly", "-f", one, "--title", "from a file")
	var s api.Schedule
	h.read(&s, 0, "schedule", "show", "filed")
	require.Equal(t, "from a file", s.Title)
	require.NotContains(t, h.do("schedule", "show", "filed", "-o", "json"), "sesame")

	id := strings.TrimSpace(h.do("schedule", "run", "filed", "-o", "name"))
	require.Equal(t, "got 18\n", resultOf(h.ends(id)).Stdout.Tail)

	two := file("two.yaml", "jobs: [{argv: [true], spoke: attic}, {argv: [true], spoke: attic}]\n")
	h.refused(exitMisuse, "has 2 jobs, and a schedule orders one", "schedule", "create", "x", "--cron", "@daily", "-f", two)
	h.refused(exitMisuse, "a command is given beside --jobs", "schedule", "create", "x", "--cron", "@daily", "-f", one, "--", "true")
	h.refused(exitMisuse, "no schedule was created of", "schedule", "create", "x", "--cron", "@daily", "-f", file("wrong.yaml", "argv: [true]\nnonsense: 1\n"))
}

// What would keep its order from running now is said when a schedule is created.
func schedulesThatCannotRun(t *testing.T, h hand) {
	create := func(name string, args ...string) string {
		return h.run("", append(append([]string{"schedule", "create", name, "--cron", "@yearly"}, args...), "--", "true")...).err
	}
	require.NotContains(t, create("fine", "--spoke", "attic"), "note:")
	require.Regexp(t, `(?m)^note: what it orders would not run now: no spoke .*gpu`, create("gpu", "--any", "--capability", "gpu"))
	h.do("freeze", "--scope", "connection:attic", "--reason", "bad deploy")
	require.Regexp(t, `(?m)^note: what it orders would not run now: attic is frozen by uid:\d+: bad deploy$`, create("frozen", "--spoke", "attic"))
	h.do("unfreeze", "--scope", "connection:attic", "--reason", "over")
	h.do("connections", "suspend", "attic", "--reason", "holiday")
	require.Contains(t, create("away", "--spoke", "attic"), "note: what it orders would not run now: the connection with attic is suspended: holiday\n")
	require.Contains(t, create("anywhere", "--any"), "note: what it orders would not run now: no ")
	require.Regexp(t, `(?m)^fine +active `, h.do("schedule", "list"), "its connection may go on")
	require.NotRegexp(t, `(?m)^schedules +WRONG`, h.run("", "doctor").out)

	h.do("schedule", "pause", "frozen", "--reason", "known")
	h.do("connections", "revoke", "attic", "--reason", "sold", "--yes")

	list := h.do("schedule", "list")
	for _, name := range []string{"fine", "away", "anywhere"} {
		require.Regexp(t, `(?m)^`+name+` +orders nothing `, list)
	}
	require.Regexp(t, `(?m)^frozen +paused `, list)
	require.Regexp(t, `(?m)^orders nothing +the connection with attic is revoked: sold$`, h.do("schedule", "show", "fine"))
	require.Regexp(t, `(?m)^orders nothing +this hub has no spoke that could take the order$`, h.do("schedule", "show", "anywhere"))
	require.Regexp(t, `(?m)^schedules +WRONG: 5 of 6 can order nothing: anywhere, as this hub has no spoke .*schedule list$`, h.run("", "doctor").out)
	require.Contains(t, h.run("", "schedule", "resume", "frozen").err, "note: it orders nothing: the connection with attic is revoked: sold\n")
}
