package federation

import (
	"cmp"
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A side that commands says in each heartbeat whether it has frozen what it ordered. The side that obeys starts
// nothing over a new link before it knows that, and has stored the controls that were sent meanwhile: a freeze or a
// kill from while the link was down comes before the first start after it.

// DefaultHoldFor is how long nothing is started over a new link, should the peer not say what it has sent or not send
// it. Only what this peer ordered waits.
const DefaultHoldFor = time.Minute

func (b *Board) holdFor() time.Duration { return cmp.Or(b.HoldFor, DefaultHoldFor) }

// A latch is what this side knows of a peer that it obeys. The exchange's mu guards it.
type latch struct {
	link     int64 // the newest one; nothing was started over it before the peer was heard
	waits    bool  // nothing is started yet
	since    time.Time
	told     bool  // the peer has said on this link
	controls int64 // what its newest control is
	number   int64 // of the freeze that was noted last
}

// hold lets nothing start on a new link until the peer was heard there. A database that does not answer starts nothing
// either; the next heartbeat does it again.
func (x *Exchange) hold(ctx context.Context, link int64) {
	x.mu.Lock()
	held := x.latch.link == link
	x.mu.Unlock()
	if held {
		return
	}
	brief, done := x.brief(ctx)
	defer done()
	if err := x.board.DB.HoldStarts(brief, x.id, x.board.holdFor()); err != nil {
		x.log.DebugContext(ctx, "waiting for what the peer has sent", "err", err)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.latch = latch{link: link, waits: true, since: time.Now(), number: x.latch.number}
}

// heed follows what a peer that is obeyed says of what it has frozen and sent, in a heartbeat on link.
func (x *Exchange) heed(ctx context.Context, p *Peer, kid signing.KeyID, v commands.ConnectionView, link int64, envelope []byte) error {
	x.mu.Lock()
	news := v.Freeze != nil && v.Freeze.Number > x.latch.number
	x.mu.Unlock()
	if news {
		changed, err := x.board.DB.NoteFreeze(ctx, p.Connection, kid, *v.Freeze, envelope)
		if err != nil {
			return err
		}
		x.mu.Lock()
		x.latch.number = max(x.latch.number, v.Freeze.Number)
		x.mu.Unlock()
		x.beatSoon() // the hub tells people who has heard of it
		if changed {
			x.sayFreeze(ctx, v.Freeze)
		}
	}
	x.mu.Lock()
	if l := &x.latch; l.waits && l.link == link && !l.told && v.Numbers != nil {
		l.told, l.controls = true, v.Numbers.Controls
	}
	x.mu.Unlock()
	return x.letStart(ctx)
}

func (x *Exchange) sayFreeze(ctx context.Context, f *commands.Freeze) {
	if f.Frozen {
		x.log.WarnContext(ctx, "the hub has frozen its agents: nothing new is started for it", "by", f.By, "reason", f.Reason)
		return
	}
	x.log.InfoContext(ctx, "the hub has unfrozen its agents")
	x.mayStart()
}

// heeds is the number of the peer's newest freeze that is stored here, as this process knows it.
func (x *Exchange) heeds() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.latch.number
}

// mayStart wakes whoever starts agents.
func (x *Exchange) mayStart() {
	if x.role.MayStart != nil {
		x.role.MayStart()
	}
}

// letStart ends what hold began, once what the peer had sent is stored, or has taken too long.
func (x *Exchange) letStart(ctx context.Context) error {
	x.mu.Lock()
	l := x.latch
	x.mu.Unlock()
	late := l.waits && time.Since(l.since) > x.board.holdFor()
	if !l.waits || !l.told && !late {
		return nil
	}
	ended := late // by itself
	if !late {
		var err error
		if ended, err = x.board.DB.LetStart(ctx, x.id, l.controls); err != nil || !ended {
			return err
		}
	}
	x.mu.Lock()
	if x.latch.link == l.link {
		x.latch.waits = false
	}
	x.mu.Unlock()
	x.mayStart()
	return nil
}

// sayFrozen adds to a heartbeat what is frozen here: of what the peer was ordered, or has ordered.
func (x *Exchange) sayFrozen(ctx context.Context, beat *commands.Heartbeat) error {
	if x.peer.Load().Authority == store.Commands {
		f, err := x.board.DB.Freezes(ctx)
		if err == nil {
			beat.Connection.Freeze = f.Of(x.id)
		}
		return err
	}
	held, err := x.board.DB.FrozenHere(ctx, x.id)
	if err == nil && beat.StartsNone == "" {
		beat.StartsNone = held.Why()
	}
	return err
}
