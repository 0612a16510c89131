package meshtest

import (
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/faulty"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// A large input goes over a link, whole or cut ten times, while small orders beside it are given and end. What they take is reported in milliseconds,
// beside what they take on the idle link; both pass 64 MiB a second at most.
func BenchmarkOrdersBesideAnInput(b *testing.B) {
	size := int64(scale.Larger(b, "SPAWNMESH_BLOB_BYTES", 256<<20, 1<<30))
	for name, cuts := range map[string]int64{"whole": 0, "cut": 10} {
		b.Run(name, func(b *testing.B) {
			m := Plan{Slots: 8, Quiet: time.Second}.Start(b, "attic")
			s := m.Spokes["attic"]
			s.Proxy.Slow(0, 64<<20)
			for b.Loop() {
				in := commands.Input{Kind: commands.InputFile, Blob: commands.Blob{Digest: uploaded(b, m, size), Size: size}, Path: "data"}
				report(b, "idle", m.took(b, 300, func() bool { return false }))
				before, done, began := s.Proxy.Passed(faulty.ToSpoke), int64(0), time.Now()
				task := m.Order(b, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}, Inputs: []commands.Input{in}}})
				report(b, "beside", m.took(b, 1<<30, func() bool {
					if done < cuts && s.Proxy.Passed(faulty.ToSpoke)-before > (done+1)*size/(cuts+2) {
						done++
						s.Proxy.Reset()
					}
					return m.Agent(b, task).State.Terminal()
				}))
				require.Equal(b, []any{commands.Completed, cuts}, []any{m.Agent(b, task).State, done})
				b.ReportMetric(float64(size>>20)/time.Since(began).Seconds(), "MiB/s")
				b.ReportMetric(float64(s.Proxy.Passed(faulty.ToSpoke)-before)/float64(size), "sent/size")
			}
		})
	}
}

// report tells what orders took.
func report(b *testing.B, when string, took []time.Duration) {
	for name, at := range map[string]int{"p50": len(took) / 2, "p99": len(took) * 99 / 100} {
		b.ReportMetric(float64(took[at].Microseconds())/1000, when+"-"+name+"-ms")
	}
	b.ReportMetric(float64(len(took)), when+"-orders")
}

// took gives orders one after the other, n at most and until over, and returns how long each took from its order to the hub's word of its end, the shortest first.
func (m *Mesh) took(t testing.TB, n int, over func() bool) (list []time.Duration) {
	for len(list) < n && !over() {
		began := time.Now()
		m.Wait(t, m.Noop(t, "attic"))
		list = append(list, time.Since(began))
	}
	slices.Sort(list)
	return list
}

// uploaded puts random bytes to the hub.
func uploaded(t testing.TB, m *Mesh, size int64) (digest string) {
	random := rand.NewChaCha8([32]byte(slices.Repeat([]byte{byte(time.Now().UnixNano())}, 32)))
	sent, err := control.Answer(control.NewClient(m.Hub.Dir).API().PutBlobWithBodyWithResponse(t.Context(), "application/octet-stream", io.LimitReader(random, size)))
	require.NoError(t, err)
	return sent.Digest
}
