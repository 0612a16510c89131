package store

import (
	"cmp"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A Fault says what the refusal of an authentic message tells of its sender.
type Fault int

const (
	// None: it meets honest senders, too, and as often as it likes: time has passed,
	// a key or the connection has changed, a policy says no.
	None Fault = iota
	// Stray: an honest sender may have some hundreds of them after a restore.
	Stray
	// Wrong: an honest sender has none of them.
	Wrong
)

// mishaps are the refusals of messages that were in order when they were signed.
// That a number comes twice is judged by itself, by comparing the histories.
var mishaps = []signing.Code{signing.TimeFuture, signing.TimeExpired, signing.KeyRevoked, signing.KeyWindow, signing.EpochStale, signing.ConnState, signing.ConnUnknown,
	signing.KeySetVersion, signing.SeqReuse, commands.UnknownTask}

// malformed are the refusals of commands that nobody can carry out; all others are
// answers.
var malformed = []signing.Code{signing.TimeTTL, signing.HdrField, signing.BodyDigest, signing.BodyJSON, signing.SealOpen, signing.KeyUnknown, signing.ReplayDiff,
	commands.Validation, commands.Internal}

// Refused reports whether the message was refused, and not only known already.
func (m *Incoming) Refused() bool { return m.Code != "" && m.Code != signing.ReplaySame }

// whyHere is Why as the audit of this instance has it.
func (m *Incoming) whyHere() string {
	if m.Aside == "" || m.Refusal == nil || m.Code != m.Refusal.Code {
		return m.Why
	}
	return m.Why + "; " + m.Aside
}

// Fault says what the refusal tells of the sender.
func (m *Incoming) Fault() Fault {
	switch {
	case !m.Refused():
		return None
	case m.excess(), m.Code == commands.ResultClash && m.forgotten:
		return Stray
	case m.Overflows(), m.Code == commands.TooMany && m.forgotten:
		return None
	case m.Asks && !slices.Contains(malformed, m.Code):
		return None
	}
	return FaultOf(m.Code)
}

// FaultOf is [Incoming.Fault] of a message that is no command.
func FaultOf(code signing.Code) Fault {
	if slices.Contains(mishaps, code) {
		return None
	}
	return Wrong
}

// Counted reports whether the message was refused and the number of such refusals
// is bounded. An order that is answered with no is not: it costs what one costs that
// is carried out.
func (m *Incoming) Counted() bool {
	return m.Refused() && !m.Overflows() && (!m.answered || m.Fault() != None)
}

func told(batch []*Incoming) (n int) {
	for _, m := range batch {
		if m.Counted() && m.Told {
			n++
		}
	}
	return n
}

// noteRefused audits what was refused, as far as there is room. The inbox keeps the digest of
// it, which guards against its repetition, and no bytes; of a second end of a task, and of a result that could not
// be read, those are kept where it was audited: they prove that its sender contradicts himself,
// where he has not told the first end before he was restored from a backup, or how the task ended.
func (t *taking) noteRefused(room int) {
	var conns, ids, codes []string
	var keep []bool
	for _, m := range t.batch {
		if m.Told = m.Refused() && !m.Overflows(); !m.Told {
			continue
		}
		if m.Counted() {
			m.Told = room > 0
			room--
		}
		if m.Told {
			t.tx.Audit(AuditRow{Actor: string(m.Header.Iss), Action: t.refusedAction(m), Object: m.Task(), Code: string(m.Code), Why: m.whyHere(), Conn: t.from.ID, Message: m.Header.ID})
		}
		if t.inserted[m] {
			conns, ids, codes, keep = append(conns, m.Conn), append(ids, m.Header.ID), append(codes, string(m.Code)), append(keep, m.Told && (m.Code == commands.ResultClash && !m.forgotten || m.Unread))
			if !keep[len(keep)-1] {
				t.kept.bytes -= int64(m.keptBytes())
			}
		}
	}
	if len(ids) == 0 {
		return
	}
	t.tx.Queue(`UPDATE inbox i SET code = u.code, envelope = CASE WHEN u.keep THEN i.envelope ELSE '' END
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bool[]) AS u (conn, id, code, keep)
		WHERE i.conn = u.conn AND i.id = u.id AND (i.code <> u.code OR i.envelope <> '' AND NOT u.keep)`, conns, ids, codes, keep)
}

// refusedAction is how the audit calls the refusal: of a message that is not acted
// on, or of one that is not even stored.
func (t *taking) refusedAction(m *Incoming) string {
	switch {
	case !t.inserted[m]:
		return "message.refused"
	case m.Asks:
		return "command.refused"
	}
	return "report.refused"
}

// tooManyGaps is why a message is left to come again.
const tooManyGaps = "more of the sender's messages before it are missing here than may be; it is taken when it comes again behind them"

func (m *Incoming) excess() bool { return m.Code == commands.Rate }

// maxRanges is how many ranges the stored numbers of a peer may have.
//
// A peer that obeys sends its reports through one queue in their order: what it
// could not hand over comes again before anything new, so a batch is missing at
// most. A peer that commands has two queues. Of a suspended connection one is not
// read: behind each of the 10,000 orders of one kind that wait there a kill may
// come over the other one.
func (s Standing) maxRanges() int {
	if s.Authority == Commands {
		return commands.MaxMissing
	}
	return 20 * commands.MaxMissing
}

// bounded returns those of list that can be stored without more ranges than there
// may be, and refuses the others.
func (s Standing) bounded(list []*Incoming) []*Incoming {
	left := s.maxRanges() - len(s.stored)
	if len(list) <= left {
		return list
	}
	ascending := slices.Clone(list)
	slices.SortFunc(ascending, func(a, b *Incoming) int { return cmp.Compare(a.Header.Seq, b.Header.Seq) })
	last := int64(-1)
	for _, m := range ascending {
		if m.Header.Seq > last+1 && !s.touches(m.Header.Seq) {
			if left <= 0 {
				m.Code, m.Why = commands.Rate, tooManyGaps
				continue
			}
			left--
		}
		last = m.Header.Seq
	}
	return slices.DeleteFunc(slices.Clone(list), (*Incoming).excess)
}

// touches reports whether number n is stored, or next to one that is.
func (s Standing) touches(n int64) bool { return s.within(n, 1) }

// holds reports whether number n is stored.
func (s Standing) holds(n int64) bool { return s.within(n, 0) }

// within reports whether a number that is stored is at most so far away from n.
func (s Standing) within(n, distance int64) bool {
	_, found := slices.BinarySearchFunc(s.stored, n, func(r numberRange, n int64) int {
		switch { // [from, to)
		case r.Upper.Int64-1+distance < n:
			return -1
		case r.Lower.Int64 > n+distance:
			return 1
		}
		return 0
	})
	return found
}
