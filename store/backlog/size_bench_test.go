package backlog_test

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// BenchmarkReaders asks everything that people and programs ask of a large
// database, on disk: SPAWNMESH_ENDED tasks that have ended and a tenth as many open
// ones. It prints medians and the slowest of twenty, in milliseconds.
func BenchmarkReaders(b *testing.B) {
	ended := scale.Of(b, "SPAWNMESH_ENDED", 200_000)
	l := newLarge(b, onDisk(b), ended, ended/10, everything)

	for what, read := range l.readers() {
		var took []time.Duration
		for range 21 {
			began := time.Now()
			require.NoError(b, read(b.Context()), what)
			took = append(took, time.Since(began))
		}
		took = took[1:] // the first one plans it
		slices.Sort(took)
		fmt.Printf("%6.1f %6.1f  %s\n", took[10].Seconds()*1000, took[19].Seconds()*1000, what)
	}
}

// onDisk returns the address of a database of its own, on disk and with fsync.
func onDisk(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "spawnmesh-size-")
	require.NoError(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg := postgres.Config{Dir: dir, Settings: map[string]string{"max_wal_size": "4GB", "shared_buffers": "128MB", "maintenance_work_mem": "512MB"}}
	require.NoError(b, postgres.Upkeep(b.Context(), cfg, pgtest.AdminSQL, `CREATE DATABASE large OWNER spawnmesh`))
	c, err := postgres.Start(b.Context(), cfg)
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close(b.Context()) })
	address, err := url.Parse(c.URL())
	require.NoError(b, err)
	address.Path = "/large"
	return address.String()
}
