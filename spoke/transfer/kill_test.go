package transfer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/faulty"
	"github.com/spawnmesh/spawnmesh/spoke/transfer"
)

// An errand is what a process of its own carries.
type errand struct {
	Address, Dir string
	Pins         []string
	Blobs        []transfer.Blob
}

// helper is that process: it ends when all is carried.
func helper() {
	var e errand
	if err := json.Unmarshal([]byte(os.Getenv("SPAWNMESH_TRANSFER_HELPER")), &e); err != nil {
		panic(err)
	}
	blobs, err := blob.Open(e.Dir)
	if err != nil {
		panic(err)
	}
	table := newTable()
	table.want(e.Blobs...)
	t := &transfer.Transfers{Blobs: blobs, Source: table, Log: slog.Default(), Dial: func(ctx context.Context, conn string) (*transport.BlobConn, error) {
		return linkOf(e.Address, conn, e.Pins).Blobs(ctx)
	}}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for {
			if list, _ := table.Wanted(ctx); len(list) == 0 {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_ = t.Run(ctx)
	if len(table.failed) > 0 {
		panic(fmt.Sprint(table.failed))
	}
}

// A spoke that is killed again and again sends and asks for nothing that is on a disk already.
func TestAKilledSpokeGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	table := newTable()
	h := newHub(t, table)
	pins, _ := certificate(t)
	dir := t.TempDir()
	blobs, err := blob.Open(dir)
	require.NoError(t, err)
	const size = 24 << 20
	get := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 1, size), Size: size}
	put := transfer.Blob{Conn: "attic", Digest: write(t, blobs, 2, size), Size: size, Put: true}
	table.want(get, put)
	text, err := json.Marshal(errand{h.proxy.Addr(), dir, pins, []transfer.Blob{get, put}})
	require.NoError(t, err)
	program, err := os.Executable()
	require.NoError(t, err)
	h.proxy.Slow(0, 48<<20)
	for kill := range int64(4) {
		c := exec.CommandContext(t.Context(), program)
		c.Env = append(os.Environ(), "SPAWNMESH_TRANSFER_HELPER="+string(text))
		c.Stderr = t.Output()
		require.NoError(t, c.Start())
		if kill == 3 {
			require.NoError(t, c.Wait())
			break
		}
		require.Eventually(t, func() bool { return partSize(dir) > (kill+1)*size/5 && partSize(h.dir) > (kill+1)*size/5 }, patience, time.Millisecond)
		require.NoError(t, c.Process.Kill())
		_ = c.Wait()
	}
	requireWhole(t, blobs, get)
	requireWhole(t, h.blobs, put)
	const most = size + size/50 + 4*512<<10
	require.LessOrEqual(t, h.proxy.Passed(faulty.ToSpoke), int64(most))
	require.LessOrEqual(t, h.proxy.Passed(faulty.ToHub), int64(most))
}
