package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// repeatRules are about what comes twice, too late, or in another shape.
func repeatRules() []Rule {
	return []Rule{
		{"duplicate", "5.4, 7.3", "a message that comes twice has one effect, and its stored answers go out again as they were", (*trial).duplicate},
		{"sealed-anew", "5.4", "a message sealed anew, with the same id and a higher number, is the same one", (*trial).sealedAnew},
		{"id-twice", "5.4", "another message under a known id has no effect", (*trial).idTwice},
		{"known-task", "7.3", "a task ordered again under another id is accepted as known and not run twice", (*trial).knownTask},
		{"known-running", "7.3", "a running task ordered again: started and result name the newest order", (*trial).knownRunning},
		{"task-conflict", "7.3", "a task ordered again with another body is refused as TASK_CONFLICT", (*trial).taskConflict},
		{"expired", "5.4, 7.3", "an expired spawn is refused as TIME_EXPIRED, without task, and not run", (*trial).expired},
		{"number-twice", "7.6", "another message under a used number has no effect, and both sides compare again", (*trial).numberTwice},
	}
}

func (t *trial) duplicate() error {
	trace := t.trace()
	s, err := t.completes(shell("echo once >> " + trace))
	if err != nil {
		return err
	}
	before := t.answers(s.ID)
	if err := t.publish(commands.QueueRun, s.Envelope); err != nil {
		return err
	}
	again := func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return !slices.ContainsFunc(before, func(h heard) bool { return t.times[h.header().ID] < 2 })
	}
	if err := t.await(again, "the stored answers again (%s)", kinds(before)); err != nil {
		return err
	}
	if after := t.answers(s.ID); len(after) != len(before) {
		return fmt.Errorf("expected the same answers again; got new ones: %s", told(after[len(before):]))
	}
	if err := ran(trace, "once"); err != nil {
		return err
	}
	return t.complaints()
}

// quiet waits until all that was sent before was judged, and fails when it had an answer.
func (t *trial) quiet(id string, known int) error {
	if err := t.passed(); err != nil {
		return err
	}
	if list := t.answers(id); len(list) > known {
		return fmt.Errorf("expected no further answer; got %s", told(list[known:]))
	}
	return nil
}

func (t *trial) sealedAnew() error {
	trace := t.trace()
	spawn := shell("echo once >> " + trace)
	s, err := t.completes(spawn)
	if err != nil {
		return err
	}
	known := len(t.answers(s.ID))
	var header signing.Header
	if err := json.Unmarshal(headerOf(s.Envelope), &header); err != nil {
		return err
	}
	if _, err := t.order(spawn, func(h *signing.Header) { seq := h.Seq; *h = header; h.Seq = seq; h.Kid = t.Keys.Signing.KeyID() }); err != nil {
		return err
	}
	t.mu.Lock()
	delete(t.sent, s.Seq) // the new seal stands in its place
	t.mu.Unlock()
	if err := t.quiet(s.ID, known); err != nil {
		return err
	}
	return ran(trace, "once")
}

// headerOf returns the header of an envelope.
func headerOf(envelope []byte) []byte {
	var e struct {
		Payload []byte `json:"payload"`
	}
	if err := json.Unmarshal(envelope, &e); err != nil {
		return nil
	}
	return e.Payload
}

func (t *trial) idTwice() error {
	first := noop()
	s, err := t.completes(first)
	if err != nil {
		return err
	}
	known, trace := len(t.answers(s.ID)), t.trace()
	t.mu.Lock()
	other := t.Seal(shell("echo twice >> "+trace), nil, func(h *signing.Header) { h.ID = s.ID })
	t.mu.Unlock()
	if err := t.publish(commands.QueueRun, other.Envelope); err != nil {
		return err
	}
	if err := t.quiet(s.ID, known); err != nil {
		return err
	}
	return ran(trace)
}

func (t *trial) knownTask() error {
	trace := t.trace()
	spawn := shell("echo once >> " + trace)
	if _, err := t.completes(spawn); err != nil {
		return err
	}
	// The same JSON as a value, in another order and with a space.
	id, err := t.bare(fmt.Sprintf(`{"argv":["sh", "-c", %q],"runtime":"exec","task":%q}`, spawn.Argv[2], spawn.Task))
	if err != nil {
		return err
	}
	if _, err := t.result(id, commands.Completed); err != nil {
		return err
	}
	list := t.answers(id)
	if got := kinds(list); got != "accepted result" {
		return fmt.Errorf("expected accepted and the result again; got %s", got)
	}
	if a := list[0].Body.(*commands.Accepted); !a.Known || a.State != commands.Completed {
		return fmt.Errorf("expected accepted with known and the state completed; got known %t, %s", a.Known, a.State)
	}
	return ran(trace, "once")
}

func (t *trial) knownRunning() error {
	trace := t.trace()
	spawn := shell("echo once >> " + trace + "; " + untilThere(trace+".go"))
	defer touch(trace + ".go")
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	if _, err := t.answer(s.ID, commands.StartedKind); err != nil {
		return err
	}
	again, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	if _, err := t.answer(again.ID, commands.AcceptedKind); err != nil {
		return err
	}
	touch(trace + ".go")
	if _, err := t.result(again.ID, commands.Completed); err != nil {
		return err
	}
	if got := kinds(t.answers(again.ID)); got != "started accepted result" {
		return fmt.Errorf("expected started, accepted with known, and the result in answer to the newest order; got %s", got)
	}
	if got := kinds(t.answers(s.ID)); got != "accepted started" {
		return fmt.Errorf("expected the result to name the newest order only; the first one had the answers %s", got)
	}
	return ran(trace, "once")
}

func (t *trial) taskConflict() error {
	trace := t.trace()
	first := noop()
	s, err := t.completes(first)
	if err != nil {
		return err
	}
	other := shell("echo other >> " + trace)
	other.Task = first.Task
	if s, err = t.order(other, nil); err != nil {
		return err
	}
	if _, err := t.refusal(s.ID, commands.TaskConflict); err != nil {
		return err
	}
	return ran(trace)
}

func (t *trial) expired() error {
	trace := t.trace()
	s, err := t.order(shell("echo late >> "+trace), func(h *signing.Header) {
		h.Iat, h.Exp = time.Now().Add(-time.Hour).UnixMilli(), time.Now().Add(-121*time.Second).UnixMilli()
	})
	if err != nil {
		return err
	}
	r, err := t.refusal(s.ID, signing.TimeExpired)
	if err != nil {
		return err
	}
	if r.Task != "" {
		return fmt.Errorf("expected no task in the refusal; got %s", r.Task)
	}
	return ran(trace)
}

func (t *trial) numberTwice() error {
	trace := t.trace()
	first, err := t.order(noop(), nil)
	if err != nil {
		return err
	}
	if _, err := t.result(first.ID, commands.Completed); err != nil {
		return err
	}
	t.mu.Lock()
	t.Seq.Add(-1)
	other := t.Seal(shell("echo used >> "+trace), nil, nil)
	t.mu.Unlock()
	begun := time.Now()
	if err := t.publish(commands.QueueRun, other.Envelope); err != nil {
		return err
	}
	if err := t.beaten(begun, func(b *commands.Heartbeat) bool {
		return b.Connection.Numbers != nil && b.Connection.Numbers.Digest != nil
	}, "a heartbeat with a digest"); err != nil {
		return err
	}
	if err := t.agreed(begun); err != nil {
		return err
	}
	if err := t.quiet(other.ID, 0); err != nil {
		return err
	}
	return ran(trace)
}
