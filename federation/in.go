package federation

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// take takes in what came over the way, and returns nil only when all of it was
// dealt with: stored and committed, passed on, or found to be not authentic.
func (x *Exchange) take(ctx context.Context, envelopes [][]byte) error {
	if err := x.meter.wait(ctx, envelopes, x.noteRate); err != nil {
		return err
	}
	p := x.peer.Load()
	opened := x.openAll(ctx, p, envelopes)
	if slices.ContainsFunc(opened, unknownKey) {
		p = x.learnKeys(ctx, p)
		opened = x.openAll(ctx, p, envelopes)
	}
	x.noteAhead(ctx, opened)
	if err := x.countRejected(ctx, p, opened); err != nil {
		return err
	}
	if err := x.takeStored(ctx, p, opened); err != nil {
		return err
	}
	return x.pass(ctx, p, opened)
}

// An opening is what became of one message: authentic with its handler, or why not.
type opening struct {
	in       *store.Incoming
	handler  *Handler
	early    bool  // a kill that is taken before its time
	stored   bool  // before it has an effect, or is refused: all but what handlers pass on and exchanges say to each other
	said     bool  // the audit has the refusal, as one of the same kind came right before it
	later    bool  // this host cannot judge it now: it is left as if it had not come
	rejected error // why it is refused without being stored: not authentic (in is nil), of a kind that is not stored, or early (in is set)
}

// openAll verifies signatures on every core: they are most of the work.
func (x *Exchange) openAll(ctx context.Context, p *Peer, envelopes [][]byte) []opening {
	out := make([]opening, len(envelopes))
	workers := min(runtime.GOMAXPROCS(0), len(envelopes))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(envelopes); i += workers {
				out[i] = x.open(ctx, p, envelopes[i])
			}
		})
	}
	wg.Wait()
	return out
}

// open checks one message: form, signature, address, time and body. What only
// the database knows is decided in the transaction.
func (x *Exchange) open(ctx context.Context, p *Peer, envelope []byte) opening {
	in := &store.Incoming{Conn: p.ID, Envelope: envelope}
	o, err := p.Verifier.Open(envelope, time.Now())
	r, wrong := errors.AsType[*signing.Rejected](err)
	ahead := wrong && early(r, time.Now())
	if ahead {
		o, err = p.Verifier.Reopen(envelope)
	}
	if err == nil {
		in.Header, in.Digest = o.Header(), o.Digest()
		var c commands.Message
		if c, err = commands.Parse(o); err == nil {
			in.Body = c.Body
		}
	} else if r, ok := errors.AsType[*signing.Rejected](err); ok && r.Header != nil {
		in.Header, in.Digest = *r.Header, r.Digest
	} else {
		return opening{rejected: err}
	}
	kind := commands.Kind(in.Header.Kind)
	h := x.role.handlers[kind]
	stored := !x.ours(kind) && (h == nil || h.Pass == nil)
	switch {
	case stored && kind != commands.HeartbeatKind && commands.CodeOf(err) == signing.TimeFuture:
		return opening{in: in, rejected: err} // it comes again, and is taken when the clock that is wrong was set
	case err != nil:
		in.Refusal = refusal(err)
		if h != nil && kind == commands.ResultKind && in.Header.Wsp == p.workspace { // else its task would go on here for ever
			in.Unread, in.Body = true, commands.EndOf(o.Body(), in.Header.Iat, in.Refusal)
		}
	case !stored && in.Header.Wsp != p.workspace:
		in.Refusal = store.WrongWorkspace(in)
	case !stored && p.Ended[in.Header.Kid] != "":
		in.Refusal = endedKey(p, in)
	case h == nil && stored:
		in.Refusal = commands.Refuse(signing.HdrField, "a peer that this instance %s does not send %s", p.Authority, kind)
	case h != nil && h.Judge != nil:
		in.Refusal = h.Judge(ctx, in)
		if in.Later != nil && time.Now().UnixMilli() < in.Header.Exp { // of one that is over it does not matter any more
			x.unjudged.Do(func() {
				x.log.WarnContext(ctx, "a message of the peer cannot be judged on this host now; it is left, and comes again", "kind", kind, "id", in.Task(), "err", in.Later)
			})
			return opening{in: in, later: true}
		}
	}
	return opening{in: in, handler: h, stored: stored, early: ahead}
}

// A pace is what the times of the messages that a peer stores and sends say of its clock. Their numbers tell which was made last,
// in whatever order they come.
type pace struct {
	ahead *commands.Refused // why the newest of them was refused, where that was its time: it comes again; nil = it was not
	seq   int64             // of that one, or of the newest that came at its time
}

// note takes one message in. A kill that is taken early says nothing of the clock.
func (p *pace) note(o opening) {
	if o.in == nil || o.early || o.in.Header.Seq < p.seq {
		return
	}
	switch {
	case o.stored:
		*p = pace{seq: o.in.Header.Seq}
	case o.rejected != nil && commands.CodeOf(o.rejected) == signing.TimeFuture:
		*p = pace{ahead: refusal(o.rejected), seq: o.in.Header.Seq}
	}
}

