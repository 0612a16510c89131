package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A TakenIn says what became of a batch, besides what each message says of itself.
type TakenIn struct {
	Again  []Outgoing       // stored answers to messages that came again, to send now; they may be lost
	Stored commands.Numbers // every number of the peer that is stored here
	Reused int64            // a number that the peer used twice, 0 = none: the histories differ
	WentOn bool             // after a restore our numbers went on: the peer may answer messages that are unknown here
}

// TakeIn stores a batch of messages of one connection and lets act have the
// effects of those that are new, in order and not refused: inbox, effects,
// answers and audit in one transaction. A message that repeats a known one has
// no effect, and its stored answers are returned; one whose connection or key is
// not in order is not stored, and may be judged again when it comes again. act
// may refuse messages itself. It may run again: after an outage, and where the database
// contradicts what it was told of the connection and of what is new. That shows with the
// first answer that it gets; nothing of what it did is kept.
//
// Of the refusals that [Incoming.Counted] is true for, room are audited as they
// are. The others leave no audit row: the caller counts them.
func (db *DB) TakeIn(ctx context.Context, conn string, room int, batch []*Incoming, act func(context.Context, *Tx, Standing, []*Incoming) error) (TakenIn, error) {
	out, err := db.takeOnce(ctx, conn, room, batch, act)
	if err == nil || !poisonous(err) {
		return out, err
	}
	// The data of one message is what the database refuses for ever: the halves
	// run by themselves, down to the one that is to blame.
	if len(batch) == 1 {
		m := batch[0]
		m.Code, m.Why, m.Told = commands.Internal, err.Error(), room > 0
		if !m.Told {
			return TakenIn{}, nil
		}
		return TakenIn{}, db.Audit(ctx, AuditRow{Actor: string(m.Header.Iss), Action: "message.poisonous", Code: string(m.Code), Why: m.Why, Conn: conn, Message: m.Header.ID})
	}
	half := len(batch) / 2
	first, err := db.TakeIn(ctx, conn, room, batch[:half], act)
	if err != nil {
		return first, err
	}
	second, err := db.TakeIn(ctx, conn, room-told(batch[:half]), batch[half:], act)
	return TakenIn{append(first.Again, second.Again...), second.Stored, max(first.Reused, second.Reused), second.WentOn}, err
}

func (db *DB) takeOnce(ctx context.Context, conn string, room int, batch []*Incoming, act func(context.Context, *Tx, Standing, []*Incoming) error) (out TakenIn, err error) {
	assumed, known := db.standings.Load(conn)
	if known && !slices.ContainsFunc(batch, isKeySet) {
		s := assumed.(Standing)
		out, err = db.takeAs(ctx, conn, room, batch, act, &s)
		if !errors.Is(err, errSurprised) {
			return out, err
		}
	}
	return db.takeAs(ctx, conn, room, batch, act, nil)
}

// takeAs takes in a batch. With an assumption of how the connection stands, and that all
// is in order and new, act begins before the database has said so, and what it asks first
// travels along: where that was not so, nothing happens, and the error is errSurprised.
func (db *DB) takeAs(ctx context.Context, conn string, room int, batch []*Incoming, act func(context.Context, *Tx, Standing, []*Incoming) error, assumed *Standing) (out TakenIn, err error) {
	err = db.Tx(ctx, "taking in messages", func(ctx context.Context, tx *Tx) error {
		out = TakenIn{}
		t := &taking{tx: tx, batch: batch, inserted: map[*Incoming]bool{}}
		if assumed != nil {
			t.assume(conn, *assumed)
		} else if err := t.storeAll(ctx, conn); err != nil {
			return err
		}
		if fresh := t.admit(); len(fresh) > 0 {
			if err := act(ctx, tx, t.from, fresh); err != nil {
				return err
			}
		}
		if err := tx.Flush(ctx); err != nil {
			return err
		}
		t.noteRefused(room)
		t.closeQuestions()
		out.Again, err = answersTo(ctx, tx, t.repeats.conns, t.repeats.ids)
		for _, last := range tx.last {
			if err == nil {
				err = last(ctx)
			}
		}
		tx.store(conn, t.numbers, t.kept, len(t.repeats.ids) > 0, &out.Stored)
		out.Reused, out.WentOn = t.reused, t.from.wentOn
		db.standings.Store(conn, t.from)
		return err
	})
	return out, err
}

// errSurprised says that messages are not all in order and new, as it was assumed.
var errSurprised = errors.New("not all messages are in order and new")

