package conformance

import (
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

// latchRules are of what heartbeats tell beside numbers. A spoke may leave out all but the first: then it is not tried.
func latchRules() []Rule {
	return []Rule{
		joining("join-latches"),
		{"beat", "7.2", "sends a heartbeat at once when the hub calls for one", (*trial).beatsWhenCalled},
		{"freeze", "7.1", "starts nothing that is frozen, and takes only a higher number for the end of that", (*trial).heedsFreeze},
		{"freeze-early", "7.1", "starts nothing that is frozen by a hub whose clock is ten minutes ahead", (*trial).heedsEarlyFreeze},
		{"controls", "7.1", "starts nothing over a new link before it has stored the newest control of the hub", (*trial).waitsForControls},
		{"audit", "7.7", "keeps a checkpoint of the hub's audit that goes on from the one before, and says that it refuses another", (*trial).keepsAudit},
	}
}

// call asks for a heartbeat.
func (t *trial) call() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.say(&commands.Received{Numbers: t.numbers(), Beat: true})
}

// hears waits until the spoke has heard what the hub says now: its second heartbeat comes behind an answer to the first.
func (t *trial) hears() error {
	for range 2 {
		begun := time.Now()
		t.call()
		if err := t.beaten(begun, func(*commands.Heartbeat) bool { return true }, "a heartbeat"); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) beatsWhenCalled() error {
	interval := time.Duration(t.lastBeat().IntervalMS) * time.Millisecond
	const tries = 5 // of a busy machine
	for range tries {
		if err := t.beaten(time.Now(), func(*commands.Heartbeat) bool { return true }, "a heartbeat every %s", interval); err != nil {
			return err
		}
		begun := time.Now()
		t.call()
		if t.beatWithin(begun, interval/2) {
			return t.complaints()
		}
	}
	return fmt.Errorf("expected a heartbeat within %s after a peer.received with beat; none came in %d tries", interval/2, tries)
}

// beatWithin reports whether a heartbeat comes within a time.
func (t *trial) beatWithin(begun time.Time, within time.Duration) bool {
	came := func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return len(t.beats) > 0 && t.beats[len(t.beats)-1].at.After(begun)
	}
	t.pause(within, came)
	return came()
}

// done reports whether a spawn has its result.
func (t *trial) done(id string) bool {
	for _, h := range t.answers(id) {
		if h.Body.Kind() == commands.ResultKind {
			return true
		}
	}
	return false
}

// startless is how long a rule looks whether something is started.
const startless = 2 * time.Second

// waits reports whether a spawn has no result for a while.
func (t *trial) waits(id string) bool {
	t.pause(startless, func() bool { return t.done(id) })
	return !t.done(id)
}

func (t *trial) heedsFreeze() error {
	number := time.Now().UnixMicro()
	says := func(number int64, frozen bool) error {
		t.set(func(m *mood) {
			m.freeze = &commands.Freeze{Number: number, Frozen: frozen, By: "the runner", Reason: "the rule says so", Since: time.Now().UnixMilli()}
		})
		return t.hears()
	}
	defer t.set(func(m *mood) { m.freeze = &commands.Freeze{Number: number + 2} })
	if err := says(number, true); err != nil {
		return err
	}
	s, err := t.order(noop(), nil)
	if err != nil {
		return err
	}
	if _, err := t.answer(s.ID, commands.AcceptedKind); err != nil {
		return err
	}
	if !t.waits(s.ID) {
		return &notTried{"it starts what is frozen: it may leave freezes out"}
	}
	if err := says(number-1, false); err != nil {
		return err
	}
	if !t.waits(s.ID) {
		return fmt.Errorf("expected nothing to start: freeze %d holds, and number %d that ends it is older", number, number-1)
	}
	if err := says(number+1, false); err != nil {
		return err
	}
	if _, err := t.result(s.ID, commands.Completed); err != nil {
		return err
	}
	return t.complaints()
}

func (t *trial) heedsEarlyFreeze() error {
	number := time.Now().UnixMicro()
	freeze := func(number int64, frozen bool, ahead time.Duration) error {
		t.set(func(m *mood) {
			m.freeze, m.ahead = &commands.Freeze{Number: number, Frozen: frozen, By: "the runner", Reason: "the rule says so"}, ahead
		})
		return t.hears()
	}
	defer t.set(func(m *mood) { m.freeze, m.ahead = &commands.Freeze{Number: number + 1}, 0 })
	if err := freeze(number, true, 10*time.Minute); err != nil {
		return err
	}
	s, err := t.order(noop(), nil)
	if err != nil {
		return err
	}
	if _, err := t.answer(s.ID, commands.AcceptedKind); err != nil {
		return err
	}
	waited := t.waits(s.ID)
	if err := freeze(number+1, false, 0); err != nil {
		return err
	}
	if _, err := t.result(s.ID, commands.Completed); err != nil {
		return err
	}
	if !waited {
		return &notTried{"it starts what a hub froze whose clock is ahead: it may leave freezes out"}
	}
	return t.complaints()
}

