package conformance

import (
	"fmt"
	"os"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

// touch makes a file that an agent waits for.
func touch(path string) { _ = os.WriteFile(path, nil, 0o644) } // an agent that does not see it is told of by its rule

// untilThere is a shell script that waits for a file, for a minute or two at most: an agent
// that a broken spoke leaves behind ends by itself.
func untilThere(path string) string {
	return "n=0; while [ ! -e " + path + " ] && [ $n -lt 1000 ]; do n=$((n+1)); sleep 0.05; done"
}

func killRules() []Rule {
	return []Rule{
		{"kill-running", "7.3", "a kill ends the whole tree of a running agent: accepted, the result, killed", (*trial).killRunning},
		{"kill-grace", "6.3, 7.3", "an agent has its grace to end by itself after TERM", (*trial).killGrace},
		{"kill-ended", "7.3", "a kill of a task that has ended tells the state in which it ended", (*trial).killEnded},
		{"kill-early", "5.4", "a kill whose iat is ten minutes ahead is taken", (*trial).killEarly},
		{"tombstone", "7.3", "a kill before its spawn is accepted as cancelled; the spawn behind it is refused as TOMBSTONE", (*trial).tombstone},
		{"status", "7.3", "a status is answered with the state of the task", (*trial).status},
		{"status-unknown", "7.3", "a status of an unknown task is refused as UNKNOWN_TASK", (*trial).statusUnknown},
	}
}

// killed waits for the answers to a kill of a running task, and checks them and its result.
func (t *trial) killed(spawn, kill string) (*commands.Result, error) {
	h, err := t.answer(kill, commands.KilledKind)
	if err != nil {
		return nil, err
	}
	if got := kinds(t.answers(kill)); got != "accepted killed" {
		return nil, fmt.Errorf("expected accepted and killed in answer to the kill; got %s", got)
	}
	if k := h.Body.(*commands.Killed); k.State != commands.Cancelled || h.header().Re.Attempt != 0 || h.header().Re.Fence != 0 {
		return nil, fmt.Errorf("expected agent.killed with the state cancelled and re.attempt and re.fence 0; got %s, %+v", k.State, h.header().Re)
	}
	r, err := t.result(spawn, commands.Cancelled)
	if err != nil {
		return nil, err
	}
	if r.Reason != commands.KillRequested || r.Kill != kill {
		return nil, fmt.Errorf("expected a result with the reason kill_requested and kill %s; got %q and %q", kill, r.Reason, r.Kill)
	}
	return r, t.complaints()
}

func (t *trial) killRunning() error {
	trace := t.trace()
	spawn := shell("(sleep 3; echo child >> " + trace + ") & echo begun >> " + trace + "; wait; echo over >> " + trace)
	s, err := t.begins(spawn, trace)
	if err != nil {
		return err
	}
	if _, err := t.answer(s.ID, commands.StartedKind); err != nil {
		return err
	}
	k, err := t.order(&commands.Kill{Task: spawn.Task, Reason: "the rule says so"}, nil)
	if err != nil {
		return err
	}
	r, err := t.killed(s.ID, k.ID)
	if err != nil {
		return err
	}
	if r.Outcome != commands.AttemptKilled {
		return fmt.Errorf("expected the outcome killed; got %q", r.Outcome)
	}
	// The child of the shell would write after three seconds.
	_ = t.awaitFor(3500*time.Millisecond, func() bool { return len(lines(trace)) > 1 }, "")
	return ran(trace, "begun")
}

func (t *trial) killGrace() error {
	trace := t.trace()
	spawn := shell("trap 'echo term >> " + trace + "; exit 0' TERM; echo begun >> " + trace + "; " + untilThere(trace+".never"))
	s, err := t.begins(spawn, trace)
	if err != nil {
		return err
	}
	k, err := t.order(&commands.Kill{Task: spawn.Task, Reason: "the rule says so", GraceMS: 20_000}, nil)
	if err != nil {
		return err
	}
	if _, err := t.killed(s.ID, k.ID); err != nil {
		return err
	}
	return ran(trace, "begun", "term")
}

// killEarly is a kill as it comes to a spoke whose clock is behind.
func (t *trial) killEarly() error {
	k, err := t.order(&commands.Kill{Task: forge.NewID(), Reason: "the rule says so"}, func(h *signing.Header) {
		h.Iat, h.Exp = h.Iat+600_000, h.Exp+600_000
	})
	if err != nil {
		return err
	}
	if _, err := t.answer(k.ID, commands.AcceptedKind); err != nil {
		return err
	}
	return t.complaints()
}

func (t *trial) killEnded() error {
	spawn := noop()
	s, err := t.completes(spawn)
	if err != nil {
		return err
	}
	k, err := t.order(&commands.Kill{Task: spawn.Task, Reason: "too late"}, nil)
	if err != nil {
		return err
	}
	h, err := t.answer(k.ID, commands.KilledKind)
	if err != nil {
		return err
	}
	if got := h.Body.(*commands.Killed).State; got != commands.Completed {
		return fmt.Errorf("expected agent.killed with the state completed; got %s", got)
	}
	if got := kinds(t.answers(s.ID)); got != "accepted started result" && got != "accepted result" {
		return fmt.Errorf("expected one result; the spawn had the answers %s", got)
	}
	return nil
}

// killsFirst has a task killed that was not asked for yet.
func (t *trial) killsFirst(spawn *commands.Spawn) (k signing.Sealed, accepted heard, err error) {
	if k, err = t.order(&commands.Kill{Task: spawn.Task, Reason: "before it came"}, nil); err != nil {
		return k, accepted, err
	}
	accepted, err = t.answer(k.ID, commands.AcceptedKind)
	return k, accepted, err
}

func (t *trial) tombstone() error {
	trace := t.trace()
	spawn := shell("echo dead >> " + trace)
	k, h, err := t.killsFirst(spawn)
	if err != nil {
		return err
	}
	if got := h.Body.(*commands.Accepted).State; got != commands.Cancelled {
		return fmt.Errorf("expected accepted with the state cancelled; got %s", got)
	}
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	if _, err := t.refusal(s.ID, commands.Tombstone); err != nil {
		return err
	}
	if err := t.quiet(k.ID, 1); err != nil {
		return err
	}
	return ran(trace)
}

func (t *trial) status() error {
	spawn := noop()
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	r, err := t.result(s.ID, commands.Completed)
	if err != nil {
		return err
	}
	q, err := t.order(&commands.Status{Task: spawn.Task}, nil)
	if err != nil {
		return err
	}
	h, err := t.answer(q.ID, commands.StateKind)
	if err != nil {
		return err
	}
	if got := h.Body.(*commands.TaskState); got.State != commands.Completed || got.Attempt != r.Attempt {
		return fmt.Errorf("expected the state completed and attempt %d; got %s and %d", r.Attempt, got.State, got.Attempt)
	}
	return t.complaints()
}

func (t *trial) statusUnknown() error {
	q, err := t.order(&commands.Status{Task: forge.NewID()}, nil)
	if err != nil {
		return err
	}
	_, err = t.refusal(q.ID, commands.UnknownTask)
	return err
}
