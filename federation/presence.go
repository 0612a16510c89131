package federation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// Presence is a heartbeat of the dialling side and an answer of the other one.
// Both say what they think of the connection and which numbers they have used
// and stored; the dialling side adds what it can and does.

// beats sends a heartbeat at once when the link is up, and then every interval.
// Nothing that an agent or the database does can hold it up: what it says about
// the database was read before.
func (x *Exchange) beats(ctx context.Context, d dialled) error {
	const retryFirst, retryMost = 100 * time.Millisecond, 5 * time.Second
	last, retry := int64(0), retryFirst
	due := time.Now()
	for ctx.Err() == nil {
		changed := x.change()
		if link := d.link(); link != 0 && (link != last || x.hurry.Load() || !time.Now().Before(due)) {
			x.hurry.Store(false)
			if err := x.beatOnce(ctx, d, link); err == nil {
				wait := x.board.interval()
				if x.mustCompare(link) { // what was said now may be what the other side waits for
					if x.pages() {
						retry = 0
					}
					wait = min(retry, wait)
					retry = min(max(2*retry, retryFirst), retryMost)
				} else {
					retry = retryFirst
				}
				last, due = link, time.Now().Add(wait)
			} else {
				x.log.DebugContext(ctx, "sending a heartbeat", "err", err)
				last, retry, due = link, min(2*retry, retryMost), time.Now().Add(min(retry, x.board.interval()))
			}
			continue
		}
		pause := max(time.Until(due), retryFirst)
		if d.link() == 0 {
			pause = retryMost // a link that comes is a change
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(pause):
		}
	}
	return nil
}

// Beat sends every hub a heartbeat now: what it says has changed.
func (b *Board) Beat() {
	for _, x := range b.Exchanges() {
		x.beatSoon()
	}
}

// pages reports whether one of the sides has more to recall.
func (x *Exchange) pages() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.history.paging
}

func (x *Exchange) beatOnce(ctx context.Context, d dialled, link int64) error {
	x.hold(ctx, link)
	envelope, err := x.sealBeat(ctx, link)
	if err != nil {
		return err
	}
	answer, err := d.Beat(ctx, envelope)
	if err == nil {
		err = x.heard(ctx, answer, link)
	}
	if ctx.Err() == nil && x.unanswered.Note(err) {
		if err != nil {
			x.log.WarnContext(ctx, "the peer does not answer heartbeats: it has much to do, or refuses them; the log of its host then has \"a heartbeat of the peer is refused\", with why", "err", err)
		} else {
			x.log.InfoContext(ctx, "the peer answers heartbeats again")
		}
	}
	return err
}

// serveBeats takes heartbeats of peers that dial us, and answers them.
func (b *Board) serveBeats(ctx context.Context) error {
	return b.Server.Presence(ctx, func(ctx context.Context, conn string, envelope []byte) []byte {
		x := b.Exchange(conn)
		if x == nil {
			return nil
		}
		link := x.way.link()
		if err := x.heard(ctx, envelope, link); err != nil && !answered(err) {
			x.log.DebugContext(ctx, "taking a heartbeat", "err", err)
			return nil
		}
		answer, err := x.sealBeat(ctx, link)
		if err != nil {
			x.log.DebugContext(ctx, "answering a heartbeat", "err", err)
			return nil
		}
		return answer
	})
}

// answered reports whether a heartbeat that was not taken is answered all the same: where its sender learns from the answer which key of
// it is known here, or by how much its clock is ahead. Any other is refused in silence.
func answered(err error) bool {
	switch commands.CodeOf(err) {
	case signing.KeyUnknown, signing.KeyWindow, signing.KeyRevoked, signing.TimeFuture:
		return true
	}
	return false
}

// sealBeat makes a heartbeat. While it cannot, this side is silent for a reason of its own.
func (x *Exchange) sealBeat(ctx context.Context, link int64) ([]byte, error) {
	p := x.peer.Load()
	signer, err := x.beatSigner(p)
	var envelope []byte
	if err == nil {
		envelope, err = x.board.sealOne(signer, p.Connection, x.presence(ctx, link))
	}
	if err == nil && len(envelope) > transport.MaxBeat {
		err = fmt.Errorf("it is %d bytes, limit %d", len(envelope), transport.MaxBeat)
	}
	if ctx.Err() == nil && x.unsealed.Note(err) {
		if err != nil {
			x.log.ErrorContext(ctx, "no heartbeat can be made, so the peer hears nothing of this instance", "err", err)
		} else {
			x.log.InfoContext(ctx, "heartbeats are made again")
		}
	}
	return envelope, err
}

