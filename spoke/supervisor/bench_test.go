package supervisor

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkStart runs /bin/true and reports, per run, the time until it was
// proven started and until its end was proven.
func BenchmarkStart(b *testing.B) {
	for name, noCgroup := range map[string]bool{"host level": false, "level tree": true} {
		b.Run(name, func(b *testing.B) {
			base := b.TempDir()
			var started, done time.Duration
			for b.Loop() {
				begin := time.Now()
				a, err := Start(b.Context(), filepath.Join(base, newMarker()), Spec{Argv: []string{"/bin/true"}, Dir: "/", NoCgroup: noCgroup})
				require.NoError(b, err)
				started += time.Since(begin)
				<-a.Done()
				done += time.Since(begin)
				require.NoError(b, a.Close())
			}
			b.ReportMetric(float64(started.Microseconds())/float64(b.N), "µs/started")
			b.ReportMetric(float64(done.Microseconds())/float64(b.N), "µs/done")
		})
	}
}

// BenchmarkParallel runs as many agents at once as there are processors,
// times four.
func BenchmarkParallel(b *testing.B) {
	base := b.TempDir()
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			a, err := Start(b.Context(), filepath.Join(base, newMarker()), Spec{Argv: []string{"/bin/true"}, Dir: "/"})
			require.NoError(b, err)
			<-a.Done()
			require.NoError(b, a.Close())
		}
	})
}

// BenchmarkKill ends a tree of five that ignores TERM.
func BenchmarkKill(b *testing.B) {
	for name, noCgroup := range map[string]bool{"host level": false, "level tree": true} {
		b.Run(name, func(b *testing.B) {
			base := b.TempDir()
			var killing time.Duration
			for b.Loop() {
				spec := sh(`trap "" TERM; for i in 1 2 3; do setsid sleep 600 & done; sleep 600`)
				spec.NoCgroup = noCgroup
				a, err := Start(b.Context(), filepath.Join(base, newMarker()), spec)
				require.NoError(b, err)
				for usage := (Usage{}); usage.Processes < 5; {
					usage, err = a.Usage()
					require.NoError(b, err)
				}
				begin := time.Now()
				require.NoError(b, a.Kill(b.Context(), "enough", 0))
				killing += time.Since(begin)
				require.NoError(b, a.Close())
			}
			b.ReportMetric(float64(killing.Microseconds())/float64(b.N), "µs/kill")
		})
	}
}
