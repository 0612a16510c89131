package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What cannot be meant is refused before a database is started for it, to people
// and to programs.
func TestBacklogMisuse(t *testing.T) {
	t.Parallel()
	create := func(args ...string) []string { return append([]string{"backlog", "create", "--title", "x"}, args...) }
	tests := map[string]struct {
		says string
		args []string
	}{
		"no title":                   {"a line that people see, as in: spawnmesh ", []string{"backlog", "create", "--id", "A1"}},
		"a title of blanks":          {"a task needs a title", []string{"backlog", "create", "--title", "  "}},
		"a title of two lines":       {"the title contains a line break", []string{"backlog", "create", "--title", "a\nb"}},
		"a priority too high":        {"priority 101 is outside -100..100", create("--priority", "101")},
		"a priority too low":         {"priority -101 is outside -100..100", create("--priority=-101")},
		"a huge priority":            {`"99999999999999999999" is not a whole number`, create("--priority", "99999999999999999999")},
		"a priority of words":        {`--priority: "high" is not a whole number`, create("--priority", "high")},
		"a key of two lines":         {"the key contains a line break", create("--id", "a\nb")},
		"a key of 10 KiB":            {"the key is 10240 bytes, limit 200", create("--id", strings.Repeat("k", 10<<10))},
		"a key like an id of ours":   {"looks like an id of ours", create("--id", "01a1fe92-0829-7df7-af08-f4f57a30c0e9")},
		"a key with blanks around":   {"begins or ends with a space", create("--id", " A1")},
		"a key that is not UTF-8":    {"the value of --id is not UTF-8", create("--id", "\xff")},
		"a body and a file":          {"--body and --body-file are both given", create("--body", "x", "--body-file", "y")},
		"a file that is not there":   {"reading --body-file: open /nowhere/at/all", create("--body-file", "/nowhere/at/all")},
		"a body of 65 KiB":           {"the body is 66560 bytes, limit 65536", create("--body", strings.Repeat("b", 65<<10))},
		"acceptance that is broken":  {"--acceptance is not a JSON array", create("--acceptance", `["x"`)},
		"acceptance of numbers":      {"acceptance criteria are not a JSON array of strings", create("--acceptance", `[1]`)},
		"acceptance that is empty":   {"--acceptance is empty", create("--acceptance", "")},
		"two kinds of acceptance":    {"--acceptance is not a JSON array", create("--acceptance", `{}`, "--acceptance", "x")},
		"an odd lane":                {"lower-case letters", create("--lane", "No Lane")},
		"an odd account":             {"lower-case letters", create("--account", "x;y")},
		"an odd capability":          {"capabilit", create("--capability", "")},
		"no amount":                  {`"usd" is not an amount such as usd=1.5`, create("--estimate", "usd")},
		"an amount below zero":       {"is not a number from 0", create("--estimate", "usd=-1")},
		"an amount of words":         {"is not a number from 0", create("--estimate", "usd=much")},
		"an amount twice":            {`"usd" is given twice`, create("--estimate", "usd=1,usd=2")},
		"an amount of nothing":       {`"=1" is not an amount`, create("--estimate", "=1")},
		"an odd dimension":           {"is not an amount", create("--estimate", "US Dollars=1")},
		"no time":                    {`"soon" is neither a time such as`, create("--not-before", "soon")},
		"retries below zero":         {"max retries -1 is outside 0..100", create("--max-retries", "-1")},
		"an unknown policy":          {"hold, cancel or ignore", create("--on-failed-dependency", "panic")},
		"a word too many":            {"backlog create takes no arguments", create("A1")},
		"a TTL of nothing":           {`--ttl: "0" is not a time above 0`, []string{"backlog", "claim", "--ttl", "0"}},
		"a TTL below zero":           {`--ttl: "-5" is not a time above 0`, []string{"backlog", "claim", "--ttl", "-5"}},
		"a TTL of half a second":     {"--ttl is from 1s to 1d", []string{"backlog", "claim", "--ttl", "500ms"}},
		"a huge TTL":                 {"--ttl is from 1s to 1d", []string{"backlog", "claim", "--ttl", "25h"}},
		"a TTL beyond numbers":       {"is not a time above 0", []string{"backlog", "claim", "--ttl", "99999999999999999999"}},
		"a TTL of words":             {"is not a time above 0", []string{"backlog", "claim", "--ttl", "long"}},
		"a renewal of nothing":       {"is not a time above 0", []string{"backlog", "renew", "--fence", "x", "--ttl", "0s"}},
		"a huge renewal":             {"--ttl is from 1s to 1d", []string{"backlog", "renew", "--fence", "01a1fe92-0829-7df7-af08-f4f57a30c0e9/1/1", "--ttl", "2d"}},
		"a renewal without a fence":  {"backlog renew needs --fence", []string{"backlog", "renew"}},
		"a claim for nobody":         {"--owner is empty", []string{"backlog", "claim", "--owner", ""}},
		"a batch of none":            {"--batch is from 1 to 1000", []string{"backlog", "claim", "--batch", "-1"}},
		"a huge batch":               {"--batch is from 1 to 1000", []string{"backlog", "claim", "--batch", "1001"}},
		"to show nothing":            {"backlog show names no task", []string{"backlog", "show"}},
		"to ask why of nothing":      {"backlog why names no task", []string{"backlog", "why"}},
		"two tasks":                  {`backlog complete takes [ID] and got "A1 A2"`, []string{"backlog", "complete", "A1", "A2"}},
		"a result that is no JSON":   {"--result is not JSON", []string{"backlog", "complete", "A1", "--result", "fine"}},
		"a result that is not there": {"reading --result: open /nowhere", []string{"backlog", "complete", "A1", "--result", "@/nowhere"}},
		"a group alone":              {"backlog grant needs a command: rotate, verify", []string{"backlog", "grant"}},
		"a typo":                     {`there is no command "backlog creat"`, []string{"backlog", "creat"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := typed(t, append([]string{"--data-dir", dir}, tt.args...)...)
			require.Equal(t, exitMisuse, s.code, "%s", s.err)
			require.Empty(t, s.out)
			require.Contains(t, s.err, tt.says)
			s = typed(t, append([]string{"--json", "--data-dir", dir}, tt.args...)...)
			require.Equal(t, exitMisuse, s.code, "%s", s.err)
			require.Empty(t, s.out)
			var got struct {
				Error struct{ Code, Message string }
			}
			require.NoError(t, json.Unmarshal([]byte(s.err), &got), "%s", s.err)
			require.Equal(t, string(commands.Validation), got.Error.Code)
			require.NoDirExists(t, dir+"/keys")
		})
	}
}

