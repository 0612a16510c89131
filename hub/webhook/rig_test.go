package webhook

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/internal/feed"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is that of a busy machine.
const testPatience = time.Minute

// A got is a request that a receiver was sent.
type got struct {
	id, signature string
	at            int64
	body          string
	try           int // of this id
}

func (g got) typ(t testing.TB) string {
	t.Helper()
	var b body
	require.NoError(t, json.Unmarshal([]byte(g.body), &b))
	return b.Type
}

// verifies reports whether one of the signatures is by the key.
func (g got) verifies(t testing.TB, public string) bool {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(public, "whpk_"))
	require.NoError(t, err)
	for _, s := range strings.Fields(g.signature) {
		sig, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "v1a,"))
		require.NoError(t, err)
		if ed25519.Verify(raw, []byte(g.id+"."+strconv.FormatInt(g.at, 10)+"."+g.body), sig) {
			return true
		}
	}
	return false
}

// A receiver is a server on this host, with a certificate of its own.
type receiver struct {
	*httptest.Server
	answer func(w http.ResponseWriter, g got) // nil: 204

	mu    sync.Mutex // guards the rest
	list  []got
	tries map[string]int
	now   int // requests under way
	most  int // of those
}

func receive(t testing.TB, answer func(w http.ResponseWriter, g got)) *receiver {
	t.Helper()
	r := &receiver{answer: answer, tries: map[string]int{}}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	raw, err := io.ReadAll(req.Body)
	h := req.Header
	at, e := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if err != nil || e != nil || h.Get("content-type") != "application/json" || req.Method != http.MethodPost {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	r.mu.Lock()
	g := got{h.Get("webhook-id"), h.Get("webhook-signature"), at, string(raw), r.tries[h.Get("webhook-id")] + 1}
	r.tries[g.id]++
	r.list = append(r.list, g)
	r.now++
	r.most = max(r.most, r.now)
	r.mu.Unlock()
	defer func() { r.mu.Lock(); r.now--; r.mu.Unlock() }()
	if r.answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	r.answer(w, g)
}

func (r *receiver) all() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]got(nil), r.list...)
}

// await waits until it was sent n requests.
func (r *receiver) await(t testing.TB, n int) []got {
	t.Helper()
	require.Eventually(t, func() bool { return len(r.all()) >= n }, testPatience, 5*time.Millisecond, "%d requests", n)
	return r.all()
}

func (r *receiver) port(t testing.TB) int {
	t.Helper()
	u, err := url.Parse(r.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	return port
}

// A rig is an instance with a feed, and a sender that may send to this host.
type rig struct {
	*storetest.Side
	log    *logged
	sender *Sender
	stop   func()
	dns    *net.Resolver
	trust  []*receiver
}

type logged struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newRig(t testing.TB, trust ...*receiver) *rig {
	t.Helper()
	r := &rig{Side: storetest.NewSide(t, 1, 2), log: &logged{}, trust: trust}
	r.start(t)
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// start begins a life of it.
func (r *rig) start(t testing.TB) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(r.log, nil))
	f := feed.New(r.DB, log, func(store.Event) []byte { return nil })
	r.sender = &Sender{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Resolver: r.dns, DB: r.DB, Feed: f, Secret: []byte("a secret of a hub"), Log: log}
	if len(r.trust) > 0 {
		r.sender.CA = r.trust[0].Client().Transport.(*http.Transport).TLSClientConfig.RootCAs // all have one certificate
	}
	r.sender.Open()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var g errgroup.Group
	g.Go(func() error { return r.DB.Watch(ctx, store.Watcher{Changed: f.Changed, Every: 2 * time.Second}) })
	g.Go(func() error { return f.Run(ctx) })
	g.Go(func() error { return r.sender.Run(ctx) })
	r.stop = sync.OnceFunc(func() { cancel(); _ = g.Wait() })
}

// create makes a webhook to a receiver.
func (r *rig) create(t testing.TB, name string, to *receiver, n New) store.Webhook {
	t.Helper()
	n.Name, n.Port = name, to.port(t)
	if n.URL == "" {
		n.URL = to.URL + "/in?for=hub"
	}
	w, err := r.sender.Create(t.Context(), n, "test")
	require.NoError(t, err)
	return w
}

func (r *rig) find(t testing.TB, name string) store.Webhook {
	t.Helper()
	w, err := r.DB.FindWebhook(t.Context(), name)
	require.NoError(t, err)
	return w
}

// changes tells of agents that got into a state.
func (r *rig) changes(t testing.TB, state string, n int) {
	t.Helper()
	require.NoError(t, r.DB.Tx(t.Context(), "telling of agents", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO new_events (kind, task, previous, state) SELECT 'task', gen_random_uuid(), 'queued', $1 FROM generate_series(1, $2::int)`, state, n)
		return err
	}))
}

// hurry makes what waits for a next try due now.
func (r *rig) hurry(t testing.TB) {
	t.Helper()
	require.NoError(t, r.Exec(`UPDATE webhook_deliveries SET next_try_at = clock_timestamp() WHERE state = 'pending'`))
	require.NoError(t, r.Exec(`UPDATE webhooks SET held_until = NULL`))
	r.sender.Changed()
}

func (r *rig) awaitCount(t testing.TB, n int, sql string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool { return r.Count(t, sql, args...) == n }, testPatience, 5*time.Millisecond, sql)
}
