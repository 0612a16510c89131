package commands

import (
	"encoding/hex"
	"strings"

	"github.com/spawnmesh/spawnmesh/signing"
)

// MaxMissing is how many gaps a set of numbers may have on the wire.
const MaxMissing = 1000

// Numbers is a set of sequence numbers: 1 to Through without the gaps.
type Numbers struct {
	Through int64   `json:"through"` // 0: none
	Gaps    []Range `json:"gaps,omitempty"`
}

// A Range is a range of numbers that are missing, both ends included.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// MaxVoid is how many ranges of [Numbering.Void] a heartbeat tells.
const MaxVoid = 256

// MaxAsk is how many digests one heartbeat asks for, and tells.
const MaxAsk = 256

// A Numbering is what one side of a connection has numbered and stored.
type Numbering struct {
	Sent   int64    `json:"sent"`             // the highest number that it gave to a message of its own
	Base   int64    `json:"base,omitempty"`   // it was restored from a backup and knows its messages above this one only
	Stored Numbers  `json:"stored"`           // the numbers of the other side's messages that it has stored
	Digest *History `json:"digest,omitempty"` // of those messages; told until both sides agree
	Ask    []int64  `json:"ask,omitempty"`    // messages of its own: which ones does the other side have under these numbers?
	Held   []Held   `json:"held,omitempty"`   // what the other side has asked for
	Void   []Range  `json:"void,omitempty"`   // numbers up to Base that the other side lacks, and that no message has any more

	// Refused are the newest reports of the other side that were stored and had no effect.
	Refused []RefusedReport `json:"refused,omitempty"`

	Controls int64     `json:"controls,omitempty"` // the newest of its controls, which nothing is to be started before; told until both sides agree
	Recall   int64     `json:"recall,omitempty"`   // it was restored, and asks what it said about tasks from this number on; 0: nothing
	Recalled *Recalled `json:"recalled,omitempty"` // what the other side has asked so
}

// MaxRecalled is how many messages one answer to [Numbering.Recall] covers.
const MaxRecalled = 128

// Recalled tells a side that was restored from a backup of its messages From to
// Through: one that obeys, what it has said about tasks, as it adds up today; one
// that commands, its orders.
type Recalled struct {
	From    int64          `json:"from"`    // as it was asked
	Through int64          `json:"through"` // From-1: nothing
	Done    bool           `json:"done,omitempty"`
	Tasks   []TaskStanding `json:"tasks,omitempty"`
	Orders  [][]byte       `json:"orders,omitempty"` // spawn messages, the bytes that were signed; none that is too large for a heartbeat
}

// A TaskStanding is how a task stands for the one who asked for it.
type TaskStanding struct {
	Task    string  `json:"task"`
	Command string  `json:"command"` // the message that asked for it,
	SHA256  string  `json:"sha256"`  // and the digest of its body
	Attempt int     `json:"attempt"` // the last one that was told of
	State   State   `json:"state"`
	Reason  Reason  `json:"reason,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"`
	Code    int     `json:"code"`            // exit code, -1: none
	Ended   int64   `json:"ended,omitempty"` // ms since 1970
	Comes   bool    `json:"comes,omitempty"` // the message that asked for it is sent again
	Over    bool    `json:"over,omitempty"`  // that attempt has ended
	Word    int64   `json:"word,omitempty"`  // of its pause: words of the asker up to this number are older than what is told
}

// A History is a digest over the newest messages of the other side that one side
// has stored: those from number From that expire after Until. It is the SHA-256
// over each number, 8 bytes big-endian, with the digest of its message behind it.
type History struct {
	Base   int64  `json:"base"`  // of the other side, as far as it is known: messages up to it do not count
	From   int64  `json:"from"`  // 0: there are none
	Until  int64  `json:"until"` // ms since 1970
	SHA256 string `json:"sha256"`
}

// Held is one message of the other side that is stored.
type Held struct {
	Seq    int64  `json:"seq"`
	SHA256 string `json:"sha256"` // of its header
}

// Received says that messages were stored: their sender may forget them. It
// names all that ever were, so a lost one costs nothing.
type Received struct {
	Numbers
	Refused []RefusedReport `json:"refused,omitempty"` // the newest of them that had no effect
	Beat    bool            `json:"beat,omitempty"`    // a side that dials is to send a heartbeat now: the answer has news
}

// MaxRefused is how many refused reports are told at a time.
const MaxRefused = 64

// A RefusedReport is a report that the other side has stored and refused.
type RefusedReport struct {
	Seq  int64 `json:"seq"`
	Code Code  `json:"code"`
}

// Revoked is the last message over a connection: its sender has ended it.
type Revoked struct {
	Reason string `json:"reason"`
}

// Kind returns [ReceivedKind].
func (*Received) Kind() Kind { return ReceivedKind }

// Kind returns [RevokedKind].
func (*Revoked) Kind() Kind { return RevokedKind }

