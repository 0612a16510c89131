package store

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A fold is what all reports about one task in a batch add up to: reports may
// come in any order, so each part keeps the newest by sequence.
type fold struct {
	message   *Incoming // one of the fold, for the audit
	all       []*Incoming
	conn      string
	task      string // "" in a refusal of a body that could not be read
	command   string
	digest    string
	seq       int64
	state     commands.State
	reason    commands.Reason
	attempt   int
	refusal   *commands.RefusedBody
	result    *commands.Result
	delivered *commands.Result // the newest that was, for review
	final     []byte           // digest of what the refusal or result says of the end; nil = neither
	accepted  bool
	saidAt    said
	ends      []*commands.Ended // of attempts
	next      int64             // when the attempt after attempt follows, as said since its end, in ms since 1970; 0 = nothing was
	policy    string            // of the newest report that names one
	confined  string            // isolation of the newest report that names one
	stands    commands.State    // as the newest report says that is a word on a pause; "" = none is
	standsAt  int64             // number of that report
}

// said is when the sender says that something happened, in ms since 1970; 0 = it
// does not say.
type said struct{ accepted, started, ended int64 }

// earliest returns the earlier of two times that were said.
func earliest(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

type folds struct {
	order  []*fold
	byTask map[string]*fold
}

func (f *folds) add(m *Incoming) {
	task, re := m.Task(), m.Header.Re
	key := m.Conn + task + re.ID
	x := f.byTask[key]
	if x == nil {
		x = &fold{message: m, conn: m.Conn, task: task, command: re.ID, digest: re.SHA256}
		f.byTask[key] = x
		f.order = append(f.order, x)
	}
	x.all = append(x.all, m)
	if m.isFinal() {
		says := m.endSaid()
		if x.final != nil && !bytes.Equal(x.final, says) {
			m.reject(commands.ResultClash, anotherResult)
			return
		}
		x.message, x.final = m, says
	}
	if m.Unread && x.result != nil {
		return
	}
	newest := m.Header.Seq > x.seq
	x.seq = max(x.seq, m.Header.Seq)
	switch m.Body.(type) {
	case *commands.Accepted, *commands.Started, *commands.Ended, *commands.Question, *commands.Answered, *commands.TaskState, *commands.Result:
		x.accepted, x.saidAt.accepted = true, earliest(x.saidAt.accepted, m.Header.Iat)
	}
	x.stand(m)
	switch b := m.Body.(type) {
	case *commands.Accepted:
		x.decided(newest, b.Policy)
		if !b.State.Terminal() { // else the result says more
			x.set(newest, b.State, "", 0)
		}
	case *commands.Started:
		x.decided(newest, b.Policy)
		x.isolated(newest, b.Isolation)
		x.saidAt.started = earliest(x.saidAt.started, b.At)
		x.set(newest, commands.Running, "", b.Attempt)
	case *commands.Ended:
		if !slices.ContainsFunc(x.ends, func(e *commands.Ended) bool { return e.Attempt == b.Attempt }) { // a restored spoke tells it again
			x.ends = append(x.ends, b)
		}
		x.set(newest, b.State, b.Reason, b.Attempt)
		if newest {
			x.next = 0
		}
	case *commands.Question:
		x.set(newest, commands.AwaitingInput, "", b.Attempt)
	case *commands.Answered:
		x.set(newest, b.State, "", 0)
	case *commands.TaskState: // of an agent that was paused, goes on, or was cancelled and may finish
		if !b.State.Terminal() { // else the result says more
			x.set(newest, b.State, b.Reason, b.Attempt)
		}
		if newest {
			x.next = b.Next
		}
	case *commands.RefusedBody:
		x.decided(newest, b.Policy)
		state, reason := refusedState(b.Code)
		x.refusal = b
		x.set(newest, state, reason, 0)
		x.saidAt.ended = m.Header.Iat
	case *commands.Result:
		if b.Delivered() {
			x.decided(newest, b.Policy)
			x.isolated(newest, b.Isolation)
			x.deliver(newest, b)
			return
		}
		x.decided(newest, b.Policy)
		x.isolated(newest, b.Isolation)
		x.result = b
		x.state, x.reason, x.attempt = b.State, b.Reason, b.Attempt
		x.saidAt.started, x.saidAt.ended = earliest(x.saidAt.started, b.StartedAt), b.EndedAt
	}
}

// deliver takes what an attempt has delivered for review.
func (x *fold) deliver(newest bool, b *commands.Result) {
	if x.delivered == nil || b.Attempt >= x.delivered.Attempt {
		x.delivered = b
	}
	x.saidAt.started = earliest(x.saidAt.started, b.StartedAt)
	x.set(newest, b.State, b.Reason, b.Attempt)
}

// stand takes what m says of whether the agent stands still. What it has asked, and what became of that, says nothing of a pause: of an
// agent that stands still a spoke tells that behind it, maybe in another batch.
func (x *fold) stand(m *Incoming) {
	var s commands.State
	switch b := m.Body.(type) {
	case *commands.Started:
		s = commands.Running
	case *commands.Ended:
		s = b.State
	case *commands.TaskState:
		s = b.State
	}
	if s != "" && m.Header.Seq > x.standsAt {
		x.stands, x.standsAt = s, m.Header.Seq
	}
}

// isFinal reports whether m says how a task ended at its spoke. Of each task one
// message does.
func (m *Incoming) isFinal() bool {
	if r, ok := m.Body.(*commands.Result); ok && r.Delivered() {
		return false
	}
	kind := m.Body.Kind()
	return (kind == commands.ResultKind || kind == commands.RefusedKind) && !m.Unread
}

// endSaid is a digest of what m says of an end. A result that a spoke has from its hub, after
// it was restored, has less to say of the same end.
func (m *Incoming) endSaid() []byte {
	said := m.Header.Body.SHA256
	if r, ok := m.Body.(*commands.Result); ok {
		said = r.End()
	}
	sum := sha256.Sum256([]byte(said))
	return sum[:]
}

// set takes a state unless the fold has a newer one, or the result.
func (x *fold) set(newest bool, s commands.State, r commands.Reason, attempt int) {
	if x.result == nil && (newest || x.state == "") {
		if x.reason == commands.CancelRequested && !s.Terminal() { // whatever else it does, it has been cancelled
			r = x.reason
		}
		x.state, x.reason = s, r
	}
	x.attempt = max(x.attempt, attempt)
}

// decided takes the version of a policy unless the fold has a newer one.
func (x *fold) decided(newest bool, policy string) {
	if policy != "" && (newest || x.policy == "") {
		x.policy = policy
	}
}

// isolated takes a level of isolation unless the fold has a newer one.
func (x *fold) isolated(newest bool, level string) {
	if level != "" && (newest || x.confined == "") {
		x.confined = level
	}
}

// refusedState says where a refused spawn ends.
func refusedState(code commands.Code) (commands.State, commands.Reason) {
	switch code {
	case signing.TimeExpired, signing.TimeTTL, signing.TimeFuture: // a spoke of this version does not answer the last
		return commands.Expired, commands.CommandExpired
	case commands.Tombstone:
		return commands.Cancelled, commands.KillRequested
	case commands.Grant, signing.ConnState:
		return commands.Unavailable, commands.GrantDenied
	case commands.Capability:
		return commands.Unavailable, commands.CapabilityMissing
	case commands.TaskConflict:
		return commands.Unavailable, commands.IDUsed
	}
	return commands.Unavailable, commands.PolicyDenied
}

// maxAnswers bounds the messages about one command that are acted on, but for its first end. Of an honest spoke there are some
// 1,700 at most: two of each of 301 attempts (the first, and 100 each after failures, losses and limits of its account), two of each of 100
// pauses, 100 of words about pauses that change nothing, 400 that its agent asks, as many of what became of these, four of each of 20 reviews, that it was accepted, and its end. Besides, each time that the clock of its host is set back while it waits for its next attempt.
const maxAnswers = 2000

func foldAll(batch []*Incoming) *folds {
	f := &folds{byTask: map[string]*fold{}}
	for _, m := range batch {
		f.add(m)
	}
	return f
}
