package conformance

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

func taskRules() []Rule {
	rules := append([]Rule{joining("join")}, linkRules()...)
	rules = append(rules,
		Rule{"spawn", "7.3, 7.4", "answers a spawn with accepted, started and one result, each with its re, attempt and fence", (*trial).spawns},
		Rule{"noop", "6.3", "runs the runtime noop without a process", (*trial).noops},
		Rule{"exit-code", "6.3, 10", "tells the exit code of an agent that fails", (*trial).exits},
		Rule{"environment", "6.3, 6.5", "starts an agent in the directory and with the variables that it was given", (*trial).surroundings},
		Rule{"sealed", "6.5", "refuses values that were sealed for another message, variable or key, and starts nothing", (*trial).sealedElsewhere},
		Rule{"inline-files", "6.3, 6.5", "with the capability inline-files gives each attempt the files and the standard input of its order, and puts none anywhere else", (*trial).inlineFiles},
		Rule{"output", "8", "sends both streams of output whole, with size and SHA-256 in the result", (*trial).bothStreams},
		Rule{"large-output", "8", "sends output of 2 MB in pieces, and goes on from where the hub says that it is", (*trial).largeOutput},
		Rule{"unknown-runtime", "6.3", "refuses a runtime that there is not as VALIDATION", (*trial).unknownRuntime},
		Rule{"unknown-program", "6.3, 7.3", "refuses a program that there is not, or ends its task as not started", (*trial).unknownProgram},
		Rule{"capability", "5.4", "refuses a spawn that asks for a capability which it does not have", (*trial).lacksCapability},
		Rule{"timeout", "6.3", "ends an agent at timeout_ms as timed_out", (*trial).timesOut},
	)
	rules = append(rules, repeatRules()...)
	rules = append(rules, killRules()...)
	rules = append(rules, pauseRules()...)
	return append(rules, treeRules()...)
}

// checkAnswers compares all answers to a spawn with what section 7.4 says.
func (t *trial) checkAnswers(s signing.Sealed, want string) error {
	list := t.answers(s.ID)
	if got := kinds(list); got != want {
		return fmt.Errorf("expected %s; got %s", want, got)
	}
	fence := int64(-1)
	for _, h := range list {
		re := h.header().Re
		if re.SHA256 != s.Body.String() {
			return fmt.Errorf("expected re.sha256 of %s to be body.sha256 of the command, %s; got %s", h.Body.Kind(), s.Body, re.SHA256)
		}
		attempt := 0
		switch b := h.Body.(type) {
		case *commands.Started:
			attempt = b.Attempt
		case *commands.Ended:
			attempt = b.Attempt
		case *commands.Result:
			attempt = b.Attempt
		}
		if re.Attempt != attempt {
			return fmt.Errorf("expected re.attempt %d in %s; got %d", attempt, h.Body.Kind(), re.Attempt)
		}
		if attempt == 0 && re.Fence != 0 && h.Body.Kind() != commands.ResultKind {
			return fmt.Errorf("expected re.fence 0 in %s; got %d", h.Body.Kind(), re.Fence)
		}
		if attempt > 0 {
			if re.Fence < fence || re.Fence == 0 {
				return fmt.Errorf("expected a fence above 0 that does not fall; got %d behind %d", re.Fence, fence)
			}
			fence = re.Fence
		}
	}
	return t.complaints()
}

// checkBrief checks the answers to a spawn whose last attempt may have ended before its start was
// stored: then nobody is told of that start alone.
func (t *trial) checkBrief(s signing.Sealed, want string) error {
	if brief := strings.TrimSuffix(want, " started result") + " result"; kinds(t.answers(s.ID)) == brief {
		want = brief
	}
	return t.checkAnswers(s, want)
}

func (t *trial) spawns() error {
	trace := t.trace()
	s, err := t.order(shell("echo once >> "+trace), nil)
	if err != nil {
		return err
	}
	r, err := t.result(s.ID, commands.Completed)
	if err != nil {
		return err
	}
	if r.Outcome != commands.Succeeded || r.Attempt != 1 || r.Exit.Code != 0 || r.EndedAt == 0 {
		return fmt.Errorf("expected outcome succeeded of attempt 1, exit code 0 and ended_at; got %s, %d, %d and %d", r.Outcome, r.Attempt, r.Exit.Code, r.EndedAt)
	}
	if err := t.checkBrief(s, "accepted started result"); err != nil {
		return err
	}
	if a := t.answers(s.ID)[0].Body.(*commands.Accepted); a.State != commands.Queued || a.Known {
		return fmt.Errorf("expected accepted with the state queued and without known; got %s, %t", a.State, a.Known)
	}
	return ran(trace, "once")
}