// Every command of the backlog and its limits answers a program in JSON, and a
// list of lines in lines.
func TestBacklogSpeaksJSON(t *testing.T) {
	t.Parallel()
	boardsOf(t, map[string]func(b board){"json": speaksJSON("json"), "ndjson": speaksJSON("ndjson"), "name": speaksJSON("name")})
}

func speaksJSON(format string) func(b board) {
	return func(b board) {
		tasks := map[string]claim{}
		used := map[string]bool{}
		say := func(line string) []string {
			args := strings.Fields(line)
			for i, word := range args {
				if c, ok := strings.CutPrefix(word, "fence:"); ok {
					args[i] = tasks[c].Fence
				} else if c, ok := strings.CutPrefix(word, "grant:"); ok {
					args[i] = tasks[c].Grant
				}
			}
			used[pathOf(args)] = true
			return args
		}
		for _, line := range []string{"create --id A1 --title x", "create --id A2 --title x --depends-on A1", "create --id A3 --title x", "create --id A4 --title x", "list", "list --phase none",
			"list --ready-only", "show A1", "stats", "audit", "audit A1", "why A2", "claim --id A1", "grant verify grant:A1", "renew --fence fence:A1", "complete --fence fence:A1", "claim --id A3",
			"release --fence fence:A3", "claim --batch 2", "claim", "claim --batch 2", "reclaim", "reclaim --id A3", "fail --id A3 --reason x", "retry A3", "cancel A3 --reason x", "archive A3", "list --archived", "unarchive A3",
			"block A4", "unblock A4", "pause A4 --reason x", "resume A4", "link --from A4 --to A1", "unlink --from A4 --to A1", "grant rotate"} {
			out := b.do(append([]string{"-o", format}, say("backlog "+line)...)...)
			values := requireFormat(b.t, format, line, out)
			var c claim
			if strings.HasPrefix(line, "claim --id") {
				if format == "name" { // who reads names alone learns the fence by asking again
					b.do("backlog", "reclaim", "--id", strings.TrimSpace(out))
					c = b.claim("w", "--id", strings.TrimSpace(out))
				} else {
					require.NoError(b.t, json.Unmarshal(values[0], &c))
				}
				tasks[c.Key] = c
			}
		}
		for _, line := range []string{"budget create b --dimension usd --hard 1", "budget list", "budget show b", "budget grant b 1 --reason x", "budget reset b --reason x --yes",
			"budget remove b --reason x --yes", "budget list", "quota create q --concurrent 1", "quota list", "quota show q", "quota remove q --reason x --yes", "quota list", "lane list",
			"lane pause l --reason x", "lane drain l --reason x", "lane disable l --reason x", "lane weight l 3", "lane resume l", "freeze list",
			"freeze --scope workspace --reason x", "freeze list", "unfreeze --scope workspace --reason x"} {
			requireFormat(b.t, format, line, b.do(append([]string{"-o", format}, say(line)...)...))
		}
		everyCommand(func(c *cobra.Command, path []string) {
			if len(path) > 0 && slices.Contains([]string{"backlog", "budget", "quota", "lane", "freeze", "unfreeze"}, path[0]) && (!c.HasSubCommands() || c.HasFlags() && path[0] == "freeze") {
				require.True(b.t, used[strings.Join(path, " ")], "%s was not asked", c.CommandPath())
			}
		})
	}
}

