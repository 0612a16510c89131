package spoke

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// errLinkFault is all that is said of a fault behind a link.
var errLinkFault = errors.New("the directory of this order cannot be opened on this spoke now")

// faultOf is the fault of this host that keeps an accepted order from being judged again, nil = there is none.
func faultOf(n *policy.Named) error {
	if n.Fault == nil && n.LinkFault != nil {
		return errLinkFault
	}
	return n.Fault
}

// judgeAgain asks the policy in force about an attempt that is about to start:
// the one that accepted its task may have been replaced. The end it returns is
// that of an attempt that must not start.
func judgeAgain(rules *policy.Policy, r *run, env environment, n *policy.Named) (backlog.End, bool) {
	refused := rules.JudgeNamed(&r.spec, env.vars, n)
	if refused == nil {
		r.policy = rules.ID()
		return backlog.End{}, true
	}
	why := commands.PolicyDenied
	if refused.Code == commands.Capability {
		why = commands.CapabilityMissing
	}
	text := fmt.Sprintf("not started: the spoke had accepted it, and its policy, now version %s, refuses it: %s", rules.ID(), refused.Why)
	if refused.Hint != "" {
		text += "; " + refused.Hint
	}
	return backlog.End{Outcome: commands.CouldNotStart, Why: why, Policy: rules.ID(), Exit: commands.Exit{Code: -1, Error: commands.Clean(text, 1000)}}, false
}

// policyNote is the file among an attempt's control files that says which policy let it
// start, and at which level of isolation: a process that comes before the start is in the
// database has to tell it.
const policyNote = "policy"

var policyNoteForm = regexp.MustCompile(`^([0-9a-f]{12}) ([a-z+]{4,16})$`)

// note writes a file among the control files of an attempt that is about to start. Their directory is
// new, so whatever is there already is not ours.
func (r *run) note(name, text string) error {
	f, err := os.OpenFile(filepath.Join(r.control(), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("noting the %s of an attempt: %w", name, err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("noting the %s of an attempt: %w", name, err)
	}
	return nil
}

// recallPolicy reads the note of an attempt that an earlier process started. Its agent may
// have the same user and write to it.
func (s *Spoke) recallPolicy(ctx context.Context, r *run) {
	raw, err := supervisor.ReadFile(r.control(), policyNote, 64)
	if err != nil {
		s.Log.WarnContext(ctx, "reading which policy let an attempt start; it is told as not known", "id", r.fence.Task, "err", err)
	}
	if f := policyNoteForm.FindSubmatch(raw); f != nil && slices.Contains(commands.IsolationLevels, string(f[2])) {
		r.policy, r.level = string(f[1]), string(f[2])
	}
}

// ReloadPolicy reads the policy again and puts it in force for what is accepted
// and what starts from now on; what runs goes on. A policy that cannot be used
// changes nothing, and neither does one that demands what this host does not hold, or another version than is expected. actor is who asked for it, for the audit.
func (s *Spoke) ReloadPolicy(ctx context.Context, actor, expected string) (policy.Change, error) {
	change, err := s.Policy.Reload(expected)
	if err != nil {
		s.Log.ErrorContext(ctx, "the policy cannot be used; the one before stays in force", "policy", change.Policy, "err", err)
		code := commands.Validation
		if commands.CodeOf(err) == commands.Conflict { // it is another version than was expected
			code = commands.Conflict
		}
		r := commands.Refuse(code, "%v", err).Hinting("policy %s stays in force; correct the file and reload again", change.Policy)
		if err := s.DB.Audit(ctx, store.AuditRow{Actor: actor, Action: "policy.kept", Code: string(r.Code), Why: r.Why}); err != nil {
			return change, err
		}
		return change, r
	}
	s.Log.InfoContext(ctx, "policy reloaded", "policy", change.Policy, "was", change.Was, "isolation", change.Level)
	if s.working.Load() { // else the start says it
		s.sayUnconfined(ctx)
		s.board.Beat() // what it offers may be another thing now
	}
	change.Lifted, err = s.backlog.LiftLimits(ctx, func(lifted []string) store.AuditRow {
		row := store.AuditRow{Actor: actor, Action: "policy.reloaded", Why: fmt.Sprintf("policy %s, was %s", change.Policy, change.Was)}
		if len(lifted) > 0 {
			row.Why += "; limits of accounts lifted: " + strings.Join(lifted, ", ")
		}
		return row
	})
	if err == nil {
		s.work.Send() // tasks may wait for a capability that is here now
	}
	return change, err
}
