package conformance

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

// incarnation is the hub's, for as long as the runner lives.
var incarnation = forge.NewID()

// beat takes a heartbeat and answers it.
func (p *peer) beat(envelope []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.read(envelope)
	if !ok {
		return nil
	}
	b, ok := m.Body.(*commands.Heartbeat)
	if !ok {
		p.fault("%s came in the place of a heartbeat", m.Body.Kind())
		return nil
	}
	p.beats = append(p.beats, beat{b, time.Now()})
	p.checkDigest(b)
	if p.mood.silent {
		return nil
	}
	return p.Seal(p.heartbeat(b), nil, func(h *signing.Header) {
		p.unnumbered(h)
		h.Iat, h.Exp = h.Iat+p.mood.ahead.Milliseconds(), h.Exp+p.mood.ahead.Milliseconds()
	}).Envelope
}

// heartbeat is the hub's own. It agrees, unless it asks for something. The caller holds mu.
func (p *peer) heartbeat(of *commands.Heartbeat) *commands.Heartbeat {
	n := &commands.Numbering{Sent: p.Seq.Load(), Base: p.mood.base, Stored: p.numbers(), Ask: p.mood.ask, Void: p.mood.void, Refused: p.mood.refused, Recall: p.mood.recall, Controls: p.mood.controls}
	view := commands.ConnectionView{State: cmp.Or(p.mood.state, commands.ConnActive), By: p.mood.by, Numbers: n, Full: p.mood.full, Freeze: p.mood.freeze,
		Agrees: len(n.Ask) == 0 && n.Recall == 0 && p.based(of)}
	if of.Connection.Audit != nil {
		view.Audit = p.mood.audit
	}
	if !of.Connection.Agrees || !view.Agrees {
		n.Digest = p.history(time.Now().UnixMilli())
	}
	return &commands.Heartbeat{IntervalMS: 1000, Incarnation: incarnation, Connection: view}
}

// based reports whether the spoke knows the hub's base: a digest below it tells nothing.
// The caller holds mu.
func (p *peer) based(of *commands.Heartbeat) bool {
	if n := of.Connection.Numbers; n != nil && n.Digest != nil && n.Digest.Base == p.mood.base {
		p.knows = n.Digest.Base
	}
	return p.knows == p.mood.base
}

// answer tells a spoke that asks how its connection stands.
func (p *peer) answer(envelope []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks++
	if len(envelope) > 0 {
		if m, ok := p.read(envelope); ok {
			p.heard = append(p.heard, heard{m, time.Now()})
		}
	}
	var body commands.Body = &commands.Heartbeat{IntervalMS: 1000, Incarnation: incarnation, Connection: commands.ConnectionView{State: cmp.Or(p.mood.state, commands.ConnActive), By: p.mood.by}}
	if p.mood.refuses != "" {
		body = &commands.Revoked{Reason: p.mood.refuses}
	}
	raw, err := commands.EncodeBody(body)
	if err != nil {
		return nil
	}
	h := p.Header(body.Kind(), nil)
	p.unnumbered(&h)
	h.Kid = p.Keys.Identity.KeyID()
	s, err := p.Keys.Identity.Seal(body.Kind().Type(), h, raw)
	if err != nil {
		return nil
	}
	return s.Envelope
}

// history is the digest over the spoke's messages that are stored here. The caller holds mu.
func (p *peer) history(until int64) *commands.History {
	list := map[int64]signing.Digest{}
	for seq, s := range p.stored {
		if s.exp > until {
			list[seq] = s.digest
		}
	}
	return digest(list, 0, p.numbers().Through, until)
}

// digest is the one of section 7.6 over the newest 1,000 of some messages, among the newest 20,000 numbers.
func digest(list map[int64]signing.Digest, base, through, until int64) *commands.History {
	var seqs []int64
	for seq := range list {
		if seq > through-20_000 {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	seqs = seqs[max(0, len(seqs)-1000):]
	h := &commands.History{Base: base, Until: until}
	sum := sha256.New()
	for i, seq := range seqs {
		if i == 0 {
			h.From = seq
		}
		d := list[seq]
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(seq)))
		sum.Write(d[:])
	}
	h.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return h
}

// checkDigest compares what the spoke tells of the hub's messages with what was sent. The
// caller holds mu.
func (p *peer) checkDigest(b *commands.Heartbeat) {
	n := b.Connection.Numbers
	if n == nil || n.Digest == nil || p.sent == nil {
		return
	}
	list, gap := map[int64]signing.Digest{}, n.Stored.Gaps
	for seq, s := range p.sent {
		missing := slices.ContainsFunc(gap, func(g commands.Range) bool { return g.From <= seq && seq <= g.To })
		if seq > n.Digest.Base && seq <= n.Stored.Through && !missing && s.Exp.UnixMilli() > n.Digest.Until {
			list[seq] = s.Digest
		}
	}
	if want := digest(list, n.Digest.Base, n.Stored.Through, n.Digest.Until); *want != *n.Digest {
		p.fault("the digest of a heartbeat is from %d, %s; of what the hub sent it is from %d, %s", n.Digest.From, n.Digest.SHA256, want.From, want.SHA256)
	}
}
