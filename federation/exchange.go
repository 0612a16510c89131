package federation

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/streak"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// An Exchange carries all messages of one connection: what comes in is verified,
// stored and acted on, what the outbox holds goes out until it is confirmed.
type Exchange struct {
	id     string // of the connection
	board  *Board
	role   *role // of the connection, for good
	way    way
	log    *slog.Logger
	cursor *store.Cursor
	holder string // the message server in which waits what the cursor has passed; relay alone knows
	meter  *meter

	peer     atomic.Pointer[Peer] // as the table had it at the last reconcile
	refusals refusals
	unjudged rate.Sometimes // bounds what is said of messages that are left

	unsealed, unanswered streak.Failures // heartbeats that could not be made, and that the peer did not answer
	uncounted            streak.Failures // heartbeats without numbers

	unconfirmed wait.Signal // sent when there is something to confirm
	calls       atomic.Bool // the next confirmation asks the peer, which dials, for a heartbeat

	mu           sync.Mutex        // guards the rest
	changed      chan struct{}     // closed when peer, or what both agree on, changes
	history      history           // what both sides agree on
	witness      witness           // of the peer's audit
	auditRefused atomic.Bool       // the peer refuses the audit of this instance, which was said
	latch        latch             // of a peer that is obeyed: whether it lets agents start
	beat         *store.Beat       // the peer's last heartbeat
	beatLink     int64             // over which it came; fromTable for one that an earlier process heard
	early        earlyBeat         // the newest one of the peer that came before its time
	heeded       int64             // the number of our newest freeze that the peer, which obeys, says it has stored
	beatRefused  *commands.Refused // why the last heartbeat was not taken, as was said; nil = it was
	pace         pace
	unsaved      bool            // beat is newer than the one in the database
	unsavable    bool            // the database has refused the last one, which was said
	peerState    store.PeerState // of the connection on the peer's side, as noted last in the database
	peerStateAt  time.Time       // when that was
	limited      time.Time       // until when the peer has to wait because of its rate, or had to; zero = never
	slowed       bool            // that was said

	refuses      *commands.EndedKey       // the key of the last heartbeat, which has ended here; nil = it was good
	refusedHeard []commands.RefusedReport // what the peer said last that it has refused of our reports
	lapsed       *commands.EndedKey       // our key that has ended at the peer, as its last heartbeat said; nil = none that is in use
	keyLost      bool                     // the peer was restored to before it was told the key that signs towards it
	keysTold     time.Time                // when it was told again last; zero = never
	keyTellings  int                      // how often it was told in a row
	keysThrough  int64                    // the highest number of a set that it was told so
	unknownBeats int                      // heartbeats of the peer in a row whose key is not known here
	lapses       int                      // heartbeats in a row that said so
	lapseLogged  signing.KeyID            // the last key of which that was logged

	noting sync.Mutex // held while the incarnation of a link is noted; it comes before mu
	noted  time.Time  // since when the newest link is up whose incarnation was noted; guarded by noting

	full             atomic.Pointer[time.Time] // since when the inbox keeps no more of the peer's messages; nil = it does
	hurry            atomic.Bool               // a heartbeat is due now: what it says has changed
	anew             atomic.Bool               // a person wants the histories compared on a new link
	heardIncarnation string                    // the incarnation of the peer that was heard last since the state changed
	twice            bool                      // an incarnation came back: two instances have the peer's key; until the state changes
	linkLogged       time.Time                 // since when the link is up that was logged; zero = none; reconcile alone changes it
	linkLost         atomic.Pointer[time.Time] // when the last one was found to be gone; nil = none was; reconcile alone changes it
	linkedLogged     atomic.Bool               // whether there is such a link

	stop  context.CancelFunc
	ended chan struct{}
}

func newExchange(b *Board, p *Peer, r *role, w way) *Exchange {
	x := &Exchange{id: p.ID, board: b, role: r, way: w, log: b.Log.With("connection", p.Name), unjudged: rate.Sometimes{First: 10, Interval: time.Minute}, cursor: b.DB.NewCursor(p.ID), meter: newMeter(b.Rate),
		unconfirmed: wait.NewSignal(), changed: make(chan struct{}), ended: make(chan struct{})}
	x.peer.Store(p)
	return x
}

