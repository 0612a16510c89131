package main

import (
	"encoding/json"
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
	b := alone(t)
	b.create("A1")
	for _, name := range []string{".", ".."} {
		for _, verb := range []string{"show", "reclaim", "complete", "claim"} {
			b.hand.refused(exitNotFound, "nothing is called", "backlog", verb, name)
		}
		b.hand.refused(exitNotFound, "no budget", "budget", "show", name)
		b.hand.refused(exitNotFound, "no lane", "lane", "pause", name, "--reason", "x")
		b.hand.refused(exitNotFound, "nothing is called", "retention", name, "7d")
		b.hand.refused(exitMisuse, "lower-case letters", "backlog", "list", "--workspace", name)
		b.hand.refused(exitMisuse, "cannot stand in a path", "backlog", "create", "--id", name, "--title", "x")
	}
}
