package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A claimer that waits at an instance goes on waiting when that stops, or is killed.
func TestAClaimerOutlivesTheInstanceThatItWaitsAt(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]syscall.Signal{"it stops": syscall.SIGTERM, "it is killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startHub(t)
			b := board{hand{t: t, dir: m.Hub.Dir}, "main"}
			b.create("gate", "--not-before", "2090-01-01")
			job := b.begin(b.in([]string{"backlog", "claim", "--owner", "patient", "--wait", "10m", "--json"})...)
			b.waits()
			if end == syscall.SIGKILL {
				m.Hub.Kill()
			} else {
				require.NoError(t, m.Hub.Stop(t.Context()))
			}

			b.create("A1")

			s := job.end()
			var c claim
			require.NoError(t, json.Unmarshal([]byte(s.out), &c), "%s%s", s.out, s.err)
			require.Equal(t, "A1", c.Key)
		})
	}
}

// What a path of the API cannot hold names nothing, and nothing else either.
func TestWhatNoPathHoldsNamesNothing(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".", ".."} {
		for _, line := range []string{"backlog show", "backlog show --id", "backlog reclaim", "backlog reclaim --id", "backlog complete", "backlog claim --id", "backlog link --to A1 --from",
			"budget grant", "budget create", "lane weight", "retention"} {
			args := append(strings.Fields(line), name)
			if slices.Contains([]string{"budget grant", "lane weight", "retention"}, line) {
				args = append(args, "7")
			}
			s := typed(t, args...)
			require.Equal(t, exitMisuse, s.code, "%s: %s", line, s.err)
			require.Contains(t, s.err, fmt.Sprintf("and %q is none", name), line)
		}
		require.Contains(t, typed(t, "backlog", "list", "--workspace", name).err, "lower-case letters")
		require.Contains(t, typed(t, "backlog", "create", "--id", name, "--title", "x").err, "cannot stand in a path")
	}
}
