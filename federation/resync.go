package federation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// On every new link both sides first hold their histories against each other:
// with its heartbeats each side tells its numbers and a digest of what it has of
// the other's messages. Nothing is relayed before they agree. Where they do not,
// one side was restored from a backup; see [store.DB.Compare] for how it goes on.

// An history is what both sides of a connection agree on.
type history struct {
	link    int64   // on which the histories agree; 0 for none
	issued  int64   // when the peer said what made them agree, ms by its clock
	differs string  // why they do not agree; "" while that is not known
	ask     []int64 // messages of ours: what does the peer have under these numbers?
	waits   string  // for what the answer to the peer's question waits; "" for nothing
	reuse   reuse   // of a peer that used a number twice
	paging  bool    // one of the sides has more to recall
	more    bool    // the peer was told a part of what it has said, and asks for the next one
	asked   int64   // from which number on the peer asked when it was compared with last,
	askedOn int64   // on this link
	settled store.Settled
	learnt  int   // tasks of which the peer has said what became of them
	told    int64 // the highest number of the peer that it was told to be stored here,
	toldOn  int64 // on this link
}

// mustCompare reports whether one of the sides does not yet know that the histories
// agree on link.
func (x *Exchange) mustCompare(link int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.history.link != link || x.history.reuse.number > 0 || x.beat == nil || !x.beat.Body.Connection.Agrees
}

// sayHistory adds to a heartbeat what this side knows of the history, its digest
// while one of the sides must compare, and what else is read for it. A database that does not answer must not silence
// a living instance: all of this has one second, the numbers are then left out, and nobody compares them.
func (x *Exchange) sayHistory(ctx context.Context, link int64, beat *commands.Heartbeat) {
	v := &beat.Connection
	whole := x.mustCompare(link)
	x.mu.Lock()
	v.Agrees = link != 0 && x.history.link == link
	ask := x.history.ask
	var theirs *commands.Numbering
	if x.beat != nil {
		theirs = x.beat.Body.Connection.Numbers
	}
	x.mu.Unlock()
	theirs = x.answerable(ctx, link, theirs)
	v.Differs = x.differs()
	asking, done := x.brief(ctx)
	defer done()
	// A peer that was told the numbers alone would start what is frozen.
	err := x.sayFrozen(asking, beat)
	var n commands.Numbering
	if err == nil {
		n, err = x.board.DB.Numbering(asking, x.id, whole, theirs)
	}
	if x.noteUncounted(ctx, err); err != nil {
		return
	}
	n.Ask = ask
	v.Numbers = &n
	x.mu.Lock()
	x.history.more = n.Recalled != nil && !n.Recalled.Done
	x.history.told, x.history.toldOn = n.Stored.Through, link
	x.history.reuse.told = n.Digest != nil || n.Stored.Through == 0
	x.mu.Unlock()
	x.sayAudit(asking, v)
}

// noteUncounted says that heartbeats keep having no numbers: nothing is relayed over a new link then.
func (x *Exchange) noteUncounted(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil || !x.uncounted.Note(err):
	case err != nil:
		x.log.WarnContext(ctx, "heartbeats have no numbers; nothing is sent over a new link", "err", err)
	default:
		x.log.InfoContext(ctx, "heartbeats have numbers again")
	}
}

// answerable returns the peer's numbers without its question for what it has said, while
// messages of it wait on the way: of the time before its restore, as it sends nothing
// before it has the answer. An answer without them would be taken for all. Nor is a question
// answered that was not compared on this link: only then is it known which orders come again, and
// before it the peer may have been restored to the same backup once more.
func (x *Exchange) answerable(ctx context.Context, link int64, theirs *commands.Numbering) *commands.Numbering {
	if theirs == nil || theirs.Recall == 0 {
		x.answerWaits("")
		return theirs
	}
	later := *theirs
	later.Recall = 0
	if !x.compared(theirs.Recall, link) {
		return &later
	}
	counting, done := context.WithTimeout(ctx, 5*time.Second) // over a slow line
	defer done()
	n, err := x.way.waiting(counting)
	if err != nil {
		x.log.DebugContext(ctx, "counting what waits before the peer is told what it has said", "err", err)
	}
	if err == nil && n == 0 {
		x.answerWaits("")
		return theirs
	}
	why := "the peer was restored from a backup, and is told what it has said when what waits of it is counted"
	if err == nil {
		why = fmt.Sprintf("the peer was restored from a backup, and is told what it has said when %d messages of it are taken in here", n)
	}
	x.answerWaits(why)
	return &later
}

