package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/spawnmesh/spawnmesh/commands"
)

// An InboxBound bounds what the inbox keeps: of one peer, and of all of them together. What
// does not fit is not stored, and has no effect: it stays with its sender, who sends it again
// until there is room. Age makes room, or a wider bound. 0 is the default.
type InboxBound struct {
	Rows  int64 // of a peer; default 20 million, and more with more bytes
	Bytes int64 // of a peer's signed messages; default 16 GiB
	All   int64 // bytes of all peers whose connections have not ended; default 64 GiB
}

// rows grow with the bytes: a wider bound makes room also where messages are many and small.
func (b InboxBound) rows() int64  { return cmp.Or(b.Rows, max(20_000_000, b.bytes()/859)) }
func (b InboxBound) bytes() int64 { return cmp.Or(b.Bytes, 16<<30) }
func (b InboxBound) all() int64   { return cmp.Or(b.All, 64<<30) }

// urgent is what part of a bound is left for messages that end work and keys.
const urgent = 16

// inboxRoom is the bound of this process, and whether all peers together are above theirs.
type inboxRoom struct {
	bound   atomic.Pointer[InboxBound] // nil: the default
	crowded atomic.Bool
}

// BoundInbox says how much the inbox keeps from now on.
func (db *DB) BoundInbox(b InboxBound) { db.inbox.bound.Store(&b) }

func (r *inboxRoom) now() InboxBound {
	if b := r.bound.Load(); b != nil {
		return *b
	}
	return InboxBound{}
}

// MeasureInbox looks whether there is room in the inbox for all peers together. In between
// each of them is bounded by itself, so little is stored beyond the bound. Of a connection that
// has ended nothing comes any more: what it left goes with its age, and holds up nobody.
func (db *DB) MeasureInbox(ctx context.Context) error {
	var bytes int64
	if err := db.pool.QueryRow(ctx, `SELECT coalesce(sum(s.kept_bytes), 0)::bigint FROM sequences s JOIN connections c ON c.id = s.conn WHERE NOT has_ended(c.state)`).Scan(&bytes); err != nil {
		return fmt.Errorf("measuring the inbox: %w", err)
	}
	db.inbox.crowded.Store(bytes >= db.inbox.now().all())
	return nil
}

// kept is how much the inbox keeps of a peer's messages.
type kept struct{ rows, bytes int64 }

func (k kept) add(bytes int) kept { return kept{k.rows + 1, k.bytes + int64(bytes)} }

// fitting returns those of list that the inbox has room for, and refuses the others. What is
// stored already takes no room.
func (s Standing) fitting(list []*Incoming) []*Incoming {
	sum, full := s.kept, false
	for _, m := range list {
		next := sum.add(m.keptBytes())
		if s.room != nil && !s.holds(m.Header.Seq) && !s.room.fits(next, commands.Kind(m.Header.Kind)) {
			m.Code, m.Why, full = commands.Full, inboxFull, true
			continue
		}
		sum = next
	}
	if !full {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), (*Incoming).Overflows)
}

func (r *inboxRoom) fits(k kept, kind commands.Kind) bool {
	rows, bytes := r.now().rows(), r.now().bytes()
	if kind == commands.KillKind || kind == commands.KeySetKind {
		return k.rows <= rows+rows/urgent && k.bytes <= bytes+bytes/urgent
	}
	return k.rows <= rows && k.bytes <= bytes && !r.crowded.Load()
}

// inboxFull is why a message is left to come again.
const inboxFull = "no more messages of the sender are kept here until older ones are removed; it is taken when it comes again"

// Overflows reports whether the message was left to its sender because the inbox is full.
func (m *Incoming) Overflows() bool { return m.Code == commands.Full }

// keptBytes is what the inbox keeps of the message when it is stored, as far as is known.
func (m *Incoming) keptBytes() int {
	if m.Refusal != nil && !m.Unread {
		return 0
	}
	return len(m.Envelope)
}
