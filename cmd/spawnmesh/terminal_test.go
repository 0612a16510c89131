package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// shownOn returns the first lines that print puts on a terminal of so many columns.
func shownOn(t *testing.T, columns, lines int, print func(screen *os.File) error) []string {
	t.Helper()
	keyboard, screen := aTerminal(t, columns)
	require.NoError(t, print(screen))
	got, text := make([]byte, 4096), ""
	for strings.Count(text, "\n") < lines {
		n, err := keyboard.Read(got)
		require.NoError(t, err)
		text += string(got[:n])
	}
	return strings.Split(strings.ReplaceAll(text, "\r", ""), "\n")
}

// aTerminal returns both ends of a new terminal of so many columns: what is written to keyboard is
// typed, and what a program writes to screen is read from keyboard.
func aTerminal(t *testing.T, columns int) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}))
	t.Cleanup(func() { keyboard.Close(); screen.Close() })
	return keyboard, screen
}

// A prompted person types when asked, and keeps what was shown.
type prompted struct {
	bytes.Buffer
	keyboard *os.File
	answer   string
}

func (p *prompted) Write(text []byte) (int, error) {
	if bytes.HasSuffix(text, []byte("[y/N] ")) {
		if _, err := p.keyboard.WriteString(p.answer); err != nil {
			return 0, err
		}
	}
	return p.Buffer.Write(text)
}

// answers runs a command in this process at a terminal where answer is typed when it asks.
func answers(t *testing.T, keyboard, screen *os.File, answer string, args ...string) said {
	t.Helper()
	var out bytes.Buffer
	errOut := &prompted{keyboard: keyboard, answer: answer}
	code := run(t.Context(), &app{in: screen, out: &out, err: errOut, getenv: func(string) string { return "" }}, args)
	return said{out.String(), errOut.String(), code}
}

func TestAtATerminal(t *testing.T) {
	t.Parallel()
	keyboard, screen := aTerminal(t, 30)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	t.Cleanup(func() { null.Close() })
	require.True(t, terminal(screen))
	require.False(t, terminal(null), "not everything that is a device is a terminal")
	require.False(t, terminal(&bytes.Buffer{}))
	at := func(in io.Reader, args ...string) said {
		var out, errOut bytes.Buffer
		code := run(t.Context(), &app{in: in, out: &out, err: &errOut, getenv: func(string) string { return "" }}, append([]string{"--data-dir", t.TempDir()}, args...))
		return said{out.String(), errOut.String(), code}
	}
	revoke := []string{"connections", "revoke", "attic", "--reason", "sold"}

	for answer, want := range map[string]int{"n\n": exitMisuse, "\n": exitMisuse, "yes please\n": exitMisuse, "y\n": exitUnreachable, "YES\n": exitUnreachable} {
		_, err := keyboard.WriteString(strings.Repeat("y\n", 1000))
		require.NoError(t, err, "what is typed before it is asked is no answer")
		s := answers(t, keyboard, screen, answer, append([]string{"--data-dir", t.TempDir()}, revoke...)...)
		require.Equal(t, want, s.code, "%q: %s", answer, s.err)
		require.Contains(t, s.err, "revoke attic? [y/N] ")
	}
	for _, in := range []io.Reader{null, strings.NewReader("y\n")} {
		s := at(in, revoke...)
		require.Equal(t, exitMisuse, s.code)
		require.NotContains(t, s.err, "[y/N]", "nobody is there to be asked")
	}
	_, err = keyboard.WriteString("garbage\n")
	require.NoError(t, err)
	s := at(screen, "spoke", "join")
	require.Equal(t, exitMisuse, s.code)
	require.Contains(t, s.err, "paste the token here")

	require.Equal(t, 30, columnsOf(screen))
	require.Zero(t, columnsOf(&bytes.Buffer{}))
	a := &app{out: screen, output: "table"}
	wide := table{head: []string{"NAME"}, rows: [][]string{{strings.Repeat("x", 50)}}}
	require.NoError(t, a.print(nil, nil, wide))
	fmt.Fprintln(screen, "END")
	got := make([]byte, 4096)
	var text string
	for !strings.Contains(text, "END") {
		n, err := keyboard.Read(got)
		require.NoError(t, err)
		text += string(got[:n])
	}
	require.Contains(t, text, "\n"+strings.Repeat("x", 29)+"…\r\n")
}
