package commands

import (
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/signing"
)

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
	Declines     []Decline      `json:"declines,omitempty"`    // why orders of the receiver are not taken
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
	Heeds   int64      `json:"heeds,omitempty"`   // of a side that obeys: the number of the other side's newest Freeze that is stored here; 0 = none yet
	Blobs   string     `json:"blobs,omitempty"`   // of a side that commands: names what it holds of the blobs that were brought to it; another name = some of that may be lost
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

const maxHolds = 80

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
	RSS     int64  `json:"rss,omitempty"`      // bytes, the whole tree
	CPUMS   int64  `json:"cpu_ms,omitempty"`   // processor time used so far
	Sign    Sign   `json:"sign,omitempty"`     // what it was seen to do last; "" = it is not told
	IdleMS  int64  `json:"idle_ms,omitempty"`  // since then, without what the host slept
	SleptMS int64  `json:"slept_ms,omitempty"` // of the host since then
	Overrun bool   `json:"overrun,omitempty"`  // it runs longer than estimated, and was warned of
	// Progress is what the agent said of it last; nil = nothing, or there was no room for it.
	Progress *AgentProgress `json:"progress,omitempty"`
}

// Kind returns [HeartbeatKind].
func (*Heartbeat) Kind() Kind { return HeartbeatKind }

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
	if len(v.Blobs) > maxHolds || strings.Trim(v.Blobs, "0123456789abcdef-.") != "" {
		return Refuse(Validation, "%q does not name what is held of blobs: that has up to %d lower-case hex digits, dashes and dots", Clip(v.Blobs), maxHolds)
	}
	if v.Heeds < 0 || v.Heeds > maxNumber {
		return Refuse(Validation, "number %d of a freeze that is heeded is outside 0..%d", v.Heeds, int64(maxNumber))
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
	if err := checkDeclines(b.Declines); err != nil {
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
	return checkAgents(b.Agents)
}

// checkAgents checks what a heartbeat says of agents, of each once.
func checkAgents(list []AgentBeat) error {
	known, told := make(map[string]bool, len(list)), 0
	for _, a := range list {
		if known[a.Task] {
			return Refuse(Validation, "a heartbeat describes agent %s twice", Clip(a.Task))
		}
		known[a.Task] = true
		if a.Attempt < 0 || a.Attempt > maxAttempt || min(a.RSS, a.CPUMS) < 0 || max(a.RSS, a.CPUMS) > maxNumber {
			return Refuse(Validation, "a heartbeat tells numbers of an agent that cannot be")
		}
		if err := checkTaskState(a.Task, a.State, NoReason); err != nil {
			return err
		}
		if err := a.checkSign(); err != nil {
			return err
		}
		if p := a.Progress; p != nil {
			if told++; told > MaxBeatProgress {
				return Refuse(Validation, "a heartbeat tells the progress of more than %d agents", MaxBeatProgress)
			}
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