// presence is what this side has to say now.
func (x *Exchange) presence(ctx context.Context, link int64) *commands.Heartbeat {
	beat := commands.Heartbeat{}
	if x.role.Load != nil {
		beat = x.role.Load(x.id, x.peer.Load().grant)
	}
	beat.IntervalMS = x.board.interval().Milliseconds()
	beat.Version, beat.Incarnation = x.board.Version, x.board.incarnation
	p := x.peer.Load()
	beat.Connection = viewOf(p.Connection)
	v := &beat.Connection
	v.Refuses, v.Limited, v.Full, v.Heeds = x.lapsedKey(), x.limits(), x.full.Load() != nil, x.heeds()
	if x.role.Holds != nil {
		v.Blobs = x.role.Holds()
	}
	x.sayHistory(ctx, link, &beat)
	return &beat
}

// viewOf is what this side says of the state of c. A reason of before that no peer takes is
// cleaned: it would silence this side.
func viewOf(c store.Connection) commands.ConnectionView {
	return commands.ConnectionView{State: string(c.State), Reason: commands.CleanReason(c.Reason), By: c.By}
}

// lastMessage is the last one over c, which has ended.
func lastMessage(c store.Connection) *commands.Revoked {
	return &commands.Revoked{Reason: commands.CleanReason(c.Reason)}
}

// limits reports whether the peer is above its rate.
func (x *Exchange) limits() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.isLimited()
}

// heard takes in what the peer says about itself and the connection. Over one link only
// what is newer than the last counts: an old heartbeat that somebody replays says nothing.
// One that is not taken is an error with the code of its refusal.
func (x *Exchange) heard(ctx context.Context, envelope []byte, link int64) error {
	p, in, body, err := x.openBeat(ctx, envelope)
	if commands.CodeOf(err) == signing.TimeFuture {
		return errors.Join(err, x.heardEarly(ctx, p, envelope, link))
	}
	if err != nil {
		return err
	}
	if r := x.keep(ctx, in, body, link); r != nil {
		x.warnOfBeat(ctx, r)
		return r
	}
	if err := x.noteLapsed(ctx, p, body.Connection.Refuses); err != nil {
		x.log.DebugContext(ctx, "auditing that the peer refuses the signing key", "err", err)
	}
	// A table that is locked must not hold up the next heartbeat, which brings all of this
	// once more.
	brief, done := x.brief(ctx)
	defer done()
	var noting error
	if p.Authority == store.Obeys { // one that dials us says its incarnation with each login
		noting = errors.Join(x.noteIncarnation(brief, body.Incarnation), x.heed(brief, p, in.Header.Kid, body.Connection, link, envelope))
	}
	err = errors.Join(noting, x.suspendIfTwice(brief), x.notePeerState(brief, p, in.Header.Kid, body.Connection), x.witnessAudit(brief, p, body.Connection.Audit))
	if r, ended := store.SpeakerEnded(err); ended { // since the keys were read
		return x.refuseKey(ctx, x.learnKeys(ctx, p), in, r)
	}
	if err != nil {
		x.log.DebugContext(ctx, "noting what the peer says of itself; the next heartbeat does it again", "err", err)
	}
	if err := x.suspendIfCloned(ctx, p, body.Connection); err != nil {
		return err
	}
	if err := x.compareBeat(ctx, p, in, body.Connection, link); err != nil {
		return err
	}
	if body.Connection.State != string(store.Active) {
		return nil // it is there, and wants nothing started
	}
	return x.board.resumeLease(ctx, p)
}

// compareBeat holds the numbers of a heartbeat against ours, where it has some. A peer that has none cannot ask its database:
// until that is back, it confirms nothing, and is sent nothing again.
func (x *Exchange) compareBeat(ctx context.Context, p *Peer, in *store.Incoming, v commands.ConnectionView, link int64) error {
	if v.Numbers == nil {
		x.cursor.Hold()
		return nil
	}
	comparing, done := x.patience(ctx, link)
	defer done()
	err := x.compare(comparing, p, v, link, in.Header)
	if r, ended := store.SpeakerEnded(err); ended {
		return x.refuseKey(ctx, x.learnKeys(ctx, p), in, r)
	}
	if err != nil {
		x.log.DebugContext(ctx, "comparing numbers; the next heartbeat does it again", "err", err)
		return nil
	}
	x.cursor.Release()
	x.cursor.Suspend(v.State == string(store.Suspended)) // later: what it begins is at once
	return nil
}

// openBeat verifies a heartbeat, and returns the peer as its keys were known then. One that is refused is counted, and an
// error with the code of that.
func (x *Exchange) openBeat(ctx context.Context, envelope []byte) (*Peer, *store.Incoming, *commands.Heartbeat, error) {
	p := x.peer.Load()
	o := x.open(ctx, p, envelope)
	if unknownKey(o) {
		p = x.learnKeys(ctx, p)
		o = x.open(ctx, p, envelope)
	}
	if o.rejected == nil && p.Ended[o.in.Header.Kid] != "" {
		return p, nil, nil, x.refuseKey(ctx, p, o.in, endedKey(p, o.in))
	}
	if o.rejected == nil {
		o.rejected = noBeat(p, o.in)
	}
	if o.rejected != nil {
		o.said = x.warnOfBeat(ctx, o.rejected)
		return p, nil, nil, errors.Join(o.rejected, x.countRejected(ctx, p, []opening{o}))
	}
	return p, o.in, o.in.Body.(*commands.Heartbeat), nil
}

