package supervisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
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

// BenchmarkShim compares what a shim is paid for, in processor time from start to
// exit: the product as a shim that does nothing, an empty Go program, and true.
func BenchmarkShim(b *testing.B) {
	dir := b.TempDir()
	require.NoError(b, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	product, empty := filepath.Join(dir, "spawnmesh"), filepath.Join(dir, "empty")
	built(b, product, "../../cmd/spawnmesh")
	built(b, empty, filepath.Join(dir, "main.go"))
	runs := []struct {
		name string
		argv []string
	}{{"an empty program", []string{empty}}, {"a shim", []string{product, attempt.ShimArg, attempt.ProbeArg}}, {"true", []string{"/bin/true"}}}
	used := map[string]time.Duration{}
	for b.Loop() {
		for _, r := range runs {
			c := exec.Command(r.argv[0], r.argv[1:]...)
			c.Env = []string{"GOMAXPROCS=1"}
			require.NoError(b, c.Run())
			used[r.name] += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
		}
	}
	for _, r := range runs {
		b.ReportMetric(float64(used[r.name].Microseconds())/float64(b.N), "µs/"+strings.ReplaceAll(r.name, " ", "-"))
	}
	b.ReportMetric(float64(used["a shim"])/float64(used["an empty program"]), "x-empty")
}

// built builds as make build does.
func built(b *testing.B, to, from string) {
	c := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, from)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	require.NoError(b, err, "%s", out)
}