// noteAhead remembers whether what the peer stores and sends is refused for its time, and says so once: its database may have another
// clock than its heartbeats.
func (x *Exchange) noteAhead(ctx context.Context, opened []opening) {
	x.mu.Lock()
	was := x.pace.ahead
	for _, o := range opened {
		x.pace.note(o)
	}
	now := x.pace.ahead
	x.mu.Unlock()
	if was == nil && now != nil {
		x.log.WarnContext(ctx, "messages of the peer are refused for their time, and come again; the clock of its host or of its database is ahead", "code", now.Code, "why", now.Why)
	}
}

// early reports whether a message that came before its time is taken all the same: a kill is. It ends what it names, whoever's
// clock is wrong; how long it is remembered stays bounded.
func early(r *signing.Rejected, now time.Time) bool {
	return r.Code == signing.TimeFuture && r.Header != nil && r.Header.Kind == string(commands.KillKind) && time.UnixMilli(r.Header.Iat).Sub(now) <= commands.KillsAhead
}

// Read opens a message of a connection that was taken in before.
func (b *Board) Read(conn string, envelope []byte) (commands.Message, error) {
	x := b.Exchange(conn)
	if x == nil {
		return commands.Message{}, commands.Refuse(signing.ConnState, "the connection is not served any more")
	}
	o, err := x.peer.Load().Verifier.Open(envelope, time.Now())
	if err != nil {
		return commands.Message{}, err
	}
	return commands.Parse(o)
}

// refusal is what the sender is told about a message that could not be read.
func refusal(err error) *commands.Refused {
	if r, ok := errors.AsType[*commands.Refused](err); ok {
		return r
	}
	if r, ok := errors.AsType[*signing.Rejected](err); ok {
		return commands.Refuse(r.Code, "%s", r.Why)
	}
	return &commands.Refused{Code: commands.Internal, Why: "this instance could not read the message", Err: err}
}

// countRejected counts and audits what is not authentic, and suspends a connection
// over which more than maxRefusals a minute come.
func (x *Exchange) countRejected(ctx context.Context, p *Peer, opened []opening) error {
	var c tally
	for _, o := range opened {
		if o.rejected == nil {
			continue
		}
		code, tell := commands.CodeOf(o.rejected), x.refusals.room(time.Now()) > 0
		x.board.Counters.Refused(string(code))
		c.add(p, x.refusals.count(code, store.FaultOf(code), tell, time.Now()), o.rejected.Error())
		if tell && !o.said {
			row := store.AuditRow{Actor: string(p.Peer), Action: "message.refused", Code: string(code), Why: o.rejected.Error(), Conn: p.ID}
			if o.in != nil {
				row.Message = o.in.Header.ID
			}
			c.rows = append(c.rows, row)
		}
	}
	return x.auditTally(ctx, p, c)
}

// countRefused counts what the transaction refused of a batch, which has audited
// what there was room for.
func (x *Exchange) countRefused(ctx context.Context, p *Peer, batch []*store.Incoming, wentOn bool) error {
	var c tally
	for _, in := range batch {
		if in.Counted() {
			c.add(p, x.refusals.count(in.Code, x.fault(in, wentOn), in.Told, time.Now()), fmt.Sprintf("%s: %s", in.Code, in.Why))
		}
	}
	return x.auditTally(ctx, p, c)
}

// fault says what a refusal tells of the peer. Who was restored from a backup may
// have lost what the peer answers; that itself was, it need not take the peer's word
// for.
func (x *Exchange) fault(in *store.Incoming, wentOn bool) store.Fault {
	switch f := in.Fault(); {
	case in.Code != commands.ReUnknown:
		return f
	case x.board.restored:
		return store.None
	case wentOn:
		return store.Stray
	default:
		return f
	}
}

// A tally is what refused messages add up to.
type tally struct {
	rows    []store.AuditRow
	suspend string // why; "" = not yet
}

func (c *tally) add(p *Peer, s counted, why string) {
	c.rows = append(c.rows, countRows(p, s.before)...)
	if s.suspend {
		c.suspend = why
	}
}

// auditTally audits a tally, and suspends the connection where that is due.
func (x *Exchange) auditTally(ctx context.Context, p *Peer, c tally) error {
	if len(c.rows) > 0 {
		if err := x.board.DB.Audit(ctx, c.rows...); err != nil {
			return err
		}
	}
	if c.suspend != "" && p.State == store.Active {
		return x.board.suspend(ctx, p, "too many messages in a minute that are not authentic, or that an honest peer does not sign; the last one: "+c.suspend)
	}
	return nil
}

