package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// An interrupt ends each command that waits for who writes what it reads: a pipe that it names, or standard input.
func TestAnInterruptEndsWhatReads(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	jobs := put(t, "jobs.yaml", "argv: [a]\nstdin_file: "+pipe, 0o600)
	for _, line := range []string{
		"spawn -f " + pipe, "spawn -f -", "spawn -f " + jobs, "spawn --file " + pipe + ":x -- a", "run --stdin-file " + pipe + " -- a", "run --stdin -- a",
		"spawn --secret X=@" + pipe + " -- a", "spawn --secret-file X=@" + pipe + " -- a", "spoke join --token-file " + pipe, "spoke join",
		"api POST /tasks -f " + pipe, "api POST /tasks -f -", "backlog create --title a --body-file " + pipe, "backlog create --title a --body-file -",
		"backlog complete A1 --result @" + pipe, "backlog fail A1 --reason a --result @" + pipe, "backlog grant verify -",
		"worker checkpoint " + pipe, "worker checkpoint -", "audit verify " + pipe, "audit verify --checkpoint " + pipe, "worker done --data " + pipe, "worker ask a --data -",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			c := exec.CommandContext(t.Context(), program, append([]string{"--data-dir", t.TempDir()}, strings.Fields(line)...)...)
			in, err := c.StdinPipe()
			require.NoError(t, err)
			defer in.Close()
			require.NoError(t, c.Start())
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			last := ""
			require.Eventually(t, func() bool {
				before := last
				last = reading(t, c.Process.Pid)
				return last != "" && last == before
			}, time.Minute, 20*time.Millisecond, "it waits for who writes")
			require.NoError(t, c.Process.Signal(os.Interrupt))
			select {
			case <-ended:
				require.Equal(t, exitInterrupted, c.ProcessState.ExitCode())
			case <-time.After(30 * time.Second):
				require.Fail(t, "an interrupt does not end it")
			}
		})
	}
}

// reading says which call to open a file, or to read standard input, a process is in, "" where in none.
func reading(t *testing.T, pid int) string {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	require.NoError(t, err)
	for _, path := range threads {
		raw, _ := os.ReadFile(path)
		if strings.HasPrefix(string(raw), fmt.Sprint(unix.SYS_OPENAT, " ")) || strings.HasPrefix(string(raw), fmt.Sprint(unix.SYS_READ, " 0x0 ")) {
			return path + string(raw)
		}
	}
	return ""
}

// hugeFile is a file of more than any message, which takes no room.
func hugeFile(t *testing.T) string {
	t.Helper()
	name := put(t, "huge", "", 0o600)
	require.NoError(t, os.Truncate(name, mostSaid+1))
	return name
}

// What is named is read to a bound, which is said, and a secret is no pipe: nobody waits for it.
func TestWhatIsReadHasABound(t *testing.T) {
	t.Parallel()
	dir, large := t.TempDir(), put(t, "large", strings.Repeat("x", mostBody+1), 0o600)
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	h := hand{t: t, dir: dir}
	for line, want := range map[string]string{
		"api POST /tasks -f " + large:                        "reading --file: " + large + " has more than 1 MiB",
		"backlog create --title a --body-file " + large:      "reading --body-file: " + large + " has more than 64 KiB",
		"backlog complete A1 --result @" + large:             "reading --result: " + large + " has more than 64 KiB",
		"spoke join --token-file " + large:                   "reading --token-file: " + large + " has more than 8 KiB",
		"spawn --secret X=@" + large + " -- a":               "reading --secret X: " + large + " has more than 64 KiB",
		"run --stdin-file " + large + " -- a":                "reading --stdin-file: " + large + " has more than 96 KiB",
		"backup " + dir + "/b --passphrase-file " + large:    "reading --passphrase-file: " + large + " has more than 4 KiB",
		"restore " + dir + " --identity " + large:            "reading --identity: " + large + " has more than 64 KiB",
		"backup " + dir + "/b --passphrase-file " + pipe:     "reading --passphrase-file: " + pipe + " is not a regular file",
		"restore " + dir + " --identity " + pipe:             "reading --identity: " + pipe + " is not a regular file",
		"worker checkpoint " + large:                         "reading the checkpoint: " + large + " has more than 1 MiB",
		"message send --type x-a --file " + hugeFile(t):      "has more than 16 MiB",
		"audit verify --checkpoint " + large:                 "reading --checkpoint: " + large + " has more than 1 MiB",
		"context add a --url https://a --token-file " + pipe: pipe + " is not a regular file",
		"backlog complete A1 --result @":                     "reading --result: open",
		"spawn --secret X=@ -- a":                            "reading --secret X: open",
	} {
		h.refused(exitMisuse, want, strings.Fields(line)...)
	}
	for line, want := range map[string]string{"api POST /tasks -f -": "reading --file", "backlog create --title a --body-file -": "reading --body-file",
		"spoke join": "reading the token", "backlog grant verify -": "reading the grant", "run --stdin -- a": "reading --stdin"} {
		s := h.run(strings.Repeat("x", mostBody+1), strings.Fields(line)...)
		require.Equal(t, exitMisuse, s.code, s.err)
		require.Contains(t, s.err, want+": standard input has more than ")
	}
}
