package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An agent colours its own words and nothing else: no piece of its output moves the cursor, names a
// window, turns the direction of reading, or leaves a colour behind.
func TestAnAgentColoursItsOwnWords(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pieces []string
		want   string
	}{
		"a word":              {[]string{"a \x1b[31mred\x1b[0m b\n"}, "a \x1b[31mred\x1b[0m b\n"},
		"the end of a line":   {[]string{"\x1b[1;32mgo\nnext"}, "\x1b[1;32mgo\x1b[0m\nnext"},
		"between pieces":      {[]string{"\x1b[31mre", "d\n"}, "\x1b[31mre\x1b[0m\x1b[31md\x1b[0m\n"},
		"cut in its sequence": {[]string{"a\x1b", "[3", "1mred\n"}, "a\x1b[31mred\x1b[0m\n"},
		"cut in a character":  {[]string{"caf\xc3", "\xa9\n"}, "café\n"},
		"no text":             {[]string{"\xff\n"}, "\ufffd\n"},
		"the cursor":          {[]string{"\x1b[2J\x1b[1;1H\r\b"}, "·[2J·[1;1H··"},
		"a title":             {[]string{"\x1b]0;x\x07"}, "·]0;x·"},
		"bidi":                {[]string{"\u202eab\u2066"}, "·ab·"},
		"private":             {[]string{"\x1b[?25l\x1b[>4;1m"}, "·[?25l·[>4;1m"},
		"eight bits":          {[]string{"\u009b31mx"}, "·31mx"},
		"one that goes on":    {[]string{"\x1b[" + strings.Repeat("1;", 40)}, "·[" + strings.Repeat("1;", 40)},
		"colours without end": {[]string{strings.Repeat("\x1b[31m", 99), "x"}, strings.Repeat("\x1b[31m", 99) + plain + strings.Repeat("\x1b[31m", 99%25) + "x" + plain},
	} {
		t.Run(name, func(t *testing.T) {
			s := screen{colours: true}
			got := ""
			for _, p := range tt.pieces {
				got += s.show(p)
			}
			require.Equal(t, tt.want, got)
		})
	}
	require.Equal(t, "·[31mred·[0m\n", (&screen{}).show("\x1b[31mred\x1b[0m\n"), "who wants no colours")
}

// Colours are for a terminal that has them, whose user has not said no.
func TestColours(t *testing.T) {
	t.Parallel()
	shown := func(args []string, env map[string]string) string {
		a := &app{output: "table", getenv: func(name string) string { return env[name] }}
		a.noColour = len(args) > 0
		return shownOn(t, 30, 4, func(screen *os.File) error {
			a.out = screen
			return a.print(nil, nil, table{head: []string{"STATE", "COMMAND"}, rows: [][]string{{"running", "running"}, {"failed: exit 3", "a long one that is cut"}, {"queued", ""}}})
		})[2]
	}
	xterm := map[string]string{"TERM": "xterm"}

	require.Equal(t, red+"failed: exit 3"+plain+"  a long one th…", shown(nil, xterm))
	for name, line := range map[string]string{
		"flag":     shown([]string{"--no-color"}, xterm),
		"NO_COLOR": shown(nil, map[string]string{"TERM": "xterm", "NO_COLOR": "1"}),
		"dumb":     shown(nil, map[string]string{"TERM": "dumb"}),
		"no TERM":  shown(nil, nil),
	} {
		require.Equal(t, "failed: exit 3  a long one th…", line, name)
	}
	require.Equal(t, "aa"+red+"bb"+plain+"…", paint("aabb…", []stretch{{2, 4, red}, {9, 12, green}}))
	for words, colour := range map[string]string{"running": green, "ok": green, "takes work": green, "lost": red, "refused": red, "WRONG: x": red, "orders nothing": red, "failing": red, "queued again": yellow, "is not linked (4m)": yellow, "completed": "", "killed": ""} {
		require.Equal(t, colour, colourOf(words), words)
	}
}