func (t *trial) waitsForControls() error {
	defer t.set(func(m *mood) { m.controls = 0 })
	k := t.make(&commands.Kill{Task: forge.NewID(), Reason: "the rule says so"}, nil)
	begun, err := t.compared(func(m *mood) { m.controls = k.Seq })
	if err != nil {
		return err
	}
	if err := t.agreed(begun); err != nil {
		return err
	}
	s, err := t.order(noop(), nil)
	if err != nil {
		return err
	}
	if _, err := t.answer(s.ID, commands.AcceptedKind); err != nil {
		return err
	}
	waited := t.waits(s.ID)
	if err := t.publish(commands.QueueControl, k.Envelope); err != nil {
		return err
	}
	if _, err := t.answer(k.ID, commands.AcceptedKind); err != nil {
		return err
	}
	if _, err := t.result(s.ID, commands.Completed); err != nil {
		return err
	}
	if !waited {
		return &notTried{"it starts before it has the newest control: it may leave that out"}
	}
	return t.complaints()
}

func (t *trial) keepsAudit() error {
	if t.lastBeat().Connection.Audit == nil {
		return &notTried{"it keeps no checkpoint of the hub: it may leave that out"}
	}
	defer t.set(func(m *mood) { m.audit = nil })
	one, five, other := newTree("a", "b", "c"), newTree("a", "b", "c", "d", "e"), newTree("a", "x", "c", "d", "e", "f")
	for _, tree := range []hashes{one, five} {
		if err := t.shows(tree, 3); err != nil {
			return err
		}
		if err := t.keptAudit(func(h *commands.AuditHead) bool { return h.Kept == tree.size && h.Refused == "" }, "checkpoint of %d leaves to be kept", tree.size); err != nil {
			return err
		}
	}
	if err := t.shows(other, 5); err != nil {
		return err
	}
	if err := t.keptAudit(func(h *commands.AuditHead) bool { return h.Refused != "" }, "refused to say that an audit that was rewritten is refused"); err != nil {
		return err
	}
	if h := t.lastBeat().Connection.Audit; h == nil || h.Kept != five.size {
		return fmt.Errorf("expected the checkpoint of %d leaves to stay; got %+v", five.size, h)
	}
	return t.complaints()
}

func (t *trial) keptAudit(ok func(*commands.AuditHead) bool, format string, args ...any) error {
	t.call()
	return t.beaten(time.Now(), func(b *commands.Heartbeat) bool { return b.Connection.Audit != nil && ok(b.Connection.Audit) }, "the "+format, args...)
}

// shows has the hub show a checkpoint of a tree, with the proof that it goes on from the tree of size from.
func (t *trial) shows(tree hashes, from int64) error {
	c := audittree.Checkpoint{Instance: signing.InstanceIDOf(t.Keys.Identity.Public()), Size: tree.size, At: time.Now()}
	var err error
	if c.Root, err = audittree.Root(tree.size, tree.read); err != nil {
		return err
	}
	h := &commands.AuditHead{}
	if h.Checkpoint, err = c.Sign(t.Keys.Identity); err != nil {
		return err
	}
	if from < tree.size {
		proof, err := audittree.Prove(from, tree.size, tree.read)
		if err != nil {
			return err
		}
		h.From = from
		for _, p := range proof {
			h.Proof = append(h.Proof, p.String())
		}
	}
	t.set(func(m *mood) { m.audit = h })
	return nil
}

// hashes are those of a tree.
type hashes struct {
	size int64
	list []audittree.Hash
}

func newTree(objects ...string) (t hashes) {
	var leaves []audittree.Hash
	for i, o := range objects {
		leaves = append(leaves, audittree.Leaf(audittree.Row{Seq: int64(i + 1), Actor: "the runner", Action: "test", Object: o}))
	}
	t.size = int64(len(leaves))
	t.list, _ = audittree.Append(0, leaves, t.read) // of nothing, which is read without a fault
	return t
}

func (t hashes) read(places []int64) ([]audittree.Hash, error) {
	list := make([]audittree.Hash, len(places))
	for i, p := range places {
		list[i] = t.list[p]
	}
	return list, nil
}