// noBeat is why an authentic message is no heartbeat that is taken; nil where it is one.
func noBeat(p *Peer, in *store.Incoming) error {
	if in.Header.Wsp != p.workspace {
		return store.WrongWorkspace(in)
	}
	if _, ok := in.Body.(*commands.Heartbeat); ok { // which no handler takes
		return nil
	}
	if in.Refusal != nil {
		return in.Refusal
	}
	return commands.Refuse(signing.HdrField, "this is not a heartbeat")
}

// brief bounds what a heartbeat asks of the database.
func (x *Exchange) brief(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Second)
}

// patience bounds a comparison. The first one on a link may have much to do.
func (x *Exchange) patience(ctx context.Context, link int64) (context.Context, context.CancelFunc) {
	if x.mustCompare(link) {
		return context.WithTimeout(ctx, 5*time.Second)
	}
	return x.brief(ctx)
}

// replaysFor is how many of its own intervals after a peer's last heartbeat an older one over the same link counts as a replay.
const replaysFor = 3

// keep remembers a heartbeat, unless the last one over the same link is newer. On a new link,
// which the peer has authenticated, an older one is no replay: its clock was set back. Nor is it on a link over which the peer
// has said nothing newer for some intervals: who could replay there could also begin a new link.
func (x *Exchange) keep(ctx context.Context, in *store.Incoming, body *commands.Heartbeat, link int64) *commands.Refused {
	issued, now := time.UnixMilli(in.Header.Iat), time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if b := x.beat; b != nil && x.beatLink == link {
		if back := b.At.Add(b.Offset).Sub(issued); back > 0 {
			if now.Sub(b.At) < replaysFor*time.Duration(b.Body.IntervalMS)*time.Millisecond {
				return commands.Refuse(signing.TimeExpired, "issued %s before the last one over this link; was the clock of its host set back?", back.Round(time.Millisecond))
			}
			x.log.WarnContext(ctx, "the clock of the peer was set back: what it says is heard again", "by", back.Round(time.Millisecond))
		}
	}
	x.history.issued = min(x.history.issued, in.Header.Iat) // what it says from now on is no older than the agreement, which an early one may have made
	x.heeded = body.Connection.Heeds
	if x.clocksDiffer() && issued.Sub(now) >= -signing.Skew {
		x.cursor.Rewind() // what was refused for its time is sent again
	}
	x.beatRefused, x.unknownBeats = nil, 0
	if in.Header.Kid != x.peer.Load().Verifier.Identity {
		x.refuses = nil
	}
	if x.beat != nil && x.beat.Body.Connection.Full && !body.Connection.Full {
		x.cursor.Rewind() // what did not fit there is sent again
	}
	if x.beat != nil && x.beat.Body.Connection.Blobs != body.Connection.Blobs || x.beatLink != link {
		defer x.broadcast()
	}
	x.beat, x.beatLink, x.unsaved = &store.Beat{Conn: x.id, At: now, Offset: issued.Sub(now), Body: *body}, link, true
	return nil
}

// clocksDiffer reports whether, by the peer's last heartbeat, one of the sides refuses what the other signs. The caller holds mu.
func (x *Exchange) clocksDiffer() bool {
	return x.beatRefused != nil && x.beatRefused.Code == signing.TimeFuture || x.beat != nil && x.beat.Offset < -signing.Skew
}

// warnOfBeat says that a heartbeat is not taken, once until one is: what the peer thinks
// of the connection is not known here meanwhile. It reports whether the last one was refused, too, as its key is not known: that
// lasts, and the audit has it.
func (x *Exchange) warnOfBeat(ctx context.Context, why error) (said bool) {
	r := refusal(why)
	x.mu.Lock()
	known := x.beatRefused != nil
	x.beatRefused = r
	if r.Code == signing.KeyUnknown {
		x.unknownBeats++
	} else {
		x.unknownBeats = 0
	}
	said = x.unknownBeats > 1
	x.mu.Unlock()
	if !known && x.refusals.room(time.Now()) > 0 {
		x.log.WarnContext(ctx, "a heartbeat of the peer is refused, and so what it says of the connection", "code", r.Code, "why", r.Why)
	}
	return said
}

// changedLink is told of each change of a link that we dial.
func (b *Board) changedLink(conn string) func(transport.LinkState) {
	was := false
	return func(st transport.LinkState) {
		x := b.Exchange(conn)
		if was && !st.Up && x != nil && x.peer.Load().State == store.Active {
			b.Counters.LinkLost()
		}
		if was = st.Up; x != nil {
			x.mu.Lock()
			x.broadcast()
			x.mu.Unlock()
		}
		if st.Up {
			b.changed() // keys may have waited for the link
		}
	}
}
