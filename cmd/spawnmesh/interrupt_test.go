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

// An interrupt ends a command that waits for who writes a pipe.
func TestAnInterruptWhileAPipeIsOpened(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	jobs := put(t, "jobs.yaml", "argv: [a]\nstdin_file: "+pipe, 0o600)
	for name, args := range map[string][]string{"jobs": {"spawn", "-f", pipe}, "a file": {"spawn", "--file", pipe + ":x", "--", "a"}, "standard input": {"run", "--stdin-file", pipe, "--", "a"},
		"a secret": {"spawn", "--secret", "X=@" + pipe, "--", "a"}, "a file of a job": {"spawn", "-f", jobs}, "a token": {"spoke", "join", "--token-file", pipe}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := exec.CommandContext(t.Context(), program, append([]string{"--data-dir", t.TempDir()}, args...)...)
			require.NoError(t, c.Start())
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			last := ""
			require.Eventually(t, func() bool {
				before := last
				last = opening(t, c.Process.Pid)
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

// opening says which call to open a file a process is in, "" where in none.
func opening(t *testing.T, pid int) string {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	require.NoError(t, err)
	for _, path := range threads {
		if raw, _ := os.ReadFile(path); strings.HasPrefix(string(raw), fmt.Sprint(unix.SYS_OPENAT, " ")) {
			return path + string(raw)
		}
	}
	return ""
}