func (t *trial) noops() error {
	s, err := t.order(noop(), nil)
	if err != nil {
		return err
	}
	r, err := t.result(s.ID, commands.Completed)
	if err == nil && r.Outcome != commands.Succeeded {
		err = fmt.Errorf("expected the outcome succeeded; got %q", r.Outcome)
	}
	return err
}

func (t *trial) exits() error {
	s, err := t.order(shell("exit 7"), nil)
	if err != nil {
		return err
	}
	r, err := t.result(s.ID, commands.Failed)
	if err == nil && (r.Outcome != commands.AttemptFailed || r.Exit.Code != 7) {
		err = fmt.Errorf("expected the outcome failed and exit code 7; got %q and %d", r.Outcome, r.Exit.Code)
	}
	return err
}

// bare sends a spawn with a body that cannot be made from a Spawn.
func (t *trial) bare(body string) (id string, err error) {
	t.mu.Lock()
	h := t.Header(commands.SpawnKind, nil)
	f := t.Forge(commands.SpawnKind.Type(), h, []byte(body))
	s := signing.Sealed{ID: h.ID, Seq: h.Seq, Exp: time.UnixMilli(h.Exp), Envelope: f.Envelope(), Digest: sha256.Sum256(f.Header)}
	t.mu.Unlock()
	t.remember(s)
	return h.ID, t.publish(commands.QueueRun, s.Envelope)
}

func (t *trial) unknownRuntime() error {
	id, err := t.bare(`{"task":"` + forge.NewID() + `","runtime":"wasm","argv":["x"]}`)
	if err != nil {
		return err
	}
	_, err = t.refusal(id, commands.Validation)
	return err
}

func (t *trial) unknownProgram() error {
	spawn := &commands.Spawn{Task: forge.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"conformance-there-is-no-such-program"}}
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	if err := t.await(func() bool {
		return strings.HasSuffix(kinds(t.answers(s.ID)), "refused") || strings.HasSuffix(kinds(t.answers(s.ID)), "result")
	}, "agent.refused or agent.result"); err != nil {
		return err
	}
	list := t.answers(s.ID)
	switch b := list[len(list)-1].Body.(type) {
	case *commands.RefusedBody:
		_, err = t.refusal(s.ID, commands.Policy, commands.BadPath, commands.Capability)
	case *commands.Result:
		if b.State != commands.Failed && b.State != commands.Unavailable || b.Outcome != commands.CouldNotStart || b.Exit.Code != -1 || b.Exit.Error == "" {
			err = fmt.Errorf("expected a result with the state failed or unavailable, the outcome unavailable, exit code -1 and an error; got %s, %s, %d and %q", b.State, b.Outcome, b.Exit.Code, b.Exit.Error)
		}
	}
	return err
}

func (t *trial) lacksCapability() error {
	spawn := noop()
	spawn.Capabilities = []string{"conformance-nobody-has-this"}
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	_, err = t.refusal(s.ID, commands.Capability)
	return err
}

func (t *trial) timesOut() error {
	trace := t.trace()
	spawn := shell("echo begun >> " + trace + "; sleep 60; echo over >> " + trace)
	spawn.TimeoutMS, spawn.EstimateMS = 500, 60_000
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	r, err := t.result(s.ID, commands.Expired)
	if err == nil && (r.Outcome != commands.TimedOut || r.Reason != commands.DeadlineElapsed) {
		err = fmt.Errorf("expected the outcome timed_out and the reason deadline_elapsed; got %q and %q", r.Outcome, r.Reason)
	}
	return err
}

func (t *trial) retries() error {
	trace := t.trace()
	spawn := shell("echo run >> " + trace + `; [ "$(wc -l < ` + trace + `)" -ge 2 ]`)
	spawn.MaxRetries = 2
	s, err := t.order(spawn, nil)
	if err != nil {
		return err
	}
	var r *commands.Result
	patience := t.patience
	t.patience += 30 * time.Second // a spoke may wait between two attempts
	r, err = t.result(s.ID, commands.Completed)
	t.patience = patience
	if err != nil {
		return err
	}
	if r.Attempt != 2 {
		return fmt.Errorf("expected a result of attempt 2; got %d", r.Attempt)
	}
	if err := t.checkBrief(s, "accepted started ended started result"); err != nil {
		return err
	}
	list := t.answers(s.ID)
	if e := list[2].Body.(*commands.Ended); e.State != commands.Queued || e.Outcome != commands.AttemptFailed {
		return fmt.Errorf("expected agent.ended with the outcome failed and the state queued; got %s, %s", e.Outcome, e.State)
	}
	if one, two := list[1].header().Re.Fence, list[3].header().Re.Fence; two <= one {
		return fmt.Errorf("expected a higher fence of the second attempt; got %d behind %d", two, one)
	}
	return ran(trace, "run", "run")
}
