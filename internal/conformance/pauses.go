package conformance

import (
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// pauseRules are of what a spoke may leave out: it refuses every pause as CONFLICT then, and is not tried.
func pauseRules() []Rule {
	return []Rule{
		{"pause-running", "7.3", "a pause stops an agent where it is until a word with a higher number lets it go on: accepted, and then state, for each", (*trial).pauseRunning},
		{"pause-first", "7.3", "a pause before its spawn is accepted as paused, and the spawn behind it starts nothing until it goes on", (*trial).pauseFirst},
	}
}

// pauses says whether a task is to stand still, and waits until the spoke has accepted that.
func (t *trial) pauses(task string, number int64, on bool) (*commands.Accepted, error) {
	q, err := t.order(&commands.Pause{Task: task, Number: number, Paused: on, Reason: "the rule says so"}, nil)
	if err != nil {
		return nil, err
	}
	if err := t.await(func() bool { return len(t.answers(q.ID)) > 0 }, "agent.accepted in answer to the pause"); err != nil {
		return nil, err
	}
	switch b := t.answers(q.ID)[0].Body.(type) {
	case *commands.Accepted:
		return b, nil
	case *commands.RefusedBody:
		if b.Code == commands.Conflict && on {
			return nil, &notTried{"it refuses to pause an agent: it may leave that out"}
		}
		return nil, fmt.Errorf("expected agent.accepted in answer to the pause; got agent.refused %s: %s", b.Code, b.Why)
	}
	return nil, fmt.Errorf("expected agent.accepted in answer to the pause; got %s", told(t.answers(q.ID)))
}

// stands waits until the spoke has said last that the task of a spawn is in a state.
func (t *trial) stands(s signing.Sealed, want commands.State) error {
	var last commands.State
	err := t.await(func() bool {
		for _, h := range t.answers(s.ID) {
			if b, ok := h.Body.(*commands.TaskState); ok {
				last = b.State
			}
		}
		return last == want
	}, "agent.state with the state %s in answer to the spawn", want)
	if err != nil && last != "" {
		err = fmt.Errorf("%w; it said %s last", err, last)
	}
	return err
}

// still is how long a rule looks whether an agent goes on.
const still = time.Second

// moves reports whether an agent that writes lines goes on within a while.
func (t *trial) moves(trace string) bool {
	was := len(lines(trace))
	more := func() bool { return len(lines(trace)) > was }
	t.pause(still, more)
	return more()
}

func (t *trial) pauseRunning() error {
	trace := t.trace()
	spawn := shell("echo begun >> " + trace + "; n=0; while [ ! -e " + trace + ".go ] && [ $n -lt 1000 ]; do n=$((n+1)); echo on >> " + trace + "; sleep 0.05; done")
	s, err := t.begins(spawn, trace)
	if err != nil {
		return err
	}
	defer touch(trace + ".go")
	if _, err := t.answer(s.ID, commands.StartedKind); err != nil {
		return err
	}
	number := time.Now().UnixMicro()
	if _, err := t.pauses(spawn.Task, number, true); err != nil {
		return err
	}
	if err := t.stands(s, commands.Paused); err != nil {
		return err
	}
	if t.moves(trace) {
		return fmt.Errorf("expected the agent to stand still since agent.state with paused; it goes on")
	}
	if _, err := t.pauses(spawn.Task, number-1, false); err != nil {
		return err
	}
	if t.moves(trace) {
		return fmt.Errorf("expected the agent to stand still: pause %d holds, and number %d that ends it is older", number, number-1)
	}
	if _, err := t.pauses(spawn.Task, number+1, false); err != nil {
		return err
	}
	if err := t.stands(s, commands.Running); err != nil {
		return err
	}
	touch(trace + ".go")
	if _, err := t.result(s.ID, commands.Completed); err != nil {
		return err
	}
	return t.complaints()
}

func (t *trial) pauseFirst() error {
	spawn, number := noop(), time.Now().UnixMicro()
	a, err := t.pauses(spawn.Task, number, true)
	if err != nil {
		return err
	}
	if a.State != commands.Paused {
		return fmt.Errorf("expected accepted with the state paused; got %s", a.State)
	}
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	h, err := t.answer(s.ID, commands.AcceptedKind)
	if err != nil {
		return err
	}
	if got := h.Body.(*commands.Accepted).State; got != commands.Paused {
		return fmt.Errorf("expected the spawn to be accepted with the state paused; got %s", got)
	}
	if !t.waits(s.ID) {
		return fmt.Errorf("expected nothing to start: the task is paused")
	}
	if _, err := t.pauses(spawn.Task, number+1, false); err != nil {
		return err
	}
	if _, err := t.result(s.ID, commands.Completed); err != nil {
		return err
	}
	return t.complaints()
}