// compared reports whether the peer was last compared with on link, when it asked from a number on.
func (x *Exchange) compared(asked, link int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.history.asked == asked && x.history.askedOn == link
}

func (x *Exchange) answerWaits(why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.history.waits = why
}

// differs says why nothing is relayed, "" while that is not known or not so.
func (x *Exchange) differs() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return cmp.Or(x.history.waits, x.history.differs)
}

// compare holds the peer's numbers against ours. What it has stored is confirmed.
func (x *Exchange) compare(ctx context.Context, p *Peer, view commands.ConnectionView, link int64, h signing.Header) error {
	by := store.Speaker{Conn: p.ID, Key: h.Kid}
	theirs := *view.Numbers
	x.mu.Lock()
	if view.Agrees && x.history.reuse.told {
		x.history.reuse.number, x.history.reuse.told = 0, false
	}
	agreed, told := link != 0 && x.history.link == link, int64(-1)
	if x.history.toldOn == link {
		told = x.history.told
	}
	x.mu.Unlock()
	if err := x.board.DB.CloseVoid(ctx, by, theirs.Void); err != nil {
		return err
	}
	if err := x.noteRefusedReports(ctx, p, h.Kid, theirs.Refused); err != nil {
		return err
	}
	x.mu.Lock()
	x.history.paging = x.history.more && theirs.Recall > x.history.asked // a peer that asks for the same again waits
	x.mu.Unlock()
	if agreed && view.Agrees && theirs.Recall == 0 {
		return x.recompareIfRestored(x.board.DB.Confirm(ctx, by, theirs.Stored))
	}
	found, err := x.agree(ctx, p, by, theirs, told, link, h.Iat)
	if err != nil || theirs.Recalled == nil || len(found.Ask) > 0 { // else it may reach further than the numbers that are known here
		return err
	}
	// Behind a comparison, which opens again the orders of agents that ran and that the peer
	// has no more: it does so only while what the peer was told is asked for.
	if err := x.recall(ctx, p, by, theirs.Recalled); err != nil {
		return err
	}
	_, err = x.agree(ctx, p, by, theirs, told, link, h.Iat)
	return err
}

// agree holds the histories against each other, and remembers whether they agree. told is
// what the peer knew to be stored here when it said so.
func (x *Exchange) agree(ctx context.Context, p *Peer, by store.Speaker, theirs commands.Numbering, told, link, issued int64) (store.Agreement, error) {
	found, err := x.board.DB.Compare(ctx, by, theirs, told, x.refusals.room(time.Now()))
	if err != nil {
		return found, err
	}
	if found.Resend {
		x.cursor.Rewind()
	}
	x.mu.Lock()
	x.history.asked, x.history.askedOn = theirs.Recall, link
	x.mu.Unlock()
	x.tellLostKeys(ctx, found)
	return found, errors.Join(x.setAgreement(ctx, p, found, link, issued), x.countChanges(ctx, p, found.Told, found.Untold))
}

// countChanges counts what comparisons changed: an honest peer is restored now and then, and
// one that says something else with each heartbeat is suspended.
func (x *Exchange) countChanges(ctx context.Context, p *Peer, told, untold int) error {
	var c tally
	for i := range told + untold {
		c.add(p, x.refusals.count(commands.Resync, store.Wrong, i < told, time.Now()), "its history was another one with each heartbeat")
	}
	return x.auditTally(ctx, p, c)
}

