package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A spoke whose clock is ahead takes work, as it refuses nothing of its hub; one whose clock is behind takes none.
func TestWhichClockIdlesASpoke(t *testing.T) {
	t.Parallel()
	ahead := &federation.RefusedBeat{Code: signing.TimeFuture, Why: "issued 1h0m0s in this host's future"}
	for name, tt := range map[string]struct {
		change func(s *federation.Standing)
		idles  bool
	}{
		"its heartbeats are of the future": {func(s *federation.Standing) { s.BeatRefused = ahead }, false},
		"its messages are":                 {func(s *federation.Standing) { s.Ahead = ahead }, false},
		"it is behind":                     {func(s *federation.Standing) { s.ClockOffset = "-1h0m0s" }, true},
		"its heartbeats are wrong": {func(s *federation.Standing) {
			s.BeatRefused = &federation.RefusedBeat{Code: commands.Validation, Why: "no"}
		}, true},
	} {
		v := federation.Standing{Connection: store.Connection{State: store.Active}, Linked: true}
		tt.change(&v)
		list := v.Heartbeats()
		require.Len(t, list, 1, name)
		require.Equal(t, tt.idles, idles(list[0]), name)
	}
}