// run works until ctx ends.
func (x *Exchange) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, q := range x.way.queues() {
		g.Go(func() error { return x.read(ctx, q) })
	}
	g.Go(func() error { return x.relay(ctx) })
	g.Go(func() error { return x.confirms(ctx) })
	if d, ok := x.way.(dialled); ok {
		g.Go(func() error { return d.Run(ctx) })
		g.Go(func() error { return x.beats(ctx, d) })
		g.Go(func() error { return x.asks(ctx, d) })
	}
	return g.Wait()
}

// read takes in what waits in q while the connection's state allows it. What is
// not read stays where it is.
func (x *Exchange) read(ctx context.Context, q string) error {
	for ctx.Err() == nil {
		wanted, changed := x.reads(q)
		if !wanted {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		reading, stop := context.WithCancelCause(ctx)
		go func() {
			for {
				select {
				case <-reading.Done():
					return
				case <-changed:
				}
				if wanted, changed = x.reads(q); !wanted {
					stop(errClosing)
					return
				}
			}
		}()
		err := x.way.receive(reading, q, x.take)
		stop(nil)
		if err != nil && ctx.Err() == nil {
			x.log.WarnContext(ctx, "reading a queue ended; it is opened again", "queue", q, "err", err)
			_ = wait.For(ctx, time.Second)
		}
	}
	return nil
}

// reads reports whether q is to be read now, and gives what is closed when that
// may change.
func (x *Exchange) reads(q string) (wanted bool, changed <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.peer.Load()
	wanted = p.State == store.Active || p.State == store.Suspended && !commands.HeldWhileSuspended(q)
	return wanted, x.changed
}

// follow takes over what the table says now.
func (x *Exchange) follow(p *Peer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p.Verifier.Heads = x.peer.Load().Verifier.Heads // what was verified stays true, whichever keys there are now
	was := x.peer.Swap(p)
	if was.freezes != p.freezes && p.Authority == store.Commands {
		x.calls.Store(true)
		x.unconfirmed.Send()
	}
	if was.grant.String() != p.grant.String() && p.Authority == store.Obeys {
		x.hurry.Store(true)
		x.broadcast()
	}
	if was.State != p.State {
		x.hurry.Store(true)
		// Links count until the state changes: a suspension tells what they showed, and whoever
		// resumes has decided about it.
		x.twice, x.heardIncarnation = false, ""
		x.broadcast()
	}
}

// broadcast wakes all who wait for a change. The caller holds mu.
func (x *Exchange) broadcast() {
	close(x.changed)
	x.changed = make(chan struct{})
	if x.role.Changed != nil {
		x.role.Changed()
	}
}

// change is closed when something about the connection or its link changes.
func (x *Exchange) change() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.changed
}

// relays reports whether the connection's state lets anything out.
func (x *Exchange) relays() bool {
	state := x.peer.Load().State
	return state == store.Active || state == store.Suspended
}

// noteRate takes note of how long the peer has to wait because of its rate. The log
// says once that it is above it, and once that it is not any more.
func (x *Exchange) noteRate(delay time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case delay > 100*time.Millisecond:
		x.limited = time.Now().Add(delay)
		if !x.slowed {
			x.slowed = true
			x.log.Warn("the peer sends more than it may; what is above waits on its side", "code", commands.Rate)
		}
	case x.slowed && !x.isLimited():
		x.slowed = false
		x.log.Info("the peer is within its rate again")
	}
}

// isLimited reports whether the peer was above its rate in the last minute. The caller
// holds mu.
func (x *Exchange) isLimited() bool { return time.Since(x.limited) <= time.Minute }

// ours reports whether kind is one that exchanges themselves speak.
func (x *Exchange) ours(kind commands.Kind) bool {
	return kind == commands.ReceivedKind || kind == commands.RevokedKind
}

// hear acts on a message between the instances themselves.
func (x *Exchange) hear(ctx context.Context, p *Peer, in *store.Incoming) error {
	switch b := in.Body.(type) {
	case *commands.Received:
		if err := x.noteRefusedReports(ctx, p, in.Header.Kid, b.Refused); err != nil {
			return err // before what was stored: a key set that was refused is not confirmed
		}
		if b.Beat {
			x.beatSoon()
		}
		return x.confirmed(ctx, in.Header, b.Numbers)
	case *commands.Revoked:
		return x.board.revokedByPeer(ctx, p, in.Header.Kid, b.Reason)
	}
	return &signing.Rejected{Code: signing.HdrField, Why: "this is not said between instances"}
}
