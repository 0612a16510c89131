package federation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/store"
)

// How often the table is read when nobody says that it changed: the leases have to be
// renewed. It is read sooner while something does not go on without being looked at: what failed,
// a connection that another process serves, or a linked peer that does not know the newest keys.
const (
	lookAgain = 10 * time.Second
	lookSoon  = 2 * time.Second
)

// reconcileAll makes true what the table says, again and again, until ctx ends.
// It then ends all exchanges. Nothing else admits, cuts, starts or stops.
func (b *Board) reconcileAll(ctx context.Context) error {
	for ctx.Err() == nil {
		next := lookAgain
		settled, err := b.reconcile(ctx)
		if err != nil && ctx.Err() == nil {
			b.Log.ErrorContext(ctx, "following the table of connections; it is tried again", "err", err)
		}
		if err != nil || !settled {
			next = lookSoon
		}
		select {
		case <-ctx.Done():
		case <-b.wake:
		case <-time.After(next):
		}
	}
	for _, x := range b.Exchanges() {
		b.drop(x)
	}
	b.tellers.Wait()
	return nil
}

// reconcile reads the table once and follows it: message server first, then the
// exchanges, then the view that others read. It reports whether nothing has to be looked at soon.
func (b *Board) reconcile(ctx context.Context) (settled bool, err error) {
	b.mu.Lock()
	ticket := b.asked
	b.mu.Unlock()
	behind, keys := b.tendKeys(ctx)
	failed := map[string]error{} // one connection's error holds up no other
	table, err := b.serve(ctx, failed)
	if err != nil {
		return false, errors.Join(keys, err)
	}
	settled = !behind
	for _, row := range table {
		settled = settled && (row.Ours || row.Holder == "" || row.State.Ended())
		if failed[row.ID] != nil {
			continue
		}
		if err := b.followOne(ctx, row); err != nil {
			failed[row.ID] = fmt.Errorf("following the connection with %s: %w", row.Name, err)
		}
	}
	b.mu.Lock()
	b.followed, b.failed = ticket, failed
	close(b.moved)
	b.moved = make(chan struct{})
	b.mu.Unlock()
	return settled, errors.Join(keys, joined(failed), b.keepEnded(table))
}

func (b *Board) followOne(ctx context.Context, row store.Served) error {
	b.logChange(ctx, row.Connection)
	b.logLink(ctx, row.Connection)
	b.logHolder(ctx, row)
	b.hangUp(row.Connection)
	b.tellEnd(ctx, row.Connection)
	if row.Authority == store.Commands && b.Server != nil {
		if err := b.enforce(ctx, row.Connection); err != nil {
			return err
		}
	}
	x := b.Exchange(row.ID)
	p := &Peer{row.Connection, row.Verifying, row.Signs, row.Revoked, row.Refuses, row.Workspace, row.Freezes, row.Grant}
	role := b.roleFor(row.Authority)
	wanted := role != nil && row.Ours && !row.State.Ended() && row.State != store.Pending
	switch {
	case x != nil && !wanted:
		b.drop(x)
	case x != nil:
		x.follow(p)
	case wanted:
		b.start(ctx, p, role)
	}
	return nil
}

// logChange logs a change of state, once.
func (b *Board) logChange(ctx context.Context, c store.Connection) {
	b.mu.Lock()
	was, known := b.known[c.ID]
	b.known[c.ID] = c
	b.mu.Unlock()
	if known && was.State != c.State {
		b.Log.InfoContext(ctx, "connection changed", "connection", c.Name, "state", c.State, "by", c.By, "reason", c.Reason)
	}
}

// logHolder logs that another process serves a connection, once, and keeps it for who asks
// why there is no link.
func (b *Board) logHolder(ctx context.Context, row store.Served) {
	b.mu.Lock()
	was := b.heldBy[row.ID]
	delete(b.heldBy, row.ID)
	held := !row.Ours && !row.State.Ended() && row.Holder != ""
	if held {
		b.heldBy[row.ID] = fmt.Errorf("%s serves the connection, until %s unless it goes on", row.Holder, row.Until.Local().Format(time.TimeOnly))
	}
	b.mu.Unlock()
	if held && was == nil {
		b.Log.WarnContext(ctx, "another process serves the connection; this one waits until the other is silent", "connection", row.Name, "process", row.Holder, "until", row.Until)
	}
}