// assume queues the storing of all messages, which fails where they are not all in order
// and new, or the connection does not stand as it is assumed.
func (t *taking) assume(conn string, assumed Standing) {
	var is Standing
	for _, m := range t.batch {
		m.Code, m.Why, m.answered = "", "", false
		t.insert(m)
	}
	t.from = assumed
	t.from.Now = assumed.Now.Add(time.Since(assumed.read))
	lockConnection(t.tx, conn, "FOR SHARE", &is)
	insertInbox(t.tx, t.batch, func(fresh map[string]bool) error {
		surprise := func(m *Incoming) bool { code, _ := is.judge(m); return code != "" }
		slept := is.Now.Sub(t.from.Now).Abs() > time.Second // the clock of this process stands still while its host sleeps
		if slept || !is.same(assumed) || len(fresh) < len(t.batch) || slices.ContainsFunc(t.batch, surprise) || len(is.fitting(is.bounded(t.batch))) < len(t.batch) {
			return errSurprised
		}
		t.from = is
		return nil
	})
}

// taking is the state of one TakeIn transaction.
type taking struct {
	tx       *Tx
	from     Standing
	batch    []*Incoming
	inserted map[*Incoming]bool // into the inbox, now
	numbers  []int64            // that were stored now
	kept     kept               // by them
	reused   int64              // a number that was used twice
	repeats  struct{ conns, ids []string }
}

// storeAll stores those messages that are in order and new, and decides the fate of the
// others. They go into the inbox together with the question whether they are in order: of
// an honest peer they are.
func (t *taking) storeAll(ctx context.Context, conn string) error {
	lock := "FOR SHARE"
	if slices.ContainsFunc(t.batch, isKeySet) { // waits for all others, before it holds anything else
		lock = "FOR NO KEY UPDATE"
	}
	var fresh map[string]bool
	were := func(list map[string]bool) error { fresh = list; return nil }
	lockConnection(t.tx, conn, lock, &t.from)
	insertInbox(t.tx, t.batch, were)
	if err := t.tx.Flush(ctx); err != nil {
		return err
	}
	stored := t.judgeAll()
	if len(stored) < len(t.batch) { // nothing of the others stays, and what came first among equals may be one of them
		t.tx.Queue(`DELETE FROM inbox WHERE conn = $1 AND id = ANY ($2::uuid[])`, conn, slices.Collect(maps.Keys(fresh)))
		fresh = nil
		insertInbox(t.tx, stored, were)
		if err := t.tx.Flush(ctx); err != nil {
			return err
		}
	}
	for _, m := range stored {
		if fresh[m.Header.ID] {
			t.insert(m)
		} else if err := t.classify(ctx, m); err != nil {
			return err
		}
		delete(fresh, m.Header.ID) // a second copy in this very batch is a repeat
	}
	return nil
}

// insert notes that m is new.
func (t *taking) insert(m *Incoming) {
	t.inserted[m], t.numbers, t.kept = true, append(t.numbers, m.Header.Seq), t.kept.add(m.keptBytes())
}

// judgeAll refuses what is not in order, and returns the rest.
func (t *taking) judgeAll() (stored []*Incoming) {
	for _, m := range t.batch {
		m.answered = false
		if m.Code, m.Why = t.from.judge(m); m.Code == "" {
			stored = append(stored, m)
		}
	}
	return t.from.fitting(t.from.bounded(stored))
}

// admit returns the new messages that are to be acted on, and refuses the others
// that are new; of a result that could not be read it does both.
func (t *taking) admit() (fresh []*Incoming) {
	for _, m := range t.batch {
		if m.Code != "" {
			continue
		}
		r := m.Refusal
		if r == nil {
			r = t.from.grants(m)
		}
		if r != nil {
			m.Refuse(t.tx, r)
			if !m.Unread {
				continue
			}
		}
		fresh = append(fresh, m)
	}
	return fresh
}

// closeQuestions closes the messages of ours that new answers are about: any
// answer proves that the other database has them.
func (t *taking) closeQuestions() {
	var ids, bodies []string
	for _, m := range t.batch {
		if m.Header.Re != nil && (m.Code == "" || m.Code == signing.ReplaySame) {
			ids, bodies = append(ids, m.Header.Re.ID), append(bodies, m.Header.Re.SHA256)
		}
	}
	closeOut(t.tx, t.from.ID, ids, bodies)
}
