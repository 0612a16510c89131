package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// keepPrivate keeps what this process has in its memory, keys among it, out of core files and
// from other processes of its user. What it starts decides for itself again.
func keepPrivate() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("allowing no core file of this process: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("closing the memory of this process to others: %w", err)
	}
	return nil
}
