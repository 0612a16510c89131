package meshtest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Rogue is a hub that a spoke obeys and that obeys nobody: a real message
// server and real keys, and a free hand over every byte that reaches the spoke.
type Rogue struct {
	*Voice
	Spoke *Spoke

	dir      string
	cert     tls.Certificate
	fed      *transport.Hub
	verifier signing.Verifier
	mu       sync.Mutex // guards the rest
	heard    []commands.Message
	says     func(*commands.Heartbeat, *signing.Header)
	beats    []*commands.Heartbeat
}

// Rogue starts a rogue hub and a real spoke that obeys it.
func (p Plan) Rogue(t testing.TB) *Rogue {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	cert, err := transport.Certificate(ed25519.NewKeyFromSeed(seed))
	require.NoError(t, err)
	dir := t.TempDir()
	keys, err := signing.CreateKeys(filepath.Join(dir, "keys"))
	require.NoError(t, err)
	r := &Rogue{dir: filepath.Join(dir, "nats"), cert: cert}
	r.serve(t)
	m := &Mesh{Hub: &Hub{Link: r.fed.Addr()}, plan: p}
	r.Spoke = m.newSpoke(t, "attic")
	r.Voice = &Voice{forge.Voice{Keys: keys, Peer: r.Spoke.Keys.InstanceID(), Conn: NewID(), Epoch: 1}}
	r.wed(t)
	r.Spoke.start(t)
	r.awaitLink(t)
	return r
}

func (r *Rogue) serve(t testing.TB) {
	t.Helper()
	fed := &transport.Hub{Listen: "127.0.0.1:0", Dir: r.dir, Certificate: r.cert}
	require.NoError(t, fed.Start(t.Context()))
	t.Cleanup(fed.Close)
	r.fed = fed
}

func (r *Rogue) admit(t testing.TB) (link string) {
	t.Helper()
	link, err := transport.NKey(r.Spoke.Keys.LinkSeed)
	require.NoError(t, err)
	fed, conn, most := r.fed, r.Conn, transport.Most{Messages: 64}
	require.NoError(t, fed.Admit(t.Context(), transport.Peer{ID: conn, NKey: link}))
	keep(t, func(ctx context.Context) error { return fed.Reports(ctx, conn, most, r.hear) })
	keep(t, func(ctx context.Context) error { return fed.Logs(ctx, conn, most, r.hear) })
	keep(t, func(ctx context.Context) error {
		return fed.Presence(ctx, func(_ context.Context, _ string, envelope []byte) []byte { return r.presence(t, envelope) })
	})
	return link
}

// presence answers a heartbeat: it has used all numbers, and stored nothing.
func (r *Rogue) presence(t testing.TB, envelope []byte) []byte {
	body := &commands.Heartbeat{IntervalMS: 1000, Connection: commands.ConnectionView{State: "active", Numbers: &commands.Numbering{Sent: 1 << 52}}}
	r.mu.Lock()
	says := r.says
	if list := open(r.verifier, [][]byte{envelope}, func(e []byte) []byte { return e }); len(list) == 1 {
		r.beats = append(r.beats, list[0].Body.(*commands.Heartbeat))
	}
	r.mu.Unlock()
	return r.Seal(t, body, nil, func(h *signing.Header) {
		if says != nil {
			says(body, h)
		}
	}).Envelope
}

// Beats returns the heartbeats of the spoke so far, without its first ones where they came before its keys were known.
func (r *Rogue) Beats() []*commands.Heartbeat {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.beats)
}

// Says changes what the rogue answers to heartbeats from now on.
func (r *Rogue) Says(change func(*commands.Heartbeat, *signing.Header)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says = change
}

func (r *Rogue) awaitLink(t testing.TB) {
	t.Helper()
	Await(t, "the link", func() bool { return len(r.fed.Peers()) == 1 })
}

// Restart ends the rogue's message server and starts it again. It has then
// forgotten which messages it has seen.
func (r *Rogue) Restart(t testing.TB) {
	t.Helper()
	r.fed.Close()
	r.serve(t)
	r.admit(t)
	r.Spoke.Proxy.Target(r.fed.Addr())
	r.awaitLink(t)
}

// wed stores on both sides what a handshake would have led to.
func (r *Rogue) wed(t testing.TB) {
	t.Helper()
	theirs, link := r.Spoke.Keys, r.admit(t)
	db := r.Spoke.Open(t)
	defer db.Close()
	c, err := db.AddConnection(t.Context(), store.NewConnection{
		Connection: store.Connection{ID: r.Conn, Peer: r.Keys.InstanceID(), Name: "lab", Authority: store.Obeys, State: store.Active,
			LinkKey: link, LinkURL: r.Spoke.Proxy.Addr(), LinkPin: transport.Pin(r.cert)},
		Keys:  store.PeerKeys{Identity: r.Keys.Identity.Public(), Signing: r.Keys.Signing.Public(), Sealing: r.Keys.Sealing.PublicKey().Bytes()},
		Grant: store.FullGrant(), Actor: "test"})
	require.NoError(t, err)
	r.Spoke.Conn, r.Lock = c.ID, theirs.Decrypter.Public()
	r.verifier = signing.Verifier{Self: r.Keys.InstanceID(), Conn: r.Conn, Epoch: r.Epoch, Keys: map[signing.KeyID]signing.PeerKey{
		theirs.Signing.KeyID(): {ID: theirs.Signing.KeyID(), Owner: r.Peer, Public: theirs.Signing.Public()}}}
}

func (r *Rogue) hear(_ context.Context, list []transport.Report) error {
	heard := open(r.verifier, list, func(m transport.Report) []byte { return m.Envelope })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, heard...)
	return nil
}

// Heard returns what the spoke has said so far, apart from its heartbeats.
func (r *Rogue) Heard() []commands.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]commands.Message(nil), r.heard...)
}

// Answer waits for what the spoke answers to the message with an id, as the
// kind of body that is wanted.
func (r *Rogue) Answer(t testing.TB, id string, queue commands.Kind) commands.Body {
	t.Helper()
	var body commands.Body
	Await(t, string(queue)+" in answer to "+id, func() bool {
		for _, c := range r.Heard() {
			if re := c.Opened.Header().Re; re != nil && re.ID == id && c.Body.Kind() == queue {
				body = c.Body
			}
		}
		return body != nil
	})
	return body
}

// Send queues any bytes for the spoke in a queue. Every call is a message of its
// own to the message server, also when the bytes are the same.
func (r *Rogue) Send(t testing.TB, queue string, envelopes ...[]byte) {
	t.Helper()
	ctx, done := withPatience(t)
	defer done()
	var list []transport.Command
	for _, w := range envelopes {
		list = append(list, transport.Command{Conn: r.Conn, Queue: queue, Verb: "any", ID: NewID(), Envelope: w})
	}
	for _, err := range r.fed.Publish(ctx, list) {
		require.NoError(t, err)
	}
}

// Noop is a good order for a task that starts nothing, and the task's id.
func (r *Rogue) Noop(t testing.TB, change func(*signing.Header)) (envelope signing.Sealed, task string) {
	t.Helper()
	task = NewID()
	return r.Seal(t, &commands.Spawn{Task: task, Runtime: commands.RuntimeNoop}, nil, change), task
}
