package transfer_test

import (
	"context"
	"crypto/ed25519"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	hubtransfer "github.com/spawnmesh/spawnmesh/hub/transfer"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/faulty"
	"github.com/spawnmesh/spawnmesh/spoke/transfer"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv("SPAWNMESH_TRANSFER_HELPER") != "" {
		helper()
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"))
}

// A table is what a store would say on both sides: it is the Rights of a hub and the Source of a spoke.
type table struct {
	mu     sync.Mutex
	wanted []transfer.Blob
	held   map[transfer.Blob]bool
	done   map[transfer.Blob]bool
	failed map[transfer.Blob]error
	fault  error
}

func newTable() *table {
	return &table{held: map[transfer.Blob]bool{}, done: map[transfer.Blob]bool{}, failed: map[transfer.Blob]error{}}
}

func (s *table) Wanted(context.Context) ([]transfer.Blob, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wanted), s.fault
}

func (s *table) want(list ...transfer.Blob) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = append(s.wanted, list...)
}

func (s *table) drop(b transfer.Blob) {
	s.wanted = slices.DeleteFunc(s.wanted, func(o transfer.Blob) bool { return o == b })
}

func (s *table) Done(_ context.Context, b transfer.Blob) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil {
		s.done[b] = true
		s.drop(b)
	}
	return s.fault
}

func (s *table) Failed(_ context.Context, b transfer.Blob, why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[b] = why
	s.drop(b)
	return nil
}

func (s *table) ended(b transfer.Blob) (done bool, failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[b], s.failed[b]
}

func (s *table) size(conn string, d blob.Digest, put bool) (transfer.Blob, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.wanted {
		if b.Conn == conn && b.Digest == d && b.Put == put {
			return b, nil
		}
	}
	return transfer.Blob{}, fs.ErrNotExist
}

func (s *table) MayGet(_ context.Context, conn string, d blob.Digest) (int64, error) {
	b, err := s.size(conn, d, false)
	return b.Size, err
}

