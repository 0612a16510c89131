package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/hub/transfer"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// rights are those of a test.
type rights struct {
	mu       sync.Mutex
	get, put map[string]int64 // size by "conn digest"
	held     map[string]bool
	fault    error
	full     bool
}

func name(conn string, d blob.Digest) string { return conn + " " + d.String() }

func (r *rights) MayGet(_ context.Context, conn string, d blob.Digest) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size, ok := r.get[name(conn, d)]
	if !ok {
		return 0, fs.ErrNotExist
	}
	return size, r.fault
}

func (r *rights) MayPut(_ context.Context, conn string, d blob.Digest) (int64, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size, ok := r.put[name(conn, d)]
	switch {
	case !ok:
		return 0, false, fs.ErrNotExist
	case r.full:
		return 0, false, blob.ErrTooLarge
	}
	return size, r.held[name(conn, d)], nil
}

func (r *rights) Held(_ context.Context, conn string, d blob.Digest, _ int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == nil {
		r.held[name(conn, d)] = true
	}
	return r.fault
}

func (r *rights) set(how func(*rights)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how(r)
}

// A room is a desk, and what it decides with.
type room struct {
	*testing.T
	*rights
	dir   string
	blobs *blob.Store
	desk  *transfer.Desk
}

func newRoom(t *testing.T) *room {
	t.Helper()
	r := &room{T: t, dir: t.TempDir(), rights: &rights{get: map[string]int64{}, put: map[string]int64{}, held: map[string]bool{}}}
	r.open(time.Minute)
	t.Cleanup(func() { r.desk.Close() })
	return r
}

func (r *room) open(idle time.Duration) {
	var err error
	r.blobs, err = blob.Open(r.dir)
	require.NoError(r, err)
	r.desk = &transfer.Desk{Blobs: r.blobs, Rights: r.rights, Log: slog.New(slog.DiscardHandler), Idle: idle}
}

func (r *room) ask(conn string, put bool, text []byte, at, n int) transport.BlobFrame {
	f := transport.BlobFrame{Put: put, Digest: blob.Of(text), Size: int64(len(text)), Offset: int64(at), Want: n}
	if put {
		f.Data, f.Want = text[at:at+n], 0
	}
	return r.desk.Handle(r.Context(), conn, f)
}

// requireSays checks the code of an answer, and that of a put where it goes on.
func requireSays(t testing.TB, f transport.BlobFrame, code transport.BlobCode, offset int64) {
	t.Helper()
	require.Equal(t, code.String(), f.Code.String())
	require.Equal(t, offset, f.Offset)
}