// Validate checks b.
func (b *Received) Validate() error {
	if err := checkRefused(b.Refused); err != nil {
		return err
	}
	return b.check()
}

// checkRefused wants numbers in ascending order, each with a code.
func checkRefused(list []RefusedReport) error {
	last, fine := int64(0), len(list) <= MaxRefused
	for _, r := range list {
		fine = fine && r.Seq > last && r.Seq <= maxNumber && codeForm.MatchString(string(r.Code))
		last = r.Seq
	}
	if !fine {
		return Refuse(Validation, "refused reports are up to %d numbers in ascending order, each with a code", MaxRefused)
	}
	return nil
}

// Validate checks b.
func (b *Revoked) Validate() error { return CheckReason(b.Reason) }

const maxNumber = 1<<53 - 1

// check wants gaps in ascending order, apart from each other and below Through.
func (n Numbers) check() error {
	if n.Through < 0 || n.Through > maxNumber || len(n.Gaps) > MaxMissing {
		return Refuse(Validation, "a set of numbers reaches from 0 to %d and has at most %d gaps", int64(maxNumber), MaxMissing)
	}
	last := int64(-1)
	for _, g := range n.Gaps {
		if g.From < 1 || g.From <= last+1 || g.To < g.From || g.To >= n.Through {
			return Refuse(Validation, "the gaps of a set of numbers are ranges below %d in ascending order", n.Through)
		}
		last = g.To
	}
	return nil
}

func (n *Numbering) check() error {
	numbers := append([]int64{n.Sent, n.Base}, n.Ask...)
	var digests []string
	if h := n.Digest; h != nil {
		numbers, digests = append(numbers, h.Base, h.From), append(digests, h.SHA256)
	}
	for _, h := range n.Held {
		numbers, digests = append(numbers, h.Seq), append(digests, h.SHA256)
	}
	if len(n.Ask) > MaxAsk || len(n.Held) > MaxAsk {
		return Refuse(Validation, "a heartbeat asks for at most %d messages", MaxAsk)
	}
	if r := n.Recalled; r != nil {
		numbers = append(numbers, r.From, r.Through)
		for _, t := range r.Tasks {
			numbers, digests = append(numbers, t.Word), append(digests, t.SHA256)
		}
		if err := r.check(); err != nil {
			return err
		}
	}
	numbers = append(numbers, n.Recall, n.Controls)
	for _, x := range numbers {
		if x < 0 || x > maxNumber {
			return Refuse(Validation, "number %d is outside 0..%d", x, int64(maxNumber))
		}
	}
	for _, d := range digests {
		if raw, err := hex.DecodeString(d); err != nil || len(raw) != 32 || strings.ToLower(d) != d {
			return Refuse(Validation, "%q is not a digest: 64 digits, lower case", Clip(d))
		}
	}
	if err := n.checkVoid(); err != nil {
		return err
	}
	if err := checkRefused(n.Refused); err != nil {
		return err
	}
	return n.Stored.check()
}

// check wants a page that goes on: one that is not the last reaches From at least, none tells of more than
// its messages can be about, and of a task once. Numbers and digests are checked with those around it.
func (r *Recalled) check() error {
	covered := r.Through - r.From + 1
	if covered < 0 || covered == 0 && !r.Done {
		return Refuse(Validation, "what is recalled from message %d on reaches to message %d, and is not done", r.From, r.Through)
	}
	if most := min(covered, MaxRecalled); int64(max(len(r.Tasks), len(r.Orders))) > most {
		return Refuse(Validation, "what is recalled of %d messages tells of at most %d tasks", covered, most)
	}
	told := map[string]bool{}
	for _, t := range r.Tasks {
		if err := t.check(); err != nil {
			return err
		}
		if told[t.Task] {
			return Refuse(Validation, "task %s is told of twice", t.Task)
		}
		told[t.Task] = true
	}
	return nil
}

func (t *TaskStanding) check() error {
	if t.Attempt < 0 || t.Attempt > maxAttempt || !signing.ValidUUID(t.Command) || t.Outcome != "" && t.Outcome.check() != nil {
		return Refuse(Validation, "the standing of task %q names no command, no attempt or no outcome", Clip(t.Task))
	}
	if t.Code < -1 || t.Code > 255 {
		return Refuse(Validation, "exit code %d is outside -1..255", t.Code)
	}
	if err := checkTimes(t.Ended); err != nil {
		return err
	}
	return checkTaskState(t.Task, t.State, t.Reason)
}

func (n *Numbering) checkVoid() error {
	last, ordered := int64(0), true
	for _, r := range n.Void {
		ordered = ordered && r.From > last && r.To >= r.From
		last = r.To
	}
	if !ordered || len(n.Void) > MaxVoid || last > n.Base {
		return Refuse(Validation, "numbers that no message has are at most %d ranges up to the base, in ascending order", MaxVoid)
	}
	return nil
}
