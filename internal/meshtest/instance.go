package meshtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/internal/listener"
	"github.com/spawnmesh/spawnmesh/internal/node"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
)

// An Instance is what lives longer than a hub or spoke that runs: its name,
// keys, data directory and database.
type Instance struct {
	Name string
	Dir  string
	Keys signing.Keys
	SQL  *pgxpool.Pool // a look at the database from outside
	Log  *Log

	// Bound changes what the inbox of a running instance keeps.
	Bound func(store.InboxBound)

	url    string
	tracer pgx.QueryTracer // of its next life
	client *control.Client
	end    context.CancelFunc // nil while it does not run
	ended  chan error
}

func newInstance(t testing.TB, name string) *Instance {
	t.Helper()
	i := &Instance{Name: name, Dir: t.TempDir(), Log: &Log{}, url: pgtest.Prepared(t, store.Prepare)}
	// The schema is there before anybody looks.
	first := i.Visit(t)
	i.Keys, i.client = first.Keys, control.NewClient(i.Dir)
	require.NoError(t, first.Close(t.Context()))
	i.look(t)
	t.Cleanup(func() { i.SQL.Close() })
	t.Cleanup(func() {
		i.stop(t)
		i.endAgents(t)
		if t.Failed() {
			_, _ = io.WriteString(t.Output(), "--- log of "+name+"\n"+i.Log.String())
		}
	})
	return i
}

// look opens i.SQL.
func (i *Instance) look(t testing.TB) {
	t.Helper()
	pc, err := pgxpool.ParseConfig(pgtest.Admin(i.url))
	require.NoError(t, err)
	pc.MaxConns = 3
	i.SQL, err = pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), pc)
	require.NoError(t, err)
}

// Backup returns a copy of the database of an instance that does not run.
func (i *Instance) Backup(t testing.TB) (backup string) {
	t.Helper()
	require.Nil(t, i.end, "%s runs", i.Name)
	i.SQL.Close()
	defer i.look(t)
	return pgtest.Copy(t, i.url)
}

// Restore puts a backup in the place of the database of an instance that does
// not run. Its data directory stays as it is.
func (i *Instance) Restore(t testing.TB, backup string) {
	t.Helper()
	require.Nil(t, i.end, "%s runs", i.Name)
	i.SQL.Close()
	i.url = pgtest.Copy(t, backup)
	i.look(t)
}

func (i *Instance) options() instance.Options {
	return instance.Options{Dir: i.Dir, DatabaseURL: i.url, PoolSize: 8, Log: i.Log.Logger(), Tracer: i.tracer}
}

// Visit opens the instance as a command does, whether it runs or not; whoever
// asked for it closes it.
func (i *Instance) Visit(t testing.TB) *instance.Instance {
	t.Helper()
	ctx, done := withPatience(t)
	defer done()
	in, err := instance.Visit(ctx, i.options(), true)
	require.NoError(t, err)
	return in
}

// Open opens the instance's database as a command does; whoever asked for it
// closes it.
func (i *Instance) Open(t testing.TB) *store.DB {
	t.Helper()
	return i.Visit(t).DB
}

// live runs the instance in its roles, waits until they work, and returns the
// address of the hub's link.
func (i *Instance) live(t testing.TB, n node.Node) (link string) {
	t.Helper()
	require.Nil(t, i.end, "%s runs already", i.Name)
	opening, opened := withPatience(t)
	in, err := instance.Open(opening, i.options(), false)
	opened()
	require.NoError(t, err)
	i.Bound = in.DB.BoundInbox
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	i.end, i.ended = end, make(chan error, 1)
	ready := make(chan string, 1)
	n.Instance, n.Version, n.Log = in, "test", i.Log.Logger()
	n.Ready = func(link string) { ready <- link }
	go func(ended chan error) { ended <- errors.Join(n.Run(ctx), in.Close(ctx)) }(i.ended)
	select {
	case link = <-ready:
	case err := <-i.ended:
		i.end = nil
		require.FailNow(t, "it ended instead of serving", "%s: %v", i.Name, err)
	case <-time.After(Patience):
		require.FailNow(t, "it does not get ready", i.Name)
	}
	return link
}

// stop ends the instance and waits for it. One that does not run stays so.
func (i *Instance) stop(t testing.TB) {
	t.Helper()
	if i.end == nil {
		return
	}
	i.end()
	i.end = nil
	select {
	case err := <-i.ended:
		require.NoError(t, err, "stopping %s", i.Name)
	case <-time.After(Patience):
		require.FailNow(t, "it does not stop", i.Name)
	}
}

