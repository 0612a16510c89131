package meshtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

// An Attacker has the data directory of a spoke that joined, and speaks for it
// over the real link.
type Attacker struct {
	*Voice
	Spoke *Spoke
	Link  *transport.Link

	verifier signing.Verifier
	greeting sync.Once
	mu       sync.Mutex // guards heard
	heard    []commands.Message
}

// An Asked is a task that the hub asked an [Attacker] to run, with the command
// that asked for it.
type Asked struct {
	Task   string
	Re     *signing.Ref
	Digest string // of the order's header
}

// Attack lets a spoke join under name and fall into the hands of an attacker,
// who is linked when this returns.
func (m *Mesh) Attack(t testing.TB, name string) *Attacker {
	t.Helper()
	s := m.Join(t, name)
	db := s.Open(t)
	defer db.Close()
	conns, err := db.Connections(t.Context())
	require.NoError(t, err)
	require.Len(t, conns, 1)
	a := &Attacker{Spoke: s, Voice: &Voice{forge.Voice{Keys: s.Keys, Peer: conns[0].Peer, Conn: s.Conn, Epoch: conns[0].Epoch}}}
	a.verifier, err = db.Verifier(t.Context(), conns[0])
	require.NoError(t, err)
	a.Link = &transport.Link{Address: s.Proxy.Addr(), Pins: []string{conns[0].LinkPin}, ID: s.Conn, Seed: s.Keys.LinkSeed, Log: s.Log.Logger()}
	keep(t, a.Link.Run)
	for _, queue := range []string{commands.QueueRun, commands.QueueControl} {
		keep(t, func(ctx context.Context) error {
			return a.Link.Commands(ctx, queue, transport.Most{Messages: 64}, a.hear)
		})
	}
	Await(t, "the attacker's link", func() bool { return a.Link.State().Up })
	delete(m.Spokes, name) // it never comes to rest
	return a
}

// Greet sends a heartbeat as an honest spoke does on a new link: before it, the
// hub relays nothing.
func (a *Attacker) Greet(t testing.TB) {
	t.Helper()
	sent := a.Seq.Load()
	a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Version: "x",
		Connection: commands.ConnectionView{State: "active", Numbers: &commands.Numbering{Sent: sent}}}, nil, nil).Envelope)
}

// Beat sends envelope in place of a heartbeat, whatever it is, and reports whether the hub
// has answered within 2 s. It answers few that it refuses.
func (a *Attacker) Beat(t testing.TB, envelope []byte) (answered bool) {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), 2*time.Second)
	defer done()
	_, err := a.Link.Beat(ctx, envelope)
	if err != nil {
		require.ErrorIs(t, err, transport.ErrUnavailable)
	}
	return err == nil
}

// Answered sends envelope in place of a heartbeat, and returns what the hub says to it.
func (a *Attacker) Answered(t testing.TB, envelope []byte) *commands.Heartbeat {
	t.Helper()
	answer, err := a.Link.Beat(t.Context(), envelope)
	require.NoError(t, err)
	o, err := a.verifier.Open(answer, time.Now())
	require.NoError(t, err)
	m, err := commands.Parse(o)
	require.NoError(t, err)
	return m.Body.(*commands.Heartbeat)
}

// keep runs a loop until the test ends.
func keep(t testing.TB, loop func(context.Context) error) {
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- loop(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; !errors.Is(err, transport.ErrClosed) { // its server may have gone before
			require.NoError(t, err)
		}
	})
}

func (a *Attacker) hear(_ context.Context, list []transport.Command) error {
	heard := open(a.verifier, list, func(c transport.Command) []byte { return c.Envelope })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = append(a.heard, heard...)
	return nil
}

// Order has the hub ask the attacker's spoke for a task, and returns what the
// attacker got to see of that.
func (a *Attacker) Order(t testing.TB, m *Mesh) Asked {
	t.Helper()
	a.greeting.Do(func() { a.Greet(t) })
	task := m.Order(t, hub.SpawnRequest{Spoke: a.Spoke.Name, Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}})
	re, digest := a.Ref(t, commands.SpawnKind, task)
	return Asked{task, re, digest}
}

// Ref waits for a command of one kind about a task, and returns what an answer to it refers
// to, and the digest of its header.
func (a *Attacker) Ref(t testing.TB, kind commands.Kind, task string) (re *signing.Ref, digest string) {
	t.Helper()
	Await(t, "the command", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, c := range a.heard {
			if c.Body.Kind() == kind && c.Body.TaskID() == task {
				h := c.Opened.Header()
				re, digest = &signing.Ref{ID: h.ID, SHA256: h.Body.SHA256, Attempt: 1, Fence: 1}, c.Opened.Digest().String()
			}
		}
		return re != nil
	})
	return re, digest
}

// Send puts any bytes on the link as a report of a kind. Every call is a
// message of its own to the message server, also when the bytes are the same.
func (a *Attacker) Send(t testing.TB, queue string, envelopes ...[]byte) {
	t.Helper()
	for _, err := range a.Shout(t, queue, envelopes...) {
		require.NoError(t, err)
	}
}

// Shout is Send for messages that may end the link before they are confirmed.
func (a *Attacker) Shout(t testing.TB, queue string, envelopes ...[]byte) []error {
	t.Helper()
	ctx, done := withPatience(t)
	defer done()
	var list []transport.Report
	for _, w := range envelopes {
		list = append(list, transport.Report{Queue: queue, ID: NewID(), Envelope: w})
	}
	return a.Link.Publish(ctx, list)
}

// Heard returns what the attacker got to hear of one kind, in order.
func (a *Attacker) Heard(queue commands.Kind) (list []commands.Body) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.heard {
		if c.Body.Kind() == queue {
			list = append(list, c.Body)
		}
	}
	return list
}

// open reads what can be read of messages; an attacker has no use for others.
func open[T any](v signing.Verifier, list []T, envelope func(T) []byte) []commands.Message {
	var read []commands.Message
	for _, m := range list {
		o, err := v.Open(envelope(m), time.Now())
		if err != nil {
			continue
		}
		if c, err := commands.Parse(o); err == nil {
			read = append(read, c)
		}
	}
	return read
}