// pathOf is the command of a command line, without what it is given.
func pathOf(args []string) (path string) {
	everyCommand(func(_ *cobra.Command, p []string) {
		if len(p) <= len(args) && slices.Equal(p, args[:len(p)]) && len(strings.Join(p, " ")) > len(path) {
			path = strings.Join(p, " ")
		}
	})
	return path
}

// requireFormat reads all values of an output: one in JSON, one per line in
// ndjson, none in names.
func requireFormat(t *testing.T, format, line, out string) (values []json.RawMessage) {
	t.Helper()
	if format == "name" {
		require.NotContains(t, out, "{", line)
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(out)))
	for {
		var v json.RawMessage
		err := dec.Decode(&v)
		if err == io.EOF {
			break
		}
		require.NoError(t, err, "%s: %s", line, out)
		values = append(values, v)
	}
	if format == "json" {
		require.Len(t, values, 1, "%s: %s", line, out)
	} else {
		require.Equal(t, strings.Count(out, "\n"), len(values), "%s: %s", line, out)
	}
	return values
}

func TestTimesAndAmountsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"600": "10m", "90s": "1m30s", "1d": "1d", "1h30m": "1h30m"} {
		var s seconds
		require.NoError(t, s.Set(text), text)
		require.Equal(t, want, s.String(), text)
	}
	for _, text := range []string{"", "0", "0s", "-1", "1.5", "x", "99999999999999999999"} {
		require.Error(t, new(seconds).Set(text), text)
	}
	var q quantities
	require.NoError(t, q.Set("usd=1.5,tokens=20000"))
	require.NoError(t, q.Set("minutes=0.000001"))
	require.Equal(t, quantities{"usd": 3 * backlog.Unit / 2, "tokens": 20000 * backlog.Unit, "minutes": 1}, q)
	require.Equal(t, "0.000001 minutes, 20000 tokens, 1.5 usd", textOf(q))
	for text, want := range map[string]string{"2026-01-02 15:04": "2026-01-02 15:04:00", "2026-01-02": "2026-01-02 00:00:00", "2026-01-02T15:04": "2026-01-02 15:04:00"} {
		at, from, err := momentOf(text)
		require.NoError(t, err, text)
		require.Zero(t, from)
		require.Equal(t, want, clock(&at))
	}
}