func (s *table) MayPut(_ context.Context, conn string, d blob.Digest) (int64, bool, error) {
	b, err := s.size(conn, d, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.Size, s.held[b], err
}

func (s *table) Held(_ context.Context, conn string, d blob.Digest, _ int64) error {
	b, err := s.size(conn, d, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[b] = true
	return err
}

func seed(name string) []byte {
	s := make([]byte, ed25519.SeedSize)
	copy(s, name)
	return s
}

// A hubRoom is a hub that has blobs, behind a line that breaks when told to.
type hubRoom struct {
	*testing.T
	dir   string
	blobs *blob.Store
	table *table
	hub   *transport.Hub
	proxy *faulty.Proxy
	stop  func()
}

func certificate(t testing.TB) (pins []string, h *transport.Hub) {
	cert, err := transport.Certificate(ed25519.NewKeyFromSeed(seed("tls")))
	require.NoError(t, err)
	return []string{transport.Pin(cert)}, &transport.Hub{Listen: "127.0.0.1:0", Dir: t.TempDir(), Certificate: cert}
}

func newHub(t *testing.T, table *table) *hubRoom {
	t.Helper()
	r := &hubRoom{T: t, dir: t.TempDir(), table: table}
	r.start()
	t.Cleanup(func() { r.stop() })
	var err error
	r.proxy, err = faulty.New(r.hub.Addr())
	require.NoError(t, err)
	t.Cleanup(r.proxy.Close)
	return r
}

// start runs the hub, or runs it again.
func (r *hubRoom) start() {
	var err error
	r.blobs, err = blob.Open(r.dir)
	require.NoError(r, err)
	_, r.hub = certificate(r)
	require.NoError(r, r.hub.Start(r.Context()))
	r.admit("attic")
	r.admit("cellar")
	desk := &hubtransfer.Desk{Blobs: r.blobs, Rights: r.table, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	ended := make(chan error, 1)
	h := r.hub
	go func() { ended <- h.Blobs(ctx, desk.Handle) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(r, <-ended)
		desk.Close()
		h.Close()
	})
}

func (r *hubRoom) admit(conn string) {
	nkey, err := transport.NKey(seed(conn))
	require.NoError(r, err)
	require.NoError(r, r.hub.Admit(r.Context(), transport.Peer{ID: conn, NKey: nkey, Name: conn}))
}

func linkOf(address, conn string, pins []string) *transport.Link {
	return &transport.Link{Address: address, Pins: pins, ID: conn, Seed: seed(conn)}
}

// A spokeRoom carries blobs of attic, and of cellar, which is another hub to it.
type spokeRoom struct {
	*testing.T
	dir   string
	blobs *blob.Store
	t     *transfer.Transfers
	table *table
	dials atomic.Int64
	open  atomic.Pointer[transport.BlobConn] // the newest
	stop  func()
}

// newSpoke runs a spoke. change may set fields before.
func newSpoke(t *testing.T, table *table, hubs map[string]*hubRoom, change ...func(*transfer.Transfers)) *spokeRoom {
	t.Helper()
	s := &spokeRoom{T: t, dir: t.TempDir(), table: table}
	var err error
	s.blobs, err = blob.Open(s.dir)
	require.NoError(t, err)
	pins, _ := certificate(t)
	s.t = &transfer.Transfers{Blobs: s.blobs, Source: table, Log: slog.New(slog.DiscardHandler), Idle: 100 * time.Millisecond, Longest: 200 * time.Millisecond,
		Dial: func(ctx context.Context, conn string) (*transport.BlobConn, error) {
			s.dials.Add(1)
			c, err := linkOf(hubs[conn].proxy.Addr(), conn, pins).Blobs(ctx)
			if err == nil {
				s.open.Store(c)
			}
			return c, err
		}}
	for _, how := range change {
		how(s.t)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.t.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(func() { s.stop() })
	return s
}

// carry says that blobs are wanted.
func (s *spokeRoom) carry(list ...transfer.Blob) {
	s.table.want(list...)
	s.t.Look()
}

func (s *spokeRoom) await(list ...transfer.Blob) {
	s.Helper()
	for _, b := range list {
		require.Eventually(s, func() bool { done, failed := s.table.ended(b); return done || failed != nil }, 10*patience, time.Millisecond)
		_, failed := s.table.ended(b)
		require.NoError(s, failed)
	}
}

// awaitGone waits until the newest connection has ended.
func (s *spokeRoom) awaitGone() {
	s.Helper()
	select {
	case <-s.open.Load().Gone():
	case <-time.After(patience):
		require.FailNow(s, "the connection is still there")
	}
}

// write makes a blob of size bytes, which nobody has to hold in memory.
func write(t testing.TB, s *blob.Store, seed byte, size int64) blob.Digest {
	t.Helper()
	d, _, err := s.Write(io.LimitReader(rand.NewChaCha8([32]byte{seed}), size), size)
	require.NoError(t, err)
	return d
}

// requireWhole reads a blob to its end, where it is checked.
func requireWhole(t testing.TB, s *blob.Store, b transfer.Blob) {
	t.Helper()
	r, err := s.Open(b.Digest)
	require.NoError(t, err)
	defer r.Close()
	n, err := io.Copy(io.Discard, r)
	require.NoError(t, err)
	require.Equal(t, b.Size, n)
}

// A memory watches how much more the process has in its heap than before.
type memory struct {
	before, most uint64
	stop         chan struct{}
	ended        chan struct{}
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func watchMemory() *memory {
	m := &memory{before: inUse(), stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		for {
			select {
			case <-m.stop:
				return
			case <-time.After(50 * time.Millisecond):
				m.most = max(m.most, inUse())
			}
		}
	}()
	return m
}

func (m *memory) growth() int64 {
	close(m.stop)
	<-m.ended
	return max(0, int64(m.most)-int64(m.before))
}

func partSize(dir string) (n int64) {
	all, _ := filepath.Glob(filepath.Join(dir, "parts", "*"))
	for _, p := range all {
		if info, err := os.Stat(p); err == nil {
			n += info.Size()
		}
	}
	return n
}
