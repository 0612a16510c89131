package shim

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// What is kept of a stream costs memory once. On the heap it would cost twice:
// garbage may grow there to the size of what is alive. It runs alone, so that
// nobody else allocates.
func TestTailIsNotOnTheHeap(t *testing.T) {
	const limit = 64 << 20
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	c, piece := &capture{file: null, size: limit}, make([]byte, 32<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	for range 2 * limit / len(piece) {
		c.keep(piece)
	}

	runtime.ReadMemStats(&after)
	older, newer := c.tail.kept()
	require.Equal(t, limit, len(older)+len(newer))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	c.tail.free()
}

func TestOutputToAFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	c, agentEnd, err := newCapture(filepath.Join(t.TempDir(), "out"), 10)
	require.NoError(t, err)
	require.NoError(t, c.file.Close())
	c.file = full
	w := os.NewFile(uintptr(agentEnd), "agent's end")
	_, err = w.WriteString("twelve bytes")
	require.NoError(t, err)
	require.NoError(t, w.Close())

	c.drain()

	out := c.finish()
	require.Equal(t, int64(12), out.Dropped)
	require.Equal(t, []attempt.Gap{{From: 0, To: 12}}, out.Gaps)
}
