package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// The link is cut for a while, in either direction and in both, while agents run
// and orders are given: orders wait, results wait, both arrive, and every agent
// runs once. make chaos cuts for a minute each time.
func TestLinkCut(t *testing.T) {
	t.Parallel()
	cut := 3 * time.Second
	if text := os.Getenv("SPAWNMESH_CUT"); text != "" {
		var err error
		cut, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	m, proxy := startMeshBehindProxy(t)
	tr := newTrace(t)
	tests := map[string]func(){
		"cut":                        proxy.Cut,
		"nothing reaches the spoke":  func() { proxy.Swallow(meshtest.ToSpoke) },
		"nothing reaches the hub":    func() { proxy.Swallow(meshtest.ToHub) },
		"nothing reaches either one": func() { proxy.Swallow(meshtest.ToSpoke, meshtest.ToHub) },
	}
	for name, break_ := range tests {
		t.Run(name, func(t *testing.T) {
			running, during := newID(), newID()
			require.NoError(t, m.Order(t.Context(), running, tr.agent(running, "1")))
			require.NoError(t, fleet.Poll(t.Context(), 30*time.Second, "waiting for the agent", func() (bool, error) {
				starts, _ := tr.counts(t)
				return starts[running] == 1, nil
			}))

			break_()
			began := time.Now()
			require.NoError(t, m.Order(t.Context(), during, tr.agent(during, "0")))
			require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the end of the agent's work", func() (bool, error) {
				_, ends := tr.counts(t)
				return ends[running] == 1 && time.Since(began) >= cut, nil
			}))
			proxy.Heal()

			for _, id := range []string{running, during} {
				v, err := m.Ended(t.Context(), id, 2*time.Minute)
				require.NoError(t, err)
				require.Equal(t, commands.Completed, v.State, "%s", v.Sentence())
			}
			t.Logf("cut for %s, all arrived %s after it healed", cut, time.Since(began.Add(cut)).Round(time.Millisecond))
			starts, ends := tr.counts(t)
			require.Equal(t, []int{1, 1, 1, 1}, []int{starts[running], ends[running], starts[during], ends[during]})
		})
	}
	require.NoError(t, m.Settled(t.Context()))
}

// startMeshBehindProxy is startMesh with a proxy that the spoke dials.
func startMeshBehindProxy(t *testing.T) (*fleet.Mesh, *meshtest.Proxy) {
	t.Helper()
	proxy := meshtest.NewProxy(t, "127.0.0.1:1")
	m := startHub(t, "--advertise", proxy.Addr())
	proxy.Target(m.Hub.Args[3])
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s"))
	return m, proxy
}
