package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

func faultRules() []Rule {
	return []Rule{
		joining("join-faults"),
		{"link-cut", "7.2, 8", "a link that is cut in the middle of a task loses nothing and doubles nothing", (*trial).linkCut},
		{"bytes-changed", "4.1, 7.2", "a link that was disturbed is dialled again, and nothing is lost", (*trial).disturbed},
		{"new-server", "4.4", "sends all that was not confirmed again, the same bytes, to a new message server", (*trial).newServer},
		{"killed-at-work", "7.3", "killed in the middle of a task and started again: it tells what became of the attempt, and does not run it twice", (*trial).killedAtWork},
		{"stored-first", "1, 7.2", "what it has acknowledged it has stored: killed right after that, it still answers, once", (*trial).storedFirst},
		{"kill-remembered", "7.3", "a tombstone is there after the program was killed", (*trial).killRemembered},
		{"known-after-restart", "5.4, 7.3", "a message that comes again after the program was killed is known", (*trial).knownAfterRestart},
		{"new-incarnation", "7.6", "each start has another incarnation", (*trial).newIncarnation},
		{"numbers-go-on", "7.2", "its numbers go on after restarts, without gaps, one id each", (*trial).ownNumbers},
	}
}

// restart ends the program, starts it again and waits until it agrees.
func (t *trial) restart(end func()) error {
	end()
	begun := time.Now()
	if err := t.program.start(); err != nil {
		return err
	}
	return t.agreed(begun)
}

func (t *trial) linkCut() error {
	trace := t.trace()
	spawn := shell("echo begun >> " + trace + "; echo one; " + untilThere(trace+".go") + "; echo two; echo over >> " + trace)
	defer touch(trace + ".go")
	s, err := t.begins(spawn, trace)
	if err != nil {
		return err
	}
	t.proxy.Cut()
	touch(trace + ".go")
	if err := t.appears(trace, "over"); err != nil {
		return err
	}
	begun := time.Now()
	t.proxy.Heal()
	if err := t.agreed(begun); err != nil {
		return err
	}
	if _, err := t.result(s.ID, commands.Completed); err != nil {
		return err
	}
	if err := t.wrote(spawn.Task, 1, "stdout", "one\ntwo\n"); err != nil {
		return err
	}
	if err := t.checkBrief(s, "accepted started result"); err != nil {
		return err
	}
	return ran(trace, "begun", "over")
}

func (t *trial) disturbed() error {
	s, err := t.order(noop(), nil)
	if err != nil {
		return err
	}
	t.proxy.Corrupt(0)
	t.proxy.Corrupt(1)
	if _, err := t.result(s.ID, commands.Completed); err != nil {
		return err
	}
	return t.passed()
}

func (t *trial) newServer() error {
	s, err := t.unanswered()
	if err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	t.server.stop()
	t.set(func(m *mood) { m.forgets = false })
	begun := time.Now()
	if err := t.server.start(t.ctx); err != nil {
		return err
	}
	if err := t.agreed(begun); err != nil {
		return err
	}
	if _, err := t.result(s.ID, commands.Completed); err != nil {
		return err
	}
	return t.checkBrief(s, "accepted started result")
}

func (t *trial) killedAtWork() error {
	trace := t.trace()
	spawn := shell("echo begun >> " + trace + "; " + untilThere(trace+".go") + "; echo over >> " + trace)
	defer touch(trace + ".go")
	s, err := t.begins(spawn, trace)
	if err != nil {
		return err
	}
	if _, err := t.answer(s.ID, commands.StartedKind); err != nil {
		return err
	}
	if err := t.restart(t.program.kill); err != nil {
		return err
	}
	touch(trace + ".go")
	h, err := t.answer(s.ID, commands.ResultKind)
	if err != nil {
		return err
	}
	r := h.Body.(*commands.Result)
	adopted := r.State == commands.Completed && r.Outcome == commands.Succeeded
	lost := r.State == commands.Failed && r.Outcome == commands.Interrupted
	if r.Attempt != 1 || !adopted && !lost {
		return fmt.Errorf("expected attempt 1 completed (succeeded), or failed (interrupted); got attempt %d %s (%s)", r.Attempt, r.State, r.Outcome)
	}
	if err := t.checkAnswers(s, "accepted started result"); err != nil {
		return err
	}
	if got := lines(trace); !slices.Equal(got, []string{"begun", "over"}) && (adopted || !slices.Equal(got, []string{"begun"})) {
		return fmt.Errorf("expected one run; the agent wrote %q", got)
	}
	return nil
}

// storedFirst kills the program as soon as the message server has its acknowledgement.
func (t *trial) storedFirst() error {
	for round := range 5 {
		trace := t.trace()
		s, err := t.order(shell("echo once >> "+trace), nil)
		if err != nil {
			return err
		}
		if err := t.acknowledged(commands.QueueRun); err != nil {
			return err
		}
		if err := t.restart(t.program.kill); err != nil {
			return err
		}
		h, err := t.answer(s.ID, commands.ResultKind)
		if err != nil {
			return fmt.Errorf("round %d, of a spawn that was acknowledged: %w", round+1, err)
		}
		if got := lines(trace); len(got) > 1 || h.Body.(*commands.Result).State == commands.Completed && len(got) != 1 {
			return fmt.Errorf("round %d: expected one run; the agent wrote %q", round+1, got)
		}
	}
	return t.complaints()
}

// acknowledged waits until nothing of a queue waits or is on its way.
func (t *trial) acknowledged(queue string) error {
	return t.await(func() bool {
		n, err := t.server.running().WaitingCommands(t.ctx, t.Conn, queue)
		return err == nil && n == 0
	}, "the messages of the queue %s to be acknowledged", queue)
}

func (t *trial) killRemembered() error {
	trace := t.trace()
	spawn := shell("echo dead >> " + trace)
	if _, _, err := t.killsFirst(spawn); err != nil {
		return err
	}
	if err := t.restart(t.program.kill); err != nil {
		return err
	}
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	if _, err := t.refusal(s.ID, commands.Tombstone); err != nil {
		return err
	}
	return ran(trace)
}

func (t *trial) knownAfterRestart() error {
	trace := t.trace()
	s, err := t.completes(shell("echo once >> " + trace))
	if err != nil {
		return err
	}
	known := len(t.answers(s.ID))
	if err := t.restart(t.program.kill); err != nil {
		return err
	}
	if err := t.publish(commands.QueueRun, s.Envelope); err != nil {
		return err
	}
	if err := t.quiet(s.ID, known); err != nil {
		return err
	}
	return ran(trace, "once")
}

func (t *trial) newIncarnation() error {
	t.server.mu.Lock()
	before := slices.Clone(t.server.logins)
	t.server.mu.Unlock()
	if err := t.restart(t.program.stop); err != nil {
		return err
	}
	now := t.lastBeat().Incarnation
	if slices.Contains(before, now) || !signing.ValidUUID(now) {
		return fmt.Errorf("expected a new UUID; got %q, after %v", now, before)
	}
	return nil
}