func some(seed byte, size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func TestASpokeGetsWhatIsForIt(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	text := some(1, 1000)
	d, _, err := r.blobs.Write(bytes.NewReader(text), 1000)
	require.NoError(t, err)
	r.get[name("attic", d)] = 1000
	missing := some(2, 1000)
	r.get[name("attic", blob.Of(missing))] = 1000

	require.Equal(t, text[100:150], r.ask("attic", false, text, 100, 50).Data)
	require.Equal(t, text[950:], r.ask("attic", false, text, 950, 50).Data)

	others, nobodys := r.ask("cellar", false, text, 100, 50), r.ask("cellar", false, some(3, 1000), 100, 50)
	requireSays(t, others, transport.BlobNotFound, 100)
	nobodys.Digest = others.Digest
	require.Equal(t, nobodys, others, "another's is as if it were not there")
	requireSays(t, r.ask("attic", false, missing, 0, 10), transport.BlobNotFound, 0)
	liar := transport.BlobFrame{Digest: d, Size: 1001, Offset: 999, Want: 2}
	requireSays(t, r.desk.Handle(t.Context(), "attic", liar), transport.BlobNotFound, 999)

	require.NoError(t, os.Truncate(filepath.Join(r.dir, d.String()[7:9], d.String()[7:]), 120))
	requireSays(t, r.ask("attic", false, text, 100, 50), transport.BlobDamaged, 100)
	r.set(func(r *rights) { r.fault = errors.New("the database is away") })
	r.desk.Close()
	requireSays(t, r.ask("attic", false, text, 0, 50), transport.BlobUnavailable, 0)
}

// A piece counts at exactly the end of what has come, also after a restart of the hub; every answer says where that is.
func TestASpokeBringsWhatItIsToBring(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	text := some(1, 1000)
	d := blob.Of(text)
	r.put[name("attic", d)] = 1000

	requireSays(t, r.ask("attic", true, text, 0, 0), transport.BlobGoesOn, 0)
	requireSays(t, r.ask("attic", true, text, 0, 400), transport.BlobGoesOn, 400)
	requireSays(t, r.ask("attic", true, text, 0, 400), transport.BlobGoesOn, 400)
	requireSays(t, r.ask("attic", true, text, 500, 400), transport.BlobGoesOn, 400)
	requireSays(t, r.ask("attic", true, text, 300, 400), transport.BlobGoesOn, 400)
	r.open(time.Minute) // the process was killed
	requireSays(t, r.ask("attic", true, text, 0, 0), transport.BlobGoesOn, 400)
	r.set(func(r *rights) { r.fault = errors.New("the database is away") })
	requireSays(t, r.ask("attic", true, text, 400, 600), transport.BlobUnavailable, 400)
	requireSays(t, r.ask("attic", true, text, 0, 0), transport.BlobUnavailable, 0)
	r.set(func(r *rights) { r.fault = nil })
	requireSays(t, r.ask("attic", true, text, 0, 0), transport.BlobHeld, 1000)
	requireSays(t, r.ask("attic", true, text, 0, 0), transport.BlobHeld, 1000)
	require.True(t, r.held[name("attic", d)])
	got, err := r.blobs.Open(d)
	require.NoError(t, err)
	defer got.Close()
	all, err := io.ReadAll(got)
	require.NoError(t, err)
	require.Equal(t, text, all)

	empty := []byte{}
	r.put[name("attic", blob.Of(empty))] = 0
	requireSays(t, r.ask("attic", true, empty, 0, 0), transport.BlobHeld, 0)
}

func TestWhatASpokeIsNotToBringIsRefused(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	text, other := some(1, 1000), some(2, 1000)
	d := blob.Of(text)
	r.put[name("attic", d)], r.put[name("cellar", d)], r.put[name("cellar", blob.Of(other))] = 1000, 1000, 1000

	requireSays(t, r.ask("attic", true, other, 0, 10), transport.BlobNotFound, 0)
	liar := transport.BlobFrame{Put: true, Digest: d, Size: 2000, Data: make([]byte, 10)}
	requireSays(t, r.desk.Handle(t.Context(), "attic", liar), transport.BlobNotFound, 0)
	r.set(func(r *rights) { r.full = true })
	requireSays(t, r.ask("attic", true, text, 0, 10), transport.BlobTooLarge, 0)
	r.set(func(r *rights) { r.full = false })

	requireSays(t, r.ask("attic", true, text, 0, 600), transport.BlobGoesOn, 600)
	rubbish := transport.BlobFrame{Put: true, Digest: d, Size: 1000, Data: some(3, 1000)}
	requireSays(t, r.desk.Handle(t.Context(), "cellar", rubbish), transport.BlobDamaged, 0)
	requireSays(t, r.ask("attic", true, text, 600, 400), transport.BlobHeld, 1000)

	requireSays(t, r.ask("cellar", true, text, 0, 0), transport.BlobGoesOn, 0) // it has not shown that it has what another has brought
	requireSays(t, r.ask("cellar", true, text, 0, 1000), transport.BlobHeld, 1000)
}

func openFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, f := range all {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

func TestFilesThatNobodyAsksAboutAreClosed(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.open(50 * time.Millisecond)
	for i := range byte(20) {
		text := some(i, 1000)
		r.put[name("attic", blob.Of(text))] = 1000
		requireSays(t, r.ask("attic", true, text, 0, 500), transport.BlobGoesOn, 500)
		require.LessOrEqual(t, openFiles(t, r.dir), 5)
	}
	require.Eventually(t, func() bool { return openFiles(t, r.dir) == 0 }, 10*time.Second, 5*time.Millisecond)
	requireSays(t, r.ask("attic", true, some(0, 1000), 500, 500), transport.BlobHeld, 1000)
}

func TestAnyoneMayAskAtOnce(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.open(time.Millisecond)
	text := some(1, 100_000)
	var all sync.WaitGroup
	conns := []string{"attic", "cellar", "barn"}
	for _, conn := range conns {
		r.put[name(conn, blob.Of(text))] = int64(len(text))
	}
	for _, conn := range conns {
		all.Go(func() {
			for at := 0; at < len(text); at += 1000 {
				f := r.ask(conn, true, text, at, 1000)
				if want := at + 1000; f.Code == transport.BlobGoesOn && f.Offset != int64(want) || f.Code > transport.BlobHeld {
					t.Error(conn, at, f.Code, f.Offset)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, r.held, 3)
}
