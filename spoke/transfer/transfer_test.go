package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/faulty"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/spoke/transfer"
)

func pair(t *testing.T) (*hubRoom, *spokeRoom) {
	t.Helper()
	table := newTable()
	h := newHub(t, table)
	return h, newSpoke(t, table, map[string]*hubRoom{"attic": h})
}

// A line that is cut ten times costs next to nothing: what has come is not sent again, and the blob is never in memory.
func TestATransferGoesOnWhereItsLineBroke(t *testing.T) {
	size := int64(scale.Larger(t, "SPAWNMESH_BLOB_BYTES", 64<<20, 1<<30))
	for way, put := range map[faulty.Way]bool{faulty.ToSpoke: false, faulty.ToHub: true} {
		t.Run(fmt.Sprintf("put=%v", put), func(t *testing.T) {
			h, s := pair(t)
			from, to := h.blobs, s.blobs
			if put {
				from, to = to, from
			}
			b := transfer.Blob{Conn: "attic", Digest: write(t, from, 1, size), Size: size, Put: put}
			memory := watchMemory()
			began := time.Now()
			s.carry(b)
			for cut := range int64(10) {
				require.Eventually(t, func() bool { return h.proxy.Passed(way) >= (cut+1)*size/11 }, 10*patience, time.Millisecond)
				h.proxy.Reset()
			}
			s.await(b)
			took := time.Since(began)
			growth := memory.growth()
			requireWhole(t, to, b)
			there, back := h.proxy.Passed(way), h.proxy.Passed(faulty.ToHub+faulty.ToSpoke-way)
			t.Logf("%d MiB in %v; %.3f of its bytes, %.3f back; %d connections; %.1f MiB of memory", size>>20, took.Round(time.Millisecond), float64(there)/float64(size), float64(back)/float64(size), s.dials.Load(), float64(growth)/(1<<20))
			require.LessOrEqual(t, float64(there), 1.02*float64(size))
			require.LessOrEqual(t, float64(back), 0.02*float64(size))
			require.Greater(t, s.dials.Load(), int64(5))
			require.Less(t, growth, int64(16<<20))
		})
	}
}

// A hub that was killed knows what had come.
func TestATransferGoesOnAfterTheHubsEnd(t *testing.T) {
	t.Parallel()
	h, s := pair(t)
	get := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 1, 24<<20), Size: 24 << 20}
	put := transfer.Blob{Conn: "attic", Digest: write(t, s.blobs, 2, 24<<20), Size: 24 << 20, Put: true}
	h.proxy.Slow(0, 40<<20)
	s.carry(get, put)
	require.Eventually(t, func() bool { return partSize(s.dir) > 8<<20 && partSize(h.dir) > 8<<20 }, patience, time.Millisecond)
	h.stop()
	h.start()
	h.proxy.Target(h.hub.Addr())
	s.await(get, put)
	requireWhole(t, s.blobs, get)
	requireWhole(t, h.blobs, put)
	require.LessOrEqual(t, h.proxy.Passed(faulty.ToSpoke), get.Size+get.Size/20)
	require.LessOrEqual(t, h.proxy.Passed(faulty.ToHub), put.Size+put.Size/20)
}

// Nothing is open, and nothing is dialled, while nothing is wanted.
func TestNothingIsOpenWhileNothingIsWanted(t *testing.T) {
	t.Parallel()
	h, s := pair(t)
	s.t.Look()
	b := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 1, 1000), Size: 1000}
	require.Zero(t, s.dials.Load())
	s.carry(b)
	s.await(b)
	s.awaitGone()
	require.EqualValues(t, 1, s.dials.Load())
	empty := transfer.Blob{Conn: "attic", Digest: blob.Of(nil), Put: true}
	write(t, s.blobs, 1, 0)
	s.carry(empty)
	s.await(empty)
	s.carry(transfer.Blob{Conn: "attic", Digest: blob.Of(nil)})
	s.await(transfer.Blob{Conn: "attic", Digest: blob.Of(nil)})
}

