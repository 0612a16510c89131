package commands

import (
	"encoding/hex"
	"slices"
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

// MaxBeatAgents is how many agents one heartbeat describes; Running counts all.
const MaxBeatAgents = 400

// MaxBeatProgress is of how many agents one heartbeat tells the progress.
const MaxBeatProgress = 100

// Heartbeat is a sign of life of one side of a connection: what it thinks of the
// connection, and for an instance that runs agents what it can and does. The
// dialling side sends it, the other side answers with its own.
type Heartbeat struct {
	IntervalMS   int64          `json:"interval_ms"`
	Incarnation  string         `json:"incarnation,omitempty"` // random, another one with each start of the instance
	Connection   ConnectionView `json:"connection"`
	Slots        int            `json:"slots"`
	Running      int            `json:"running"`
	Queued       int            `json:"queued"`
	Capabilities []string       `json:"capabilities,omitempty"`
	KillLevel    string         `json:"kill_level"`
	Isolation    string         `json:"isolation,omitempty"`   // what agents are confined by that demand nothing, or [IsolationUnmet]; "" = it does not say
	Stopping     bool           `json:"stopping,omitempty"`    // it waits for running agents to end, and starts nothing more
	StartsNone   string         `json:"starts_none,omitempty"` // why it starts nothing now; "" = it does
	LeaseMS      int64          `json:"lease_ms,omitempty"`    // how long agents go on without their spoke; 0 = it does not say
	Version      string         `json:"version"`
	Policy       string         `json:"policy,omitempty"` // version of the policy in force; "" where no agents run
	Agents       []AgentBeat    `json:"agents,omitempty"`
}

// A ConnectionView is what one side says about the connection in each heartbeat.
type ConnectionView struct {
	State   string     `json:"state"`             // of the connection on this side
	Reason  string     `json:"reason,omitempty"`  // of that state
	By      string     `json:"by,omitempty"`      // who decided it
	Agrees  bool       `json:"agrees,omitempty"`  // its history fits the other side's on this link: it sends
	Differs string     `json:"differs,omitempty"` // why it does not send
	Numbers *Numbering `json:"numbers,omitempty"` // nil while this side's database does not answer
	Refuses *EndedKey  `json:"refuses,omitempty"` // the key that the other side signs with has ended here
	Limited bool       `json:"limited,omitempty"` // the other side sends more than is taken here; the rest waits there
	Full    bool       `json:"full,omitempty"`    // no more of the other side's messages are kept here now; they wait there
	Freeze  *Freeze    `json:"freeze,omitempty"`  // of a side that commands; nil: it has never frozen anything
	Audit   *AuditHead `json:"audit,omitempty"`   // nil: it keeps none of the other side's
}

// A Freeze is a latch of a side that commands: while Frozen, nothing that it ordered is started. Each change has a
// higher number than all before; one with a lower number is old and changes nothing.
type Freeze struct {
	Number int64  `json:"number"`
	Frozen bool   `json:"frozen"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	Since  int64  `json:"since,omitempty"` // ms since 1970
}

// MaxProof is how many hashes the proof of a checkpoint has at most.
const MaxProof = 128

// An AuditHead is what one side has of the tree of the other's audit, and a checkpoint of its own where the other has an older one.
type AuditHead struct {
	Era        int64    `json:"era,omitempty"`        // of what is kept, and
	Kept       int64    `json:"kept"`                 // its leaves; 0: nothing
	Checkpoint string   `json:"checkpoint,omitempty"` // a signed note
	From       int64    `json:"from,omitempty"`       // the leaves of the tree that the one in Checkpoint begins with
	Proof      []string `json:"proof,omitempty"`      // of that, in base64
	Refused    string   `json:"refused,omitempty"`    // why a checkpoint of the other side was refused, in the era that is kept; "" = none was
}

func (h *AuditHead) check() error {
	for _, n := range []int64{h.Era, h.Kept, h.From} {
		if n < 0 || n > maxNumber {
			return Refuse(Validation, "number %d of an audit is outside 0..%d", n, int64(maxNumber))
		}
	}
	if len(h.Proof) > MaxProof || slices.ContainsFunc(h.Proof, func(s string) bool { return len(s) != 44 }) {
		return Refuse(Validation, "the proof of a checkpoint is at most %d hashes of 44 characters", MaxProof)
	}
	if len(h.Checkpoint) > 512 {
		return Refuse(Validation, "a checkpoint of %d bytes, limit 512", len(h.Checkpoint))
	}
	return checkText("why a checkpoint was refused", h.Refused, maxWhy)
}

func (f *Freeze) check() error {
	if f.Number < 1 || f.Number > maxNumber {
		return Refuse(Validation, "number %d of a freeze is outside 1..%d", f.Number, int64(maxNumber))
	}
	if err := checkTimes(f.Since); err != nil {
		return err
	}
	if err := CheckReason(f.Reason); err != nil {
		return err
	}
	return checkText("who froze", f.By, 256)
}

// An EndedKey is a signing key of the other side that signs nothing here any more.
type EndedKey struct {
	Key  signing.KeyID `json:"kid"`
	Code signing.Code  `json:"code"` // KEY_WINDOW or KEY_REVOKED
}

// An AgentBeat is one running agent in a [Heartbeat].
type AgentBeat struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	State   State  `json:"state"`
	RSS     int64  `json:"rss,omitempty"`    // bytes, the whole tree
	CPUMS   int64  `json:"cpu_ms,omitempty"` // processor time used so far
	// Progress is what the agent said of it last; nil = nothing, or there was no room for it.
	Progress *AgentProgress `json:"progress,omitempty"`
}

// Kind returns [ReceivedKind].
func (*Received) Kind() Kind { return ReceivedKind }

// Kind returns [RevokedKind].
func (*Revoked) Kind() Kind { return RevokedKind }

// Kind returns [HeartbeatKind].
func (*Heartbeat) Kind() Kind { return HeartbeatKind }

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
		if numbers = append(numbers, r.From, r.Through); len(r.Tasks) > MaxRecalled || len(r.Orders) > MaxRecalled {
			return Refuse(Validation, "a heartbeat tells of at most %d tasks", MaxRecalled)
		}
		for _, t := range r.Tasks {
			if digests = append(digests, t.SHA256); t.Attempt < 0 || t.Attempt > maxAttempt || !signing.ValidUUID(t.Command) || t.Outcome != "" && t.Outcome.check() != nil {
				return Refuse(Validation, "the standing of task %q names no command, no attempt or no outcome", Clip(t.Task))
			}
			if t.Code < -1 || t.Code > 255 {
				return Refuse(Validation, "exit code %d is outside -1..255", t.Code)
			}
			if err := checkTimes(t.Ended); err != nil {
				return err
			}
			if err := checkTaskState(t.Task, t.State, t.Reason); err != nil {
				return err
			}
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

// The states of a connection, as its sides store and tell them.
const (
	ConnPending      = "pending"
	ConnActive       = "active"
	ConnSuspended    = "suspended"
	ConnDisconnected = "disconnected"
	ConnRejected     = "rejected"
	ConnRevoked      = "revoked"
)

var connStates = []string{ConnPending, ConnActive, ConnSuspended, ConnDisconnected, ConnRejected, ConnRevoked}

func (v ConnectionView) check() error {
	if !slices.Contains(connStates, v.State) {
		return Refuse(Validation, "state %q is not a state of a connection", Clip(v.State))
	}
	if r := v.Refuses; r != nil && (!r.Key.Valid() || r.Code != signing.KeyWindow && r.Code != signing.KeyRevoked) {
		return Refuse(Validation, "refuses names key %q and code %q; it takes a key id and KEY_WINDOW or KEY_REVOKED", Clip(string(r.Key)), Clip(string(r.Code)))
	}
	if v.Numbers != nil {
		if err := v.Numbers.check(); err != nil {
			return err
		}
	}
	if v.Freeze != nil {
		if err := v.Freeze.check(); err != nil {
			return err
		}
	}
	if v.Audit != nil {
		if err := v.Audit.check(); err != nil {
			return err
		}
	}
	if err := checkText("differs", v.Differs, 1000); err != nil {
		return err
	}
	if err := CheckReason(v.Reason); err != nil {
		return err
	}
	return checkText("by", v.By, 256)
}

// maxCount bounds what a heartbeat counts, so that nobody's sums overflow.
const maxCount = 1_000_000_000

// Validate checks b.
func (b *Heartbeat) Validate() error {
	if err := checkCapabilities(b.Capabilities); err != nil {
		return err
	}
	if b.KillLevel != "" && !validCapability(b.KillLevel) { // "": it runs no agents
		return Refuse(Validation, "kill level %q is not a name of 1 to 64 letters, digits and . _ : / + -", Clip(b.KillLevel))
	}
	if b.Isolation != IsolationUnmet {
		if err := checkIsolation(b.Isolation); err != nil {
			return err
		}
	}
	if err := checkText("the version of a heartbeat", b.Version, 256); err != nil {
		return err
	}
	if err := checkText("what a heartbeat says of starts", b.StartsNone, 1000); err != nil {
		return err
	}
	if b.IntervalMS < 100 || b.IntervalMS > 3_600_000 {
		return Refuse(Validation, "heartbeat interval of %d ms is outside 100..3600000", b.IntervalMS)
	}
	if err := b.Connection.check(); err != nil {
		return err
	}
	if b.Incarnation != "" && !signing.ValidUUID(b.Incarnation) {
		return Refuse(Validation, "incarnation %q is not a lower-case UUID of version 4 or 7", Clip(b.Incarnation))
	}
	if err := checkPolicy(b.Policy); err != nil {
		return err
	}
	if len(b.Agents) > MaxBeatAgents {
		return Refuse(Validation, "a heartbeat describes %d agents, limit %d", len(b.Agents), MaxBeatAgents)
	}
	if b.LeaseMS < 0 || b.LeaseMS > lastTime {
		return Refuse(Validation, "a lease of %d ms is outside 0..%d", b.LeaseMS, int64(lastTime))
	}
	for _, n := range []int{b.Slots, b.Running, b.Queued} {
		if n < 0 || n > maxCount {
			return Refuse(Validation, "a heartbeat counts %d slots, agents or orders; outside 0..%d", n, maxCount)
		}
	}
	for _, a := range b.Agents {
		if a.Attempt < 0 || a.Attempt > maxAttempt || min(a.RSS, a.CPUMS) < 0 || max(a.RSS, a.CPUMS) > maxNumber {
			return Refuse(Validation, "a heartbeat tells numbers of an agent that cannot be")
		}
		if err := checkTaskState(a.Task, a.State, NoReason); err != nil {
			return err
		}
		if p := a.Progress; p != nil {
			if err := p.Validate(); err != nil {
				return err
			}
			if err := checkTimes(p.At); err != nil {
				return err
			}
		}
	}
	return nil
}