// logLink logs when the link of a peer that dials us comes and when it goes by
// itself. A link that is replaced between two looks is not worth a line.
func (b *Board) logLink(ctx context.Context, c store.Connection) {
	x := b.Exchange(c.ID)
	if x == nil || c.Authority != store.Commands {
		return
	}
	linked, since, remote, _ := x.way.state()
	lost := !linked && !x.linkLogged.IsZero()
	switch {
	case linked && x.linkLogged.IsZero():
		about := []any{"address", remote, "since", since}
		if at := x.linkLost.Load(); at != nil {
			about = append(about, "away_ms", max(since.Sub(*at), 0).Milliseconds())
		}
		x.log.InfoContext(ctx, "linked to a spoke", about...)
	case lost && c.State == store.Active:
		b.Counters.LinkLost()
		x.log.WarnContext(ctx, "not linked to a spoke any more", "linked_since", x.linkLogged)
	}
	if lost {
		now := time.Now()
		x.linkLost.Store(&now)
	}
	if linked == x.linkLogged.IsZero() {
		b.tellLink(ctx, c, linked)
	}
	x.linkLogged = since
	x.linkedLogged.Store(linked)
}

// tellLink tells whoever follows this instance of a link that came or went.
func (b *Board) tellLink(ctx context.Context, c store.Connection, linked bool) {
	state := "down"
	if linked {
		state = "up"
	}
	if err := b.DB.NoteEvent(ctx, store.LinkEvent, c.ID, state); err != nil && ctx.Err() == nil {
		b.Log.ErrorContext(ctx, "noting that a link came or went", "connection", c.Name, "state", state, "err", err)
	}
}

// enforce makes the message server follow a connection's state: active peers are
// let in, ended ones leave nothing behind, all others are cut and their queues kept.
func (b *Board) enforce(ctx context.Context, c store.Connection) error {
	wanted := string(c.State) + " " + c.LinkKey
	if b.applied[c.ID] == wanted {
		return nil
	}
	if err := b.letAsk(c); err != nil {
		return err
	}
	switch {
	case c.State == store.Active:
		if err := b.admit(ctx, c); err != nil {
			return err
		}
	case c.State.Ended():
		if err := b.Server.Forget(ctx, c.ID); err != nil {
			return fmt.Errorf("dropping the queues: %w", err)
		}
	default:
		b.Server.Cut(c.ID)
	}
	b.applied[c.ID] = wanted
	return nil
}

// hangUp ends the link of a connection whose histories are to be compared anew,
// with all that this side remembers of it. What follows makes the next one.
func (b *Board) hangUp(c store.Connection) {
	x := b.Exchange(c.ID)
	if x == nil || !x.anew.Load() {
		return
	}
	b.drop(x)
	if c.Authority == store.Commands {
		b.Server.Cut(c.ID)
		delete(b.applied, c.ID)
	}
}

func (b *Board) admit(ctx context.Context, c store.Connection) error {
	if err := b.Server.Admit(ctx, transport.Peer{ID: c.ID, NKey: c.LinkKey, Name: c.Name}); err != nil {
		return fmt.Errorf("admitting %s: %w", c.Name, err)
	}
	return nil
}

// start runs the exchange of p until it is dropped.
func (b *Board) start(ctx context.Context, p *Peer, r *role) {
	var w way = served{b.Server, p.ID}
	if p.Authority == store.Obeys {
		w = dialled{&transport.Link{Address: p.LinkURL, Pins: []string{p.LinkPin}, ID: p.ID, Seed: b.Keys.LinkSeed, Incarnation: b.incarnation,
			Log: b.Log.With("connection", p.Name), Changed: b.changedLink(p.ID)}}
	}
	x := newExchange(b, p, r, w)
	if x.beat, x.beatLink = b.lastBeat(ctx, p.ID), fromTable; x.beat != nil {
		x.heeded = x.beat.Body.Connection.Heeds
	}
	ctx, x.stop = context.WithCancel(ctx)
	b.mu.Lock()
	b.exchanges[p.ID] = x
	b.mu.Unlock()
	go func() {
		defer close(x.ended)
		if err := x.run(ctx); err != nil && ctx.Err() == nil {
			x.log.ErrorContext(ctx, "the connection is not served any more; see: spawnmesh doctor", "err", err)
		}
	}()
}

// drop ends an exchange and waits for it.
func (b *Board) drop(x *Exchange) {
	x.stop()
	<-x.ended
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.exchanges, x.id)
}

// fromTable is in place of the link over which a heartbeat came that the table has.
const fromTable = -1

func (b *Board) lastBeat(ctx context.Context, conn string) *store.Beat {
	beat, err := b.DB.Beat(ctx, conn)
	if err != nil {
		b.Log.WarnContext(ctx, "reading the last heartbeat", "err", err)
	}
	return beat
}