// endAgents ends what the instance's agents left running.
func (i *Instance) endAgents(t testing.TB) {
	t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(i.Dir, "agents", "*", "*")) // the pattern is well formed
	for _, dir := range dirs {
		ctx, done := context.WithTimeout(context.Background(), Patience)
		attempt, _ := strconv.Atoi(filepath.Base(dir)) // the spoke has named it
		marker := spoke.Marker(i.Keys.InstanceID(), filepath.Base(filepath.Dir(dir)), attempt)
		agent, _, err := supervisor.Adopt(ctx, spoke.ControlDir(dir), supervisor.Known{Marker: marker})
		if err == nil && agent != nil {
			err = agent.Kill(ctx, "the test is over", 0)
			_ = agent.Close()
		}
		done()
		require.NoError(t, err, "ending the agent in %s", dir)
	}
}

func (h *Hub) start(t testing.TB) {
	t.Helper()
	var served *listener.Listener
	if h.serves != nil {
		var err error
		served, err = listener.Open(t.Context(), *h.serves, h.Log.Logger())
		require.NoError(t, err)
		h.API = served.URL()
	}
	h.Link = h.live(t, node.Node{API: served, Interval: h.answers, StillFor: h.still, HungAfter: h.hung, Quiet: h.quiet, Rate: h.rate, Hub: &hub.Hub{Name: h.name, Listen: "127.0.0.1:0", Output: h.bounds, Isolation: h.demands}})
}

func (s *Spoke) start(t testing.TB) {
	t.Helper()
	rules, err := policy.Open(s.Dir)
	require.NoError(t, err)
	s.live(t, node.Node{Interval: cmp.Or(s.plan.Interval, 200*time.Millisecond), HoldFor: s.plan.HoldFor, StillFor: s.plan.StillFor, HungAfter: s.plan.Hung, Quiet: s.plan.Quiet,
		Spoke: &spoke.Spoke{Policy: rules, Slots: s.plan.Slots, Idle: s.plan.Idle, OverrunAfter: s.plan.Overrun, OverrunPatience: s.plan.Overrun, LeaveFor: s.plan.LeaveFor, Lease: cmp.Or(s.plan.Lease, 10*time.Second)}})
}

// Do asks a running instance over its control socket, as its operator does, and
// fails the test when it refuses.
func (i *Instance) Do(t testing.TB, method, path string, in, out any) {
	t.Helper()
	require.NoError(t, i.Ask(t, method, path, in, out), "%s %s", method, path)
}

// Ask asks a running instance over its control socket.
func (i *Instance) Ask(t testing.TB, method, path string, in, out any) error {
	t.Helper()
	ctx, done := withPatience(t)
	defer done()
	return i.client.Do(ctx, method, path, in, out)
}

// InTrace makes all that is asked from now on part of a trace.
func (i *Instance) InTrace(trace string) { i.client.Trace = trace }

// withPatience bounds one step of a test, and of its cleanup.
func withPatience(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
}

// Await polls until ok, and fails the test when it never comes true. What takes
// long is asked for less often: others need the time.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for begun := time.Now(); !ok(); {
		waited := time.Since(begun)
		if waited > Patience {
			require.FailNow(t, "it does not come true", what)
		}
		time.Sleep(min(3*time.Millisecond+waited/10, 100*time.Millisecond))
	}
}

// A Log keeps what an instance writes.
type Log struct {
	mu  sync.Mutex // guards the rest
	buf bytes.Buffer
	saw func(line string) // is shown each line before who logs it goes on; nil = nobody is
}

// watch shows saw what is written from now on.
func (l *Log) watch(saw func(line string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saw = saw
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.saw != nil {
		l.saw(string(p))
	}
	return l.buf.Write(p)
}

// String returns all of it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Logger returns a logger that writes to l.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Health is what the instance says of one thing that it looks at; the zero value where it says nothing.
func (i *Instance) Health(t testing.TB, check string) control.Check {
	t.Helper()
	var v struct{ Health []control.Check }
	i.Do(t, "GET", "/api/v1/instance", nil, &v)
	for _, c := range v.Health {
		if c.Name == check {
			return c
		}
	}
	return control.Check{}
}