// auditRefusals audits what was refused in a minute that has passed, beyond what has
// rows of its own.
func (b *Board) auditRefusals(ctx context.Context) error {
	var rows []store.AuditRow
	for _, x := range b.Exchanges() {
		rows = append(rows, countRows(x.peer.Load(), x.refusals.takeUntold(time.Now()))...)
	}
	if len(rows) == 0 {
		return nil
	}
	return b.DB.Audit(ctx, rows...)
}

// countRows says what a minute of refused messages added up to, without those
// that have rows of their own.
func countRows(p *Peer, counts map[signing.Code]int) []store.AuditRow {
	var rows []store.AuditRow
	for code, n := range counts {
		action, object := "message.refused", ""
		if code == commands.Resync {
			action, object = "connection.resync", p.Name
		}
		rows = append(rows, store.AuditRow{Actor: string(p.Peer), Action: action, Object: object, Code: string(code),
			Why: fmt.Sprintf("%d more in the same minute", n), Conn: p.ID})
	}
	return rows
}

// takeStored stores the messages of stored kinds and lets them have their
// effects, in one transaction.
func (x *Exchange) takeStored(ctx context.Context, p *Peer, opened []opening) error {
	var batch []*store.Incoming
	var which []*Handler
	for _, o := range opened {
		if o.stored {
			o.in.Asks = p.Authority == store.Obeys && commands.Kind(o.in.Header.Kind).Type() == signing.Command
			batch, which = append(batch, o.in), append(which, o.handler)
		}
	}
	if len(batch) == 0 {
		return nil
	}
	byMessage := map[*store.Incoming]*Handler{}
	for i, in := range batch {
		byMessage[in] = which[i]
	}
	taken, err := x.board.DB.TakeIn(ctx, p.ID, x.refusals.room(time.Now()), batch, func(ctx context.Context, tx *store.Tx, from store.Standing, fresh []*store.Incoming) error {
		return each(fresh, byMessage, func(h *Handler, some []*store.Incoming) error { return h.Take(ctx, tx, from, some) })
	})
	if err != nil {
		return err
	}
	for _, in := range batch {
		if in.Code != "" && in.Code != signing.ReplaySame {
			x.board.Counters.Refused(string(in.Code))
		}
	}
	if err := x.countRefused(ctx, p, batch, taken.WentOn); err != nil {
		return err
	}
	if err := x.noteFull(ctx, batch); err != nil {
		return err
	}
	if err := x.letStart(ctx); err != nil {
		x.log.DebugContext(ctx, "letting agents start; the next heartbeat does it", "err", err)
	}
	x.again(ctx, taken.Again)
	keys := slices.ContainsFunc(batch, isKeySet)
	if keys {
		x.learnKeys(ctx, p)
	}
	if taken.Stored.Through > 0 && (keys || p.Authority == store.Commands) { // whom we obey learns of the others from the answers and the heartbeats
		x.unconfirmed.Send()
	}
	_ = each(batch, byMessage, func(h *Handler, some []*store.Incoming) error {
		if h != nil && h.Taken != nil {
			h.Taken(ctx, some)
		}
		return nil
	})
	if taken.Reused > 0 {
		return x.numberReused(ctx, p, taken.Reused)
	}
	return nil
}

// each hands the messages of each handler to fn, handlers in the order of their
// first message, messages in their order.
func each(batch []*store.Incoming, handler map[*store.Incoming]*Handler, fn func(*Handler, []*store.Incoming) error) error {
	var order []*Handler
	groups := map[*Handler][]*store.Incoming{}
	for _, in := range batch {
		h := handler[in]
		if groups[h] == nil {
			order = append(order, h)
		}
		groups[h] = append(groups[h], in)
	}
	for _, h := range order {
		if err := fn(h, groups[h]); err != nil {
			return err
		}
	}
	return nil
}

// pass hands on what is not stored. What is refused of it counts as not authentic
// does: nobody else would tell.
func (x *Exchange) pass(ctx context.Context, p *Peer, opened []opening) error {
	var batch []*store.Incoming
	handler := map[*store.Incoming]*Handler{}
	var refused []opening
	for _, o := range opened {
		switch {
		case o.in == nil || o.stored || o.later || o.rejected != nil:
		case o.in.Refusal != nil:
			refused = append(refused, opening{in: o.in, rejected: o.in.Refusal})
		case x.ours(commands.Kind(o.in.Header.Kind)):
			err := x.hear(ctx, p, o.in)
			if r, ended := store.SpeakerEnded(err); ended {
				refused, err = append(refused, opening{in: o.in, rejected: r}), nil
			}
			if err != nil {
				return err
			}
		default:
			batch = append(batch, o.in)
			handler[o.in] = o.handler
		}
	}
	if err := x.countRejected(ctx, p, refused); err != nil {
		return err
	}
	return each(batch, handler, func(h *Handler, some []*store.Incoming) error { return h.Pass(ctx, p.Connection, some) })
}
