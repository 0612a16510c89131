package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// Make is told that the build is done, and runs the program under test.
func TestInterruptOfMakeDemoEndsItInOrder(t *testing.T) {
	t.Parallel()
	for name, moment := range map[string]string{
		"while the hub starts":   "1. A hub starts",
		"while a spoke joins":    "2. Two spokes join",
		"when the tour is taken": "Press Ctrl-C here to end it.",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keyboard, screen := aTerminal(t, 200)
			demo := exec.CommandContext(t.Context(), "make", "-C", "../..", "-o", "build", "demo", "BIN="+program)
			demo.Stdin, demo.Stdout, demo.Stderr = screen, screen, screen
			demo.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			require.NoError(t, demo.Start())
			require.NoError(t, screen.Close())
			said := &strings.Builder{}
			readUntil(t, keyboard, said, moment)

			_, err := keyboard.WriteString("\x03")

			require.NoError(t, err)
			readUntil(t, keyboard, said, "is removed.")
			require.NoError(t, demo.Wait(), "%s", said)
			require.NotContains(t, said.String(), "***", "make has nothing to complain about")
			dir := regexp.MustCompile(`Everything has ended and (\S+) is removed`).FindStringSubmatch(said.String())
			require.NoDirExists(t, dir[1])
		})
	}
}

func TestDemoPrintsCommandsToPaste(t *testing.T) {
	t.Parallel()
	keyboard, screen := aTerminal(t, 200)
	demo := exec.CommandContext(t.Context(), program, "demo")
	demo.Stdout, demo.Stderr = screen, screen
	require.NoError(t, demo.Start())
	require.NoError(t, screen.Close()) // a demo that ends is not waited for
	said := &strings.Builder{}
	readUntil(t, keyboard, said, "Press Ctrl-C here to end it.")
	paste := regexp.MustCompile(`(?m)^  (/.* spawn .*)\r$`).FindStringSubmatch(said.String())
	require.NotNil(t, paste, "%s", said)

	out, err := exec.CommandContext(t.Context(), "sh", "-c", paste[1]).CombinedOutput()

	require.NoError(t, err, "%s: %s", paste[1], out)
	require.Contains(t, string(out), "Linux", "what uname said, on the spoke")

	dir := regexp.MustCompile(`--data-dir (/\S+)/hub `).FindStringSubmatch(paste[1])
	require.NotNil(t, dir, "%s", paste[1])
	require.NoError(t, demo.Process.Kill())
	for _, name := range []string{"hub", "attic", "cellar"} {
		require.Eventually(t, func() bool { return !control.Runs(t.Context(), filepath.Join(dir[1], name)) }, time.Minute, 100*time.Millisecond, "%s ends with a demo that was killed", name)
	}
	require.NoError(t, os.RemoveAll(dir[1]))
}

// readUntil reads what is shown until text is there.
func readUntil(t *testing.T, keyboard io.Reader, said *strings.Builder, text string) {
	t.Helper()
	b := make([]byte, 4096)
	for !strings.Contains(said.String(), text) {
		n, err := keyboard.Read(b)
		said.Write(b[:n])
		require.NoError(t, err, "waiting for %q in:\n%s", text, said)
	}
}

func TestShellLineIsReadBackByAShell(t *testing.T) {
	t.Parallel()
	words := []string{"plain", "", "two words", `$HOME "q"`, "it's", "*", "~", "größer", `back\slash`, "a;b&c"}

	out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s\\n' "+commands.ShellLine(words)).Output()

	require.NoError(t, err)
	require.Equal(t, strings.Join(words, "\n")+"\n", string(out))
	require.Equal(t, `$'\033[2J'`, commands.ShellLine([]string{"\x1b[2J"}), "what moves the cursor is shown, not printed")
}

// What does not print is written so that a shell expands nothing in it, and reads back the same bytes.
func TestWhatDoesNotPrintIsPastedAsItIs(t *testing.T) {
	t.Parallel()
	for _, w := range []string{"yes\u200b$(echo pwned)", "a\u00a0`echo pwned`", "two\nlines $HOME", `back\slash'` + "\t'quote", "\xff1\u009b7", "\u202eabc", "\ufffd", "a\n'; echo pwned; '"} {
		line := commands.ShellLine([]string{"printf", "%s", w})
		require.NotContains(t, line, "\n")
		out, err := exec.CommandContext(t.Context(), "bash", "-c", line).Output()
		require.NoError(t, err, line)
		require.Equal(t, w, string(out), line)
		out, err = exec.CommandContext(t.Context(), "sh", "-c", line).Output()
		require.NoError(t, err, line)
		require.NotRegexp(t, `^.*[^o ] *pwned`, string(out), line)
	}
}
