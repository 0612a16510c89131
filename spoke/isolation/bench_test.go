package isolation

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// BenchmarkLevels measures what a level adds to an agent that ends at once: directories, user,
// rules, start, end, and what is looked for after it.
func BenchmarkLevels(b *testing.B) {
	dir, err := os.MkdirTemp("", "isolation")
	require.NoError(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	i := Open(dir, 0)
	b.Cleanup(func() { require.NoError(b, i.Close()) })
	n := 0
	for _, level := range commands.IsolationLevels {
		if i.Fault(level) != nil {
			continue
		}
		b.Run(level, func(b *testing.B) {
			for b.Loop() {
				n++
				startOne(b, i, level, filepath.Join(dir, "agents", strconv.Itoa(n), "1"))
			}
		})
	}
}

func startOne(b *testing.B, i *Isolation, level, dir string) {
	b.Helper()
	d := Dirs{filepath.Join(dir, "work"), filepath.Join(dir, "tmp"), filepath.Join(dir, "home")}
	require.NoError(b, MakeDirs(level, dir, d))
	c := supervisor.Confine{}
	if level != commands.IsolationNone {
		var err error
		c, err = i.Take(level, d, Reach{AnyPort: true})
		require.NoError(b, err)
	}
	a, err := supervisor.Start(b.Context(), filepath.Join(dir, "control"), supervisor.Spec{Argv: []string{"/bin/true"}, Dir: d.Work, Confine: c})
	require.NoError(b, err)
	require.Equal(b, 0, a.Exit().Code)
	require.NoError(b, a.Close())
	i.Release(c.User, d)
}
