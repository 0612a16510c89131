package store

import (
	"context"
	"iter"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// An Outcome says what became of a batch of messages.
type Outcome struct {
	Fates []Fate     // per message; without a code it had its effect
	Again []Outgoing // stored answers to messages that came again, to send now; they may be lost
	Notes []Outgoing // what is not kept, to send now
}

// An Intake is what one transaction knows of the messages that it takes in.
// Messages are named by their places in the batch.
type Intake struct {
	tx     *Tx
	first  int        // the place of part[0] in the batch
	part   []Incoming // the messages of this transaction
	fates  []Fate
	conns  map[string]*connRow
	closed struct{ conns, ids, digests []string }
}

// TakeIn stores a batch of messages and lets act do what they mean, in one
// transaction. A message that repeats a known one has no effect, and its stored
// answer goes out again; one whose connection or key is not in order is not
// even stored. When the data of one message poisons the transaction, it is
// isolated and buried, and act runs again for parts of the batch: act replaces
// what it noted earlier about the messages of its intake.
func (db *DB) TakeIn(ctx context.Context, doing string, batch []Incoming, act func(ctx context.Context, tx *Tx, in *Intake) error) (Outcome, error) {
	out := Outcome{Fates: make([]Fate, len(batch))}
	run := func(from, to int) error {
		in := &Intake{first: from, part: batch[from:to]}
		var again []Outgoing
		err := db.Tx(ctx, doing, func(ctx context.Context, tx *Tx) (err error) {
			*in = Intake{tx: tx, first: from, part: batch[from:to]}
			if in.fates, in.conns, err = guard(ctx, tx, in.part); err != nil {
				return err
			}
			in.auditRefused()
			if err = act(ctx, tx, in); err != nil {
				return err
			}
			again, err = in.finish(ctx)
			return err
		})
		if err == nil {
			copy(out.Fates[from:], in.fates)
			out.Again, out.Notes = append(out.Again, again...), append(out.Notes, in.tx.Notes()...)
		}
		return err
	}
	return out, isolate(0, len(batch), run, func(i int, cause error) error {
		out.Fates[i] = Fate{commands.Internal, cause.Error()}
		return db.bury(ctx, batch[i], cause)
	})
}

// All returns the messages with what is known of each. Those whose fate has no
// code are new and in order.
func (in *Intake) All() iter.Seq2[int, Fate] {
	return func(yield func(int, Fate) bool) {
		for n, f := range in.fates {
			if !yield(in.first+n, f) {
				return
			}
		}
	}
}

// Grant returns what the sender of message i may ask for.
func (in *Intake) Grant(i int) Grant { return in.conns[in.message(i).Conn].grant }

// Note audits an action about message i.
func (in *Intake) Note(i int, action string, code signing.Code, why string) {
	m := in.message(i)
	row := AuditRow{Actor: string(m.Header.Iss), Action: action, Object: TaskOf(m.Body), Code: string(code), Why: why, Message: m.Header.ID}
	if in.conns[m.Conn] != nil {
		row.Conn = m.Conn
	}
	in.tx.Audit(row)
}

// Refuse notes that message i has no effect, and audits that as action. It was
// stored: it is not judged again when it comes again.
func (in *Intake) Refuse(i int, action string, code signing.Code, why string) {
	in.fates[i-in.first] = Fate{code, why}
	in.Note(i, action, code, why)
}

// Close closes the message of ours that the peer of message i has stored.
func (in *Intake) Close(i int, id, digest string) {
	in.closed.conns, in.closed.ids = append(in.closed.conns, in.message(i).Conn), append(in.closed.ids, id)
	in.closed.digests = append(in.closed.digests, digest)
}

func (in *Intake) message(i int) Incoming { return in.part[i-in.first] }

// auditRefused audits what the guard refused. A repetition is no news.
func (in *Intake) auditRefused() {
	for i, f := range in.All() {
		if f.Code != "" && f.Code != signing.ReplaySame {
			in.Note(i, "message.refused", f.Code, f.Why)
		}
	}
}

func (in *Intake) finish(ctx context.Context) ([]Outgoing, error) {
	if err := quarantine(ctx, in.tx, in.part, in.fates, "self"); err != nil {
		return nil, err
	}
	var conns, re []string
	for i, f := range in.All() {
		if m := in.message(i); f.Code == signing.ReplaySame {
			conns, re = append(conns, m.Conn), append(re, m.Header.ID)
		}
	}
	again, err := answersTo(ctx, in.tx, conns, re)
	if err != nil {
		return nil, err
	}
	return again, closeOut(ctx, in.tx, in.closed.conns, in.closed.ids, in.closed.digests)
}