// recall takes in what the peer was told by this instance, which was restored
// from a backup. What no honest peer says suspends the connection.
func (x *Exchange) recall(ctx context.Context, p *Peer, by store.Speaker, r *commands.Recalled) error {
	var strange []error
	taken, err := x.board.DB.Recall(ctx, by, r, func(ctx context.Context, tx *store.Tx) (err error) {
		strange, err = x.role.Recalled(ctx, tx, p.Connection, r)
		return err
	})
	many, tooMany := errors.AsType[*store.TooManyRecalled](err)
	switch {
	case commands.CodeOf(err) == commands.Validation:
		return errors.Join(err, x.countRejected(ctx, p, []opening{{rejected: err}}))
	case tooMany && p.State == store.Active:
		return errors.Join(err, x.board.suspend(ctx, p, many.Error()+"; if it has asked for so many since the backup: "+x.board.line("connections", "resume", p.Name)))
	case err != nil || !taken:
		return err
	}
	x.mu.Lock()
	x.history.paging = x.history.paging || !r.Done
	x.history.learnt += len(r.Tasks) + len(r.Orders)
	x.mu.Unlock()
	x.log.InfoContext(ctx, "the peer has said what became of its work", "tasks", len(r.Tasks)+len(r.Orders), "done", r.Done)
	return x.auditStrange(ctx, p, strange)
}

// auditStrange notes what a peer recalls as words of this instance that are none, as far as there is room. That is no fault of it: a
// backup may have none of the keys that were signed with since.
func (x *Exchange) auditStrange(ctx context.Context, p *Peer, strange []error) error {
	var c tally
	for _, err := range strange {
		code, tell := commands.CodeOf(err), x.refusals.room(time.Now()) > 0
		c.add(p, x.refusals.count(code, store.None, tell, time.Now()), err.Error())
		if tell {
			c.rows = append(c.rows, store.AuditRow{Actor: string(p.Peer), Action: "order.strange", Code: string(code), Why: err.Error(), Conn: p.ID})
		}
	}
	return x.auditTally(ctx, p, c)
}

// setAgreement remembers whether the histories agree on link, and says so once.
func (x *Exchange) setAgreement(ctx context.Context, p *Peer, found store.Agreement, link, issued int64) error {
	x.mu.Lock()
	was := x.history.differs
	x.history.ask = found.Ask
	x.history.settled.Add(found.Settled)
	if x.history.reuse.number > 0 && found.Agrees {
		found.Agrees, found.Differs = false, x.history.reuse.why()
	}
	if found.Agrees || found.Differs != "" {
		x.history.differs = found.Differs
	}
	if found.Differs != "" {
		x.history.link = 0
	}
	if found.Agrees && link != 0 {
		x.history.link, x.history.issued = link, issued
		x.broadcast()
	}
	x.mu.Unlock()
	switch {
	case found.Agrees && was != "":
		x.log.InfoContext(ctx, "the histories agree again; messages are relayed")
	case found.Differs != "" && was == "":
		x.log.WarnContext(ctx, "the histories differ; nothing is relayed until they agree", "code", commands.Resync, "why", found.Differs)
		if x.refusals.room(time.Now()) == 0 {
			return x.countChanges(ctx, p, 0, 1)
		}
		return errors.Join(x.countChanges(ctx, p, 1, 0),
			x.board.DB.Audit(ctx, store.AuditRow{Actor: "self", Action: "connection.differs", Object: p.Name, Code: string(commands.Resync), Why: found.Differs, Conn: p.ID}))
	}
	return nil
}

// confirmed closes what the peer says it has stored. What it said before the
// histories agreed does not count: it may have been restored since. Nothing is
// lost by that, because every heartbeat says it again.
func (x *Exchange) confirmed(ctx context.Context, h signing.Header, n commands.Numbers) error {
	x.mu.Lock()
	old := x.history.link == 0 || h.Iat < x.history.issued
	x.mu.Unlock()
	if old {
		return nil
	}
	return x.recompareIfRestored(x.board.DB.Confirm(ctx, store.Speaker{Conn: x.id, Key: h.Kid}, n))
}

// recompareIfRestored makes the histories be compared anew when this side's database was
// restored while the link was up.
func (x *Exchange) recompareIfRestored(err error) error {
	if !errors.Is(err, store.ErrRestored) {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.history.link = 0
	x.broadcast()
	return nil
}
