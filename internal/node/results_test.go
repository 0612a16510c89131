package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store"
)

// The hub of a result is who ordered the agent, and the spoke who ran it, whichever of them is asked.
func TestWhoseAResultIs(t *testing.T) {
	t.Parallel()
	at := store.Provenance{Self: "mi1self", Peer: "mi1peer"}

	ordered, hosted := provenanceOf(at, api.Task{}, true), provenanceOf(at, api.Task{}, false)

	require.Equal(t, []string{"mi1self", "mi1peer"}, []string{ordered.Hub, ordered.Spoke}, "it runs away from here")
	require.Equal(t, []string{"mi1peer", "mi1self"}, []string{hosted.Hub, hosted.Spoke}, "it runs here")
}