// What cannot come is given up after a few tries, and says why.
func TestWhatCannotComeIsGivenUp(t *testing.T) {
	t.Parallel()
	h, s := pair(t)
	damaged := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 1, 1<<20), Size: 1 << 20}
	spoil := func(dir string, b transfer.Blob) {
		name := b.Digest.String()[7:]
		f, err := os.OpenFile(filepath.Join(dir, name[:2], name), os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte("rubbish"), 1000)
		require.NoError(t, errors.Join(err, f.Close()))
	}
	spoil(h.dir, damaged)
	brought := transfer.Blob{Conn: "attic", Digest: write(t, s.blobs, 2, 1<<20), Size: 1 << 20, Put: true}
	spoil(s.dir, brought)
	missing := transfer.Blob{Conn: "attic", Digest: blob.Of([]byte("x")), Size: 1}
	nothing := transfer.Blob{Conn: "attic", Digest: blob.Of([]byte("y")), Size: 1, Put: true}
	good := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 3, 1000), Size: 1000}
	s.carry(damaged, brought, missing, nothing, good)

	s.await(good)
	why := func(b transfer.Blob) (failed error) {
		require.Eventually(t, func() bool { _, failed = s.table.ended(b); return failed != nil }, patience, time.Millisecond)
		return failed
	}
	require.ErrorIs(t, why(damaged), blob.ErrDamaged)
	refused, ok := errors.AsType[*transport.BlobRefused](why(brought))
	require.True(t, ok)
	require.Equal(t, transport.BlobDamaged, refused.Code)
	refused, ok = errors.AsType[*transport.BlobRefused](why(missing))
	require.True(t, ok)
	require.Equal(t, transport.BlobNotFound, refused.Code)
	require.ErrorIs(t, why(nothing), fs.ErrNotExist)
	require.Less(t, h.proxy.Passed(faulty.ToSpoke), int64(3<<20+300<<10))
	require.Zero(t, partSize(s.dir)+partSize(h.dir))
}

// A result may be brought before the message that names it has been taken in: the spoke goes on asking.
func TestAResultWaitsUntilItIsNamed(t *testing.T) {
	t.Parallel()
	spokes, hubs := newTable(), newTable()
	h := newHub(t, hubs)
	s := newSpoke(t, spokes, map[string]*hubRoom{"attic": h})
	b := transfer.Blob{Conn: "attic", Digest: write(t, s.blobs, 1, 1<<20), Size: 1 << 20, Put: true}
	s.carry(b)
	time.Sleep(time.Second) // longer than it takes until an input is given up
	hubs.want(b)
	s.await(b)
	requireWhole(t, h.blobs, b)
}

// What cannot go on leaves its place to others: hubs that do not answer, and results that their hub does not know yet.
func TestWhatCannotGoOnHoldsNoPlace(t *testing.T) {
	t.Parallel()
	table, hubs := newTable(), newTable()
	h := newHub(t, hubs)
	s := newSpoke(t, table, map[string]*hubRoom{"attic": h}, func(s *transfer.Transfers) {
		dial := s.Dial
		s.Longest = time.Hour
		s.Dial = func(ctx context.Context, conn string) (*transport.BlobConn, error) {
			if conn != "attic" {
				return nil, transport.ErrUnavailable
			}
			return dial(ctx, conn)
		}
	})
	list := []transfer.Blob{}
	for _, conn := range []string{"away", "gone", "attic"} {
		for i := range byte(3) {
			list = append(list, transfer.Blob{Conn: conn, Digest: write(t, s.blobs, i, 1000), Size: 1000, Put: true})
		}
	}
	good := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 9, 1<<20), Size: 1 << 20}
	hubs.want(good)
	s.carry(append(list, good)...)

	s.await(good)

	hubs.want(list[6:]...) // its hub has heard of them
	s.await(list[6:]...)
}

// Inputs that would take the room that is to stay free on the disk wait for it; all that is fetched at once counts, and what is brought needs none.
func TestInputsWaitForRoomOnTheDisk(t *testing.T) {
	t.Parallel()
	table := newTable()
	h := newHub(t, table)
	var room atomic.Int64
	room.Store(1500)
	s := newSpoke(t, table, map[string]*hubRoom{"attic": h}, func(s *transfer.Transfers) { s.Room = func(size int64) bool { return size <= room.Load() } })
	large := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 1, 2000), Size: 2000}
	small := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 2, 1000), Size: 1000}
	put := transfer.Blob{Conn: "attic", Digest: write(t, s.blobs, 3, 2000), Size: 2000, Put: true}

	s.carry(large, small, put)

	s.await(small, put)
	done, failed := s.table.ended(large)
	require.NoError(t, failed)
	require.False(t, done)
	room.Store(2000)
	s.await(large)
}

// A peer that is cut loses the connection for blobs at once, and goes on when it is admitted again.
func TestWhoIsSuspendedGetsNothing(t *testing.T) {
	t.Parallel()
	h, s := pair(t)
	b := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 1, 32<<20), Size: 32 << 20}
	h.proxy.Slow(0, 32<<20)
	s.carry(b)
	require.Eventually(t, func() bool { return partSize(s.dir) > 4<<20 }, patience, time.Millisecond)
	h.hub.Cut("attic")
	s.awaitGone()
	at := partSize(s.dir)
	dials := s.dials.Load()
	require.Eventually(t, func() bool { return s.dials.Load() > dials+3 }, patience, time.Millisecond)
	require.InDelta(t, at, partSize(s.dir), 1<<20)
	h.admit("attic")
	s.await(b)
	requireWhole(t, s.blobs, b)
}

