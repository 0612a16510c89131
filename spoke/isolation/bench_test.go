package isolation

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// BenchmarkLevels measures what each level adds to an agent: the median until it runs, and until
// its user is given up. The levels take turns, so that a busy machine is so for all of them.
func BenchmarkLevels(b *testing.B) {
	dir, err := os.MkdirTemp("", "isolation")
	require.NoError(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	i := Open(dir, 0)
	b.Cleanup(func() { require.NoError(b, i.Close()) })
	starts, wholes := map[string][]time.Duration{}, map[string][]time.Duration{}
	n := 0
	for b.Loop() {
		for _, level := range commands.IsolationLevels {
			if level != commands.IsolationNone && i.Fault(level) != nil {
				continue
			}
			n++
			start, whole := startOne(b, i, level, filepath.Join(dir, "agents", strconv.Itoa(n), "1"))
			starts[level], wholes[level] = append(starts[level], start), append(wholes[level], whole)
		}
	}
	for level := range starts {
		b.ReportMetric(median(starts[level]), level+"-start-us")
		b.ReportMetric(median(wholes[level]), level+"-whole-us")
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds())
}

func startOne(b *testing.B, i *Isolation, level, dir string) (start, whole time.Duration) {
	b.Helper()
	began := time.Now()
	d := Dirs{Work: filepath.Join(dir, "work"), Temp: filepath.Join(dir, "tmp"), Home: filepath.Join(dir, "home")}
	require.NoError(b, MakeDirs(level, dir, d))
	c := supervisor.Confine{}
	if level != commands.IsolationNone {
		var err error
		c, err = i.Take(level, d, Reach{AnyPort: true})
		require.NoError(b, err)
	}
	a, err := supervisor.Start(b.Context(), filepath.Join(dir, "control"), supervisor.Spec{Argv: []string{"/bin/true"}, Dir: d.Work, Confine: c})
	require.NoError(b, err)
	start = time.Since(began)
	require.Equal(b, 0, a.Exit().Code)
	require.NoError(b, a.Close())
	i.Release(c.User, d)
	return start, time.Since(began)
}
