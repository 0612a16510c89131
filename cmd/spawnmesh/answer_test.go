package main

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// full opens a standard output that takes nothing.
func full(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// typedInto runs a command line in this process, with this standard output.
func typedInto(t *testing.T, out *os.File, args ...string) said {
	t.Helper()
	var errOut bytes.Buffer
	code := run(t.Context(), &app{in: strings.NewReader(""), out: out, err: &errOut, getenv: func(string) string { return "" }}, args)
	return said{"", errOut.String(), code}
}

// runInto is run with this standard output.
func (h hand) runInto(out *os.File, args ...string) said {
	h.t.Helper()
	c := h.command(h.t.Context(), args...)
	var errOut bytes.Buffer
	c.Stdout, c.Stderr = out, &errOut
	if err := c.Run(); c.ProcessState == nil {
		require.NoError(h.t, err)
	}
	return said{"", errOut.String(), c.ProcessState.ExitCode()}
}

const lost = "the answer could not be written to standard output: write /dev/full: no space left on device"

// An answer that cannot be written is no success, whatever was asked.
func TestAnAnswerThatIsLost(t *testing.T) {
	t.Parallel()
	out, dir := full(t), t.TempDir()
	lines := [][]string{{}, {"version"}, {"version", "-o", "name"}, {"version", "-o", "json"}, {"help"}, {"help", "spawn"}, {"completion", "bash"}, {"__complete", "connections", "s"},
		{"spoke", "policy", "show"}, {"doctor", "-o", "name"}}
	everyCommand(func(_ *cobra.Command, path []string) {
		lines = append(lines, append(path[:len(path):len(path)], "--help"))
	})
	for _, line := range lines {
		s := typedInto(t, out, append([]string{"--data-dir", dir}, line...)...)

		require.Equal(t, exitUnexpected, s.code, "%v", line)
		require.Contains(t, s.err, lost, "%v", line)
	}
	s := typedInto(t, out, "--data-dir", dir, "spoke", "policy", "test", "--", "true")
	require.Equal(t, exitRefused, s.code, "nothing was to be written")
}

// An act is a command that changes something, and what is said of it where its answer is lost.
type act struct {
	line   string
	says   string // after the first line
	follow string // a command line that has to work
}

// actsOf are lines of acts on a hub, of which failed is an agent that has failed and open one that runs.
func actsOf(failed, open string) []act {
	file := "--cron @daily --spoke attic -- true"
	return []act{
		{"invite --name loft", "the invite ID for loft was made, and its token is lost; revoke it and make another: ", "invite revoke ID"},
		{"-o json invite --name loft", "the invite ID for loft was made, and its token is lost; revoke it and make another: ", ""},
		{"invite revoke loft", "the invite for loft is revoked; see: ", "invite list"},
		{"spawn -- true", "agent ID was ordered on attic; see: ", "status ID"},
		{"spawn -o name -- true", "agent ID was ordered on attic; see: ", "status ID"},
		{"spawn --wait -- true", "agent ID was ordered on attic; see: ", "status ID"},
		{"spawn --follow -- echo hi", "agent ID was ordered on attic; see: ", "status ID"},
		{"-o json spawn --wait -- false", "agent ID was ordered on attic; see: ", "status ID"},
		{"run -- echo hi", "agent ID was ordered on attic; see: ", "status ID"},
		{"pause " + open, "the pause of " + open + " is ordered; see: ", "status " + open},
		{"resume " + open, "the resume of " + open + " is ordered; see: ", "status " + open},
		{"cancel " + open + " --graceful --reason x", "the cancel of " + open + " is ordered; see: ", "status " + open},
		{"kill --all --yes --grace 0s --reason x", "the kill of 1 agent is ordered; see: ", "agents"},
		{"retry " + failed, "agent ID was ordered on attic; see: ", "status ID"},
		{"label " + failed + " a=b", "agent " + failed + " has the labels a=b", ""},
		{"archive " + failed, "agent " + failed + " is archived", ""},
		{"unarchive " + failed, "agent " + failed + " is in lists again", ""},
		{"schedule create nightly " + file, "the schedule nightly was created; see: ", "schedule show nightly"},
		{"schedule change nightly --cron @weekly", "the schedule nightly was changed; see: ", "schedule show nightly"},
		{"schedule pause nightly --reason x", "the schedule nightly is paused; see: ", "schedule show nightly"},
		{"schedule resume nightly", "the schedule nightly goes on; see: ", "schedule show nightly"},
		{"schedule run nightly", "agent ID was ordered on attic; see: ", "status ID"},
		{"schedule delete nightly --yes", "the schedule nightly is deleted", ""},
		{"webhook create pager https://receiver.invalid/in --state cancelled", "webhook pager was created; its receiver verifies by the key WEBHOOK; see: ", "webhook show pager"},
		{"webhook rotate pager", "webhook pager is signed by the key WEBHOOK; see: ", "webhook show pager"},
		{"webhook disable pager --reason x", "webhook pager is disabled; see: ", "webhook show pager"},
		{"webhook enable pager", "webhook pager is told of what changes from now on; see: ", "webhook show pager"},
		{"webhook delete pager --yes", "webhook pager is deleted", ""},
		{"backlog create --title x --id A1", "task A1 was created; see: ", "backlog show A1"},
		{"backlog create --title x --id A1 --workspace other", "task A1 was created; see: ", "backlog show A1 --workspace other"},
		{"backlog create --title y --id A2 --depends-on A1", "task A2 was created; see: ", "backlog show A2"},
		{"backlog claim", "claimed A1, and the fence is lost; give it back: ", "backlog reclaim --id A1"},
		{"backlog unlink --from A2 --to A1", "it was done; see: ", "backlog show A2"},
		{"backlog link --from A2 --to A1", "it was done; see: ", "backlog show A2"},
		{"backlog complete A1", "A1 is completed; see: ", "backlog show A1"},
		{"backlog archive A1", "A1 is archived", ""},
		{"backlog archive --older-than 1d", "0 tasks archived", ""},
		{"backlog unarchive A1", "A1 is in lists again", ""},
		{"backlog grant rotate", "new grants are signed with the key ", ""},
		{"budget create b --dimension usd --hard 1", "the budget is changed; see: ", "budget show b"},
		{"budget grant b 1 --reason x", "the budget is changed; see: ", "budget show b"},
		{"budget reset b --reason x --yes", "the budget is changed; see: ", "budget show b"},
		{"budget remove b --reason x --yes", "budget b is removed", ""},
		{"quota create q --concurrent 1", "the quota is changed; see: ", "quota show q"},
		{"quota remove q --reason x --yes", "quota q is removed", ""},
		{"lane pause slow --reason x", "lane slow is paused, weight 1; see: ", "lane list"},
		{"lane drain slow --reason x", "lane slow is draining, weight 1; see: ", "lane list"},
		{"lane disable slow --reason x", "lane slow is disabled, weight 1; see: ", "lane list"},
		{"lane resume slow", "lane slow is active, weight 1; see: ", "lane list"},
		{"lane weight slow 2", "lane slow is active, weight 2; see: ", "lane list"},
		{"freeze --scope lane:slow --reason x", "lane:slow is frozen; see: ", "freeze list"},
		{"unfreeze --scope lane:slow --reason x --workspace main", "lane:slow is no longer frozen; see: ", "freeze list"},
		{"message send --type x-note --payload 1", "message 1 is stored; see: ", ""},
		{"message reader drop eve", "the reader eve is forgotten", ""},
		{"retention tasks 7d", "tasks are kept for 7d; see: ", "retention"},
		{"keys rotate", "the new signing key is KEY; see: ", "keys list"},
		{"keys revoke current --reason x", "the new signing key is KEY; see: ", "keys list"},
		{"token create --name board --role viewer --workspace *", "the token board was made, and its text is lost; revoke it and make another: ", ""},
		{"token revoke board", "the token board is revoked; see: ", "token list"},
		{"connections resync attic", "both sides of attic agree; see: ", "connections show attic"},
		{"connections suspend attic --reason x", "attic is suspended; see: ", "connections show attic"},
		{"connections resume attic", "attic is active; see: ", "connections show attic"},
		{"connections revoke attic --reason x --yes", "attic is revoked; see: ", "connections show attic"},
	}
}

// What lines of acts do not have: commands that change nothing, or nothing that their answer alone tells; those that
// run until they are stopped; and those whose tests are elsewhere, as a worker's.
var noActs = regexp.MustCompile(`^$|^(api|bench|completion|config|conformance|context|demo|doctor|health|help|hub|spoke|version|worker|why|status|result|fetch|diff|logs|agents|spokes|events|inbox|backup|restore|audit|workspace)( |$)` +
	`|^(\S+ )?(list|show|stats|fires|deliveries)$|^backlog (why|audit|grant verify)$|^review diff$|^message (poll|thread|export|dead list|reader list)$`)

// actsElsewhere are acts whose lines need more than a hub with a spoke has: the verbs of a task say all the same (sayTask).
var actsElsewhere = []string{"answer", "review", "review approve", "review request-changes", "review merge", "webhook test", "webhook resend", "connections grant", "token confirm", "backlog renew", "backlog reclaim", "backlog fail", "backlog release", "backlog block", "backlog unblock", "backlog pause", "backlog resume", "backlog cancel", "backlog retry", "message ack", "message dead", "message dead retry", "message dead drop"}

// Every command that changes something is among the acts of [TestALostAnswerSaysWhatWasDone].
func TestEveryActIsTried(t *testing.T) {
	t.Parallel()
	var tried []string
	for _, act := range actsOf("ID", "ID") {
		tried = append(tried, strings.TrimPrefix(act.line, "-o json ")+" ")
	}
	everyCommand(func(c *cobra.Command, path []string) {
		line := strings.Join(path, " ")
		if !c.Runnable() || noActs.MatchString(line) || slices.Contains(actsElsewhere, line) {
			return
		}
		require.True(t, slices.ContainsFunc(tried, func(act string) bool { return strings.HasPrefix(act, line+" ") }), "what does %q say where its answer is lost?", line)
	})
}

// Who loses the answer to an act learns what was done, and what to type next.
func TestALostAnswerSaysWhatWasDone(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, out, g := hand{t: t, dir: m.Hub.Dir}, full(t), newGate(t)
	failed, open := h.spawn("--spoke", "attic", "--", "false"), h.spawn("--spoke", "attic", "--", "sh", "-c", g.wait())
	h.ends(failed)
	h.runs(open)
	h.do("message", "poll", "--as", "eve")
	self, followed := "spawnmesh --data-dir "+h.dir+" ", map[string]bool{}
	for _, act := range actsOf(commands.ShortID(failed), commands.ShortID(open)) {
		s := h.runInto(out, strings.Fields(act.line)...)

		require.Equal(t, exitUnexpected, s.code, "%s: %s", act.line, s.err)
		require.Contains(t, s.err, "the answer could not be written to standard output: write /dev/stdout: no space left on device", act.line)
		id := ""
		if named := regexp.MustCompile(`(?:agent|kill of|invite) (\w{8}(?:(?:-\w{4}){3}-\w{12})?) `).FindStringSubmatch(s.err); named != nil {
			id = named[1]
		}
		text := regexp.MustCompile(`ed25519:[\w-]+`).ReplaceAllString(s.err, "KEY")
		text = regexp.MustCompile(`whpk_[\w+/=]+`).ReplaceAllString(text, "WEBHOOK")
		says := act.says
		if act.follow != "" {
			says += self + act.follow
		}
		require.Contains(t, text, strings.ReplaceAll(says, "ID", cmp.Or(id, "ID")), act.line)
		if line := strings.ReplaceAll(act.follow, "ID", id); line != "" && !followed[line] {
			h.do(strings.Fields(line)...)
			followed[line] = true
		}
	}
	g.open(t)
	exported := filepath.Join(t.TempDir(), "audit.jsonl")
	require.Contains(t, h.runInto(out, "audit", "export", exported).err, exported+" was written; see: "+self+"audit verify "+exported)
	require.FileExists(t, exported)
	for _, list := range []string{"agents", "connections list --all", "connections show attic", "audit list", "backlog list", "invite list", "keys list", "retention"} {
		for _, format := range []string{"table", "name", "json", "ndjson"} {
			s := h.runInto(out, append(strings.Fields(list), "-o", format)...)
			require.Equal(t, exitUnexpected, s.code, "%s -o %s: %s", list, format, s.err)
			require.Contains(t, s.err, "no space left on device")
		}
	}
}