// What is not wanted any more is not carried any more, and others go on.
func TestWhatIsNotWantedAnyMoreEnds(t *testing.T) {
	t.Parallel()
	h, s := pair(t)
	h.proxy.Slow(0, 8<<20)
	long := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 1, 256<<20), Size: 256 << 20}
	other := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 2, 4<<20), Size: 4 << 20}
	s.carry(long, other)
	require.Eventually(t, func() bool { return partSize(s.dir) > 1<<20 }, patience, time.Millisecond)
	s.table.mu.Lock()
	s.table.drop(long)
	s.table.mu.Unlock()
	s.t.Look()
	s.await(other)
	require.EqualValues(t, 1, s.dials.Load())
	s.awaitGone() // which nothing needs
}

// Two hubs and several blobs at once; a fault of the database in between is waited for.
func TestSeveralBlobsOfSeveralHubs(t *testing.T) {
	t.Parallel()
	table := newTable()
	a, c := newHub(t, table), newHub(t, table)
	s := newSpoke(t, table, map[string]*hubRoom{"attic": a, "cellar": c})
	var list []transfer.Blob
	for i := range byte(6) {
		list = append(list, transfer.Blob{Conn: "attic", Digest: write(t, a.blobs, i, 3<<20), Size: 3 << 20},
			transfer.Blob{Conn: "cellar", Digest: write(t, c.blobs, i, 3<<20), Size: 3 << 20}, // of the same bytes, once for each hub
			transfer.Blob{Conn: "cellar", Digest: write(t, s.blobs, 100+i, 3<<20), Size: 3 << 20, Put: true})
	}
	table.mu.Lock()
	table.fault = errors.New("the database is away")
	table.mu.Unlock()
	s.carry(list...)
	time.Sleep(50 * time.Millisecond)
	table.mu.Lock()
	table.fault = nil
	table.mu.Unlock()
	s.await(list...)
	for _, b := range list {
		if b.Put {
			requireWhole(t, c.blobs, b)
		} else {
			requireWhole(t, s.blobs, b)
		}
	}
	require.LessOrEqual(t, s.dials.Load(), int64(2))
}

// A line that swallows what is sent is given up, and holds up neither the transfer for ever nor the end of the spoke.
func TestALineThatSwallowsIsGivenUp(t *testing.T) {
	t.Parallel()
	table := newTable()
	h := newHub(t, table)
	s := newSpoke(t, table, map[string]*hubRoom{"attic": h}, func(t *transfer.Transfers) { t.Patience = time.Second })
	b := transfer.Blob{Conn: "attic", Digest: write(t, s.blobs, 1, 16<<20), Size: 16 << 20, Put: true}
	h.proxy.Slow(0, 16<<20)
	s.carry(b)
	require.Eventually(t, func() bool { return partSize(h.dir) > 2<<20 }, patience, time.Millisecond)
	h.proxy.Swallow(faulty.ToHub)
	s.awaitGone()
	h.proxy.Heal()
	s.await(b)
	requireWhole(t, h.blobs, b)

	other := transfer.Blob{Conn: "attic", Digest: write(t, s.blobs, 2, 16<<20), Size: 16 << 20, Put: true}
	h.proxy.Slow(0, 16<<20)
	s.carry(other)
	require.Eventually(t, func() bool { return partSize(h.dir) > 2<<20 }, patience, time.Millisecond)
	h.proxy.Swallow(faulty.ToHub, faulty.ToSpoke)
	began := time.Now()
	s.stop()
	require.Less(t, time.Since(began), patience/2)
}

// Commands and heartbeats do not wait for blobs.
func TestCommandsDoNotWaitForBlobs(t *testing.T) {
	t.Parallel()
	h, s := pair(t)
	pins, _ := certificate(t)
	k := linkOf(h.proxy.Addr(), "attic", pins)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { _ = k.Run(ctx) })
	came := make(chan string, 100)
	work.Go(func() {
		_ = k.Commands(ctx, commands.QueueControl, transport.Most{Messages: 10}, func(_ context.Context, list []transport.Command) error {
			for _, c := range list {
				came <- c.ID
			}
			return nil
		})
	})
	b := transfer.Blob{Conn: "attic", Digest: write(t, h.blobs, 1, 64<<20), Size: 64 << 20}
	put := transfer.Blob{Conn: "attic", Digest: write(t, s.blobs, 2, 64<<20), Size: 64 << 20, Put: true}
	h.proxy.Slow(0, 16<<20) // of each connection
	s.carry(b, put)
	require.Eventually(t, func() bool { return partSize(s.dir) > 1<<20 && partSize(h.dir) > 1<<20 }, patience, time.Millisecond)
	var longest time.Duration
	for i := range 50 {
		began := time.Now()
		id := fmt.Sprint("c-", i)
		require.NoError(t, errors.Join(h.hub.Publish(t.Context(), []transport.Command{{Conn: "attic", Queue: commands.QueueControl, Verb: "kill", ID: id, Envelope: []byte("x")}})...))
		require.Equal(t, id, <-came)
		longest = max(longest, time.Since(began))
	}
	done, _ := s.table.ended(b)
	require.False(t, done, "the blobs are still on their way")
	require.Less(t, longest, 2*time.Second)
	t.Log("the slowest of 50 took", longest)
}
