package transport

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spawnmesh/spawnmesh/commands"
)

func TestMain(m *testing.M) {
	// A server leaves this one behind when a store of its fails to write.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"))
}

const patience = 15 * time.Second

// testLog collects what is logged and shows it when a test fails.
type testLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newTestLog(t testing.TB) (*slog.Logger, *testLog) {
	l := &testLog{}
	t.Cleanup(func() {
		if t.Failed() {
			io.WriteString(t.Output(), l.String())
		}
	})
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})), l
}

// seed is a fixed key per name: a failure repeats with the same bytes.
func seed(name string) []byte {
	s := make([]byte, ed25519.SeedSize)
	copy(s, name)
	return s
}

func nkeyOf(t testing.TB, name string) string {
	t.Helper()
	key, err := NKey(seed(name))
	require.NoError(t, err)
	return key
}

// startHub runs a hub on a free port of the loopback interface. change may
// set fields before the start.
func startHub(t testing.TB, change func(*Hub)) *Hub {
	t.Helper()
	cert, err := Certificate(ed25519.NewKeyFromSeed(seed("tls")))
	require.NoError(t, err)
	log, _ := newTestLog(t)
	h := &Hub{Listen: "127.0.0.1:0", Dir: t.TempDir(), Certificate: cert, Log: log}
	if change != nil {
		change(h)
	}
	t.Cleanup(h.Close)
	require.NoError(t, h.Start(t.Context()))
	return h
}

func admit(t testing.TB, h *Hub, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, h.Admit(t.Context(), Peer{ID: name, NKey: nkeyOf(t, name), Name: "spoke " + name}))
	}
}

func newLink(t testing.TB, h *Hub, name string) *Link {
	log, _ := newTestLog(t)
	return &Link{Address: h.Addr(), Pins: []string{Pin(h.Certificate)}, ID: name, Seed: seed(name), Redial: 100 * time.Millisecond, Log: log}
}

// run keeps f going until the test ends, or until the function it returns is
// called, which waits for f.
func run(t testing.TB, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("a loop ended with %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// startLink runs a link and waits until it is up.
func startLink(t testing.TB, h *Hub, name string) *Link {
	t.Helper()
	k := newLink(t, h, name)
	run(t, k.Run)
	eventually(t, func() bool { return k.State().Up }, "link of "+name)
	return k
}

func eventually(t testing.TB, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, patience, 2*time.Millisecond, what)
}

// next returns what comes out of c.
func next[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// A basket collects what a handler got.
type basket[T any] struct {
	mu    sync.Mutex
	items []T
}

func (b *basket[T]) add(_ context.Context, items []T) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items = append(b.items, items...)
	return nil
}

func (b *basket[T]) all() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]T(nil), b.items...)
}

// await waits for n items, as long as there are more and more.
func (b *basket[T]) await(t testing.TB, n int) []T {
	t.Helper()
	for had := len(b.all()); had < n; had = len(b.all()) {
		eventually(t, func() bool { return len(b.all()) > had }, fmt.Sprintf("%d items, there are %d", n, had))
	}
	return b.all()
}

func commandIDs(all []Command) (ids []string) {
	for _, c := range all {
		ids = append(ids, c.ID)
	}
	return ids
}

func reportIDs(all []Report) (ids []string) {
	for _, r := range all {
		ids = append(ids, r.ID)
	}
	return ids
}

func ids(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%d", prefix, i))
	}
	return all
}

// logs are reports of the kind that holds output.
func logs(ids ...string) []Report {
	all := events(ids...)
	for i := range all {
		all[i].Queue = commands.QueueLogs
	}
	return all
}

func spawns(conn, queue string, ids ...string) (all []Command) {
	for _, id := range ids {
		all = append(all, Command{Conn: conn, Queue: queue, Verb: "spawn", ID: id, Envelope: []byte("body of " + id)})
	}
	return all
}

func events(ids ...string) (all []Report) {
	for _, id := range ids {
		all = append(all, Report{Queue: commands.QueueEvents, ID: id, Envelope: []byte("body of " + id)})
	}
	return all
}

func requireSent(t testing.TB, errs []error) {
	t.Helper()
	require.NoError(t, errors.Join(errs...))
}
