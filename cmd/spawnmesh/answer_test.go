package main

import (
	"bytes"
	"cmp"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
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

// Who loses the answer to an act learns what was done, and what to type next.
func TestALostAnswerSaysWhatWasDone(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, out := hand{t: t, dir: m.Hub.Dir}, full(t)
	self := "spawnmesh --data-dir " + h.dir + " "
	acts := []struct {
		line   string
		says   string // after the first line
		follow string // a command line that has to work
	}{
		{"invite --name loft", "the invite ID for loft was made, and its token is lost; revoke it and make another: ", "invite revoke ID"},
		{"-o json invite --name loft", "the invite ID for loft was made, and its token is lost; revoke it and make another: ", "invite revoke ID"},
		{"spawn -- true", "agent ID was ordered on attic; see: ", "status ID"},
		{"spawn -o name -- true", "agent ID was ordered on attic; see: ", "status ID"},
		{"spawn --wait -- true", "agent ID was ordered on attic; see: ", "status ID"},
		{"spawn --follow -- echo hi", "agent ID was ordered on attic; see: ", "status ID"},
		{"-o json spawn --wait -- false", "agent ID was ordered on attic; see: ", "status ID"},
		{"backlog create --title x --id A1", "task A1 was created; see: ", "backlog show A1"},
		{"backlog create --title x --id A1 --workspace other", "task A1 was created; see: ", "backlog show A1 --workspace other"},
		{"backlog claim", "claimed A1, and the fence is lost; give it back: ", "backlog reclaim --id A1"},
		{"backlog complete A1", "A1 is completed; see: ", "backlog show A1"},
		{"budget create b --dimension usd --hard 1", "the budget is changed; see: ", "budget show b"},
		{"keys rotate", "the new signing key is KEY; see: ", "keys list"},
		{"connections suspend attic --reason x", "attic is suspended; see: ", "connections show attic"},
	}
	for _, act := range acts {
		s := h.runInto(out, strings.Fields(act.line)...)

		require.Equal(t, exitUnexpected, s.code, "%s: %s", act.line, s.err)
		require.Contains(t, s.err, "the answer could not be written to standard output: write /dev/stdout: no space left on device", act.line)
		id := ""
		if named := regexp.MustCompile(`(?:agent|kill of|invite) (\w{8}(?:(?:-\w{4}){3}-\w{12})?) `).FindStringSubmatch(s.err); named != nil {
			id = named[1]
		}
		text := regexp.MustCompile(`ed25519:[\w-]+`).ReplaceAllString(s.err, "KEY")
		require.Contains(t, text, strings.ReplaceAll(act.says+self+act.follow, "ID", cmp.Or(id, "ID")), act.line)
		h.do(strings.Fields(strings.ReplaceAll(act.follow, "ID", id))...)
	}
	for _, list := range []string{"agents", "connections list", "connections show attic", "audit list", "backlog list", "invite list", "keys list", "retention"} {
		for _, format := range []string{"table", "name", "json", "ndjson"} {
			s := h.runInto(out, append(strings.Fields(list), "-o", format)...)
			require.Equal(t, exitUnexpected, s.code, "%s -o %s: %s", list, format, s.err)
			require.Contains(t, s.err, "no space left on device")
		}
	}
}
