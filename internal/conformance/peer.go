package conformance

import (
	"crypto/ed25519"
	"fmt"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A peer is what a hub keeps of its spoke: what it has heard, stored and sent. It has no
// database: a rule decides what is forgotten.
type peer struct {
	*forge.Voice
	send func(kind commands.Kind, envelope []byte)

	mu       sync.Mutex // guards the rest
	verifier signing.Verifier
	heard    []heard          // of stored kinds, each id once
	times    map[string]int   // how often each of them came
	stored   map[int64]stored // what is confirmed, by number
	beats    []beat
	sent     map[int64]signing.Sealed // of stored kinds, by number
	outputs  map[stream]*kept
	faults   []string // what the spoke said that breaks a rule of the messages
	mood     mood
	asks     int   // questions on mesh.ask
	knows    int64 // the base that the spoke has used
}

// A mood is how the hub behaves.
type mood struct {
	silent   bool   // answers no heartbeat
	forgets  bool   // stores nothing of what comes, and confirms nothing
	state    string // of the connection; empty: active
	by       string
	base     int64                    // was restored, and vouches for numbers above it
	void     []commands.Range         // numbers up to base that no message has any more
	refused  []commands.RefusedReport // reports of the spoke that had no effect
	full     bool                     // stores no more of the spoke's messages
	ask      []int64                  // asks what is held under these numbers
	recall   int64                    // asks for its orders from this number on
	freeze   *commands.Freeze         // what is frozen, and
	controls int64                    // the number of the newest control
	ahead    time.Duration            // by which its heartbeats are, of their time
	audit    *commands.AuditHead      // what is shown of its audit
	refuses  string                   // answers mesh.ask with peer.revoked for this reason
}

type heard struct {
	commands.Message
	at time.Time
}

func (h heard) header() signing.Header { return h.Opened.Header() }

type stored struct {
	id     string
	digest signing.Digest
	exp    int64
}

type beat struct {
	*commands.Heartbeat
	at time.Time
}

func newPeer(keys signing.Keys) *peer {
	return &peer{Voice: &forge.Voice{Keys: keys, Epoch: 1}, times: map[string]int{}, stored: map[int64]stored{}, sent: map[int64]signing.Sealed{},
		outputs: map[stream]*kept{}}
}

// joined keeps the keys of the spoke.
func (p *peer) joined(h join.Hello, conn string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Conn, p.Peer, p.Lock = conn, signing.InstanceIDOf(ed25519.PublicKey(h.Identity)), h.Sealing
	keys := map[signing.KeyID]signing.PeerKey{}
	for _, pub := range [][]byte{h.Identity, h.Signing} {
		id := signing.KeyIDOf(pub)
		keys[id] = signing.PeerKey{ID: id, Owner: p.Peer, Public: pub}
	}
	p.verifier = signing.Verifier{Self: p.Keys.InstanceID(), Conn: conn, Epoch: 1, Keys: keys, Identity: signing.KeyIDOf(h.Identity)}
}

// read verifies a message as a hub does. What is wrong with it is kept as a fault.
func (p *peer) read(envelope []byte) (commands.Message, bool) {
	o, err := p.verifier.Open(envelope, time.Now())
	if err == nil {
		var m commands.Message
		if m, err = commands.Parse(o); err == nil {
			return m, true
		}
	}
	p.fault("a message of the spoke is refused: %v: %.300s", err, envelope)
	return commands.Message{}, false
}

func (p *peer) fault(format string, args ...any) {
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

// reports takes what the spoke says of commands, results and keys.
func (p *peer) reports(list []transport.Report) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mood.forgets {
		for _, r := range list {
			if m, ok := p.read(r.Envelope); ok {
				p.times[m.Opened.Header().ID]++
			}
		}
		return nil
	}
	news := false
	for _, r := range list {
		if m, ok := p.read(r.Envelope); ok {
			news = p.take(m, r.Queue) || news
		}
	}
	if news {
		p.say(&commands.Received{Numbers: p.numbers()})
	}
	return nil
}

// maxNumber bounds what a spoke can have numbered in a scene: sets of numbers are counted
// through one by one.
const maxNumber = 100_000

// take stores one message, once. The caller holds mu.
func (p *peer) take(m commands.Message, queue string) bool {
	h, k := m.Opened.Header(), m.Body.Kind()
	if k == commands.ReceivedKind || k == commands.RevokedKind {
		p.heard = append(p.heard, heard{m, time.Now()})
		return false
	}
	if want := k.Queue(); want != "" && want != queue {
		p.fault("%s came in the queue %s; it belongs in %s", k, queue, want)
	}
	if h.Seq > maxNumber {
		p.fault("number %d is far above the %d of the messages so far", h.Seq, len(p.stored))
		return false
	}
	p.times[h.ID]++
	was, known := p.stored[h.Seq]
	switch {
	case known && was.id != h.ID:
		p.fault("number %d was used for two messages: %s and %s", h.Seq, was.id, h.ID)
	case known && was.digest != m.Opened.Digest():
		p.fault("message %s came again under number %d with another header", h.ID, h.Seq)
	case !known:
		p.heard = append(p.heard, heard{m, time.Now()})
	}
	p.stored[h.Seq] = stored{h.ID, m.Opened.Digest(), h.Exp}
	return true
}

// say seals a message of a kind that is not stored and sends it. The caller holds mu.
func (p *peer) say(body commands.Body) {
	p.send(body.Kind(), p.Seal(body, nil, p.unnumbered).Envelope)
}

// unnumbered gives a message of a kind that is not stored a number that counts for nothing.
func (p *peer) unnumbered(h *signing.Header) {
	p.Seq.Add(-1)
	h.Seq = time.Now().UnixMilli()
}

// numbers are those of the spoke's messages that are stored here. The caller holds mu.
func (p *peer) numbers() (n commands.Numbers) {
	for seq := range p.stored {
		n.Through = max(n.Through, seq)
	}
	for seq, from := int64(1), int64(0); seq <= n.Through; seq++ {
		_, ok := p.stored[seq]
		switch {
		case !ok && from == 0:
			from = seq
		case ok && from != 0:
			n.Gaps = append(n.Gaps, commands.Range{From: from, To: seq - 1})
			from = 0
		}
	}
	return n
}

// remember keeps a message of a stored kind that is sent.
func (p *peer) remember(s signing.Sealed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent != nil {
		p.sent[s.Seq] = s
	}
}

// set changes how the hub behaves.
func (p *peer) set(change func(*mood)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.mood)
}
