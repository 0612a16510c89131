package federation

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A heartbeat of a peer whose clock is ahead of ours, or that hears us with one that is behind, comes before its time. Of its
// sender's host it says nothing that is kept: it is refused, and the clocks are named. What it says of the connection has
// numbers of its own, and is heeded by whoever's clock is wrong: a freeze, and which messages there are, so that kills go over a
// new link, too.

// An earlyBeat is when the newest heartbeat that came before its time was issued, over which link, and when it came.
type earlyBeat struct {
	link   int64
	issued int64 // ms by the peer's clock
	at     time.Time
	every  time.Duration
}

// heardEarly takes in what a heartbeat that was refused for its time alone says of the connection.
func (x *Exchange) heardEarly(ctx context.Context, p *Peer, envelope []byte, link int64) error {
	in, body := x.openEarly(p, envelope)
	if body == nil || link == 0 || !x.newestEarly(in.Header.Iat, body, link) {
		return nil
	}
	if p.Authority == store.Obeys {
		brief, done := x.brief(ctx)
		defer done()
		x.holdOn(brief, link)
		if err := x.heed(brief, p, in.Header.Kid, body.Connection, link, envelope); err != nil {
			x.log.DebugContext(ctx, "heeding what the peer has frozen; the next heartbeat does it again", "err", err)
		}
	}
	return x.compareBeat(ctx, p, in, body.Connection, link)
}

// openEarly is an authentic heartbeat of a key that is in force, whatever its time; nil where it is none.
func (x *Exchange) openEarly(p *Peer, envelope []byte) (*store.Incoming, *commands.Heartbeat) {
	o, err := p.Verifier.Reopen(envelope)
	if err != nil || p.Ended[o.Header().Kid] != "" {
		return nil, nil
	}
	m, err := commands.Parse(o)
	if err != nil {
		return nil, nil
	}
	in := &store.Incoming{Conn: p.ID, Envelope: envelope, Header: o.Header(), Digest: o.Digest(), Body: m.Body}
	if noBeat(p, in) != nil {
		return nil, nil
	}
	return in, m.Body.(*commands.Heartbeat)
}

// newestEarly notes a heartbeat that came before its time, unless the last such one over the same link is newer: that may be a
// replay for as long as one of the right time may be.
func (x *Exchange) newestEarly(issued int64, body *commands.Heartbeat, link int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.early; e.link == link && issued < e.issued && time.Since(e.at) < replaysFor*e.every {
		return false
	}
	x.early = earlyBeat{link, issued, time.Now(), time.Duration(body.IntervalMS) * time.Millisecond}
	x.heeded = body.Connection.Heeds
	return true
}

// holdOn lets nothing start on a link over which this side refuses what the peer signs for its time: the peer's newest control may be
// among that. It ends when clocks agree, or a while after the peer was heard last.
func (x *Exchange) holdOn(ctx context.Context, link int64) {
	x.mu.Lock()
	waits := x.latch.waits && x.latch.link == link
	x.mu.Unlock()
	if !waits {
		return
	}
	if err := x.board.DB.HoldStarts(ctx, x.id, x.board.holdFor()); err != nil {
		x.log.DebugContext(ctx, "waiting for what the peer has sent", "err", err)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.latch.since = time.Now()
}
