package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// Who waits for an agent reads at once what it waits for, and whenever that changes.
func TestWhoWaitsIsToldForWhat(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	for _, how := range []string{"--wait", "--follow"} {
		g, id := newGate(t), newID()
		h.do("connections", "suspend", "attic", "--reason", "holiday")
		said := filepath.Join(t.TempDir(), "said")
		file, err := os.Create(said)
		require.NoError(t, err)
		c := h.command(t.Context(), "spawn", "--spoke", "attic", "--id", id, how, "--", "sh", "-c", g.wait()+"; exit 3")
		c.Stderr = file
		require.NoError(t, c.Start())
		lines := []string{"the connection with attic, which is suspended\n", "on attic: it is running\n"}
		short := commands.ShortID(id) + " on attic: "
		for i, line := range lines {
			require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for "+line, func() (bool, error) {
				text, err := os.ReadFile(said)
				return strings.Contains(string(text), line), err
			}))
			if i == 0 {
				h.do("connections", "resume", "attic")
			}
		}
		g.open(t)

		require.Error(t, c.Wait())

		require.Equal(t, exitFailed, c.ProcessState.ExitCode())
		text, err := os.ReadFile(said)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), short+"it waits for "+lines[0]), "%s", text)
		require.Equal(t, 1, strings.Count(string(text), short+"it is running\n"), "%s", text)
		require.NotContains(t, string(text), "\x1b")
	}
	g := newGate(t)
	defer g.open(t)
	s := h.run("", "spawn", "--spoke", "attic", "--wait", "--wait-timeout", "1s", "--", "sh", "-c", g.wait())
	require.Equal(t, exitInterrupted, s.code)
	require.Regexp(t, `this has waited for as long as it was told to; agent \w{8} goes on\n +see: spawnmesh .* status \w{8}\n$`, s.err)
	require.NotContains(t, h.run("", "-o", "name", "run", "--", "true").err, " on attic: ", "a program asks for the id")
	keyboard, screen := aTerminal(t, 80)
	c := h.command(t.Context(), "run", "--spoke", "attic", "--", "printf", "abc")
	c.Stdout, c.Stderr = screen, screen
	require.NoError(t, c.Run())
	var shown strings.Builder
	readUntil(t, keyboard, &shown, " completed\r\n")
	require.Regexp(t, `(^|\r\n)abc\r\n(.* on attic: .*\r\n)*agent \w{8} completed\r\n$`, shown.String())
}

// On a terminal a line of progress begins a line, also behind output that has not ended its own.
func TestProgressBeginsALine(t *testing.T) {
	t.Parallel()
	keyboard, screen := aTerminal(t, 80)
	to := &sharedErr{to: screen, screen: true}
	out := sharedOut{to, screen}
	write := func(w io.Writer, text string) {
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}

	write(out, "to output")
	to.progress("it waits")
	write(to, "to error")
	to.progress("it runs")
	write(out, "a whole line\n")
	to.progress("it runs again")
	write(out, "the last")
	to.end()
	write(screen, "END")

	var shown strings.Builder
	readUntil(t, keyboard, &shown, "END")
	require.Equal(t, "to output\r\nit waits\r\nto error\r\nit runs\r\na whole line\r\nit runs again\r\nthe last\r\nEND", shown.String())
	var pipe bytes.Buffer
	to = &sharedErr{to: &pipe}
	write(to, "to error")
	to.progress("it waits")
	require.Equal(t, "to errorit waits\n", pipe.String(), "a file has what the agent wrote")
}

// On a terminal a line of progress gives way to the next one, and to what is said otherwise.
func TestProgressOnATerminalStaysInItsPlace(t *testing.T) {
	t.Parallel()
	keyboard, screen := aTerminal(t, 20)
	to := &sharedErr{to: screen, inPlace: true}
	to.progress("it waits")
	to.progress("it runs " + strings.Repeat("x", 30))
	_, err := to.Write([]byte("said otherwise\n"))
	require.NoError(t, err)
	_, err = to.Write([]byte("more\n"))
	require.NoError(t, err)
	want := "it waits" + clearLine + "it runs xxxxxxxxxx…" + clearLine + "said otherwise\r\nmore\r\n"
	got := make([]byte, len(want))

	for n := 0; n < len(got); {
		some, err := keyboard.Read(got[n:])
		require.NoError(t, err)
		n += some
	}

	require.Equal(t, want, string(got))
	var pipe bytes.Buffer
	(&sharedErr{to: &pipe}).progress("it waits")
	require.Equal(t, "it waits\n", pipe.String())
}
