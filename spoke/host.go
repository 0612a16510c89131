package spoke

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An AgentView is an agent that runs here, or ran, as its host sees it. Its
// fields are named as those of the hub's view, where they mean the same.
type AgentView struct {
	backlog.Agent
	ExitCode *int   `json:"exit_code,omitempty"` // of the last attempt's process
	Dir      string `json:"dir"`                 // of its attempts, one directory each
	// Progress is what it has said of its progress last; nil = nothing, or it does not run.
	Progress *commands.AgentProgress `json:"progress,omitempty"`
	// Verdict says what it is at; nil where it has not begun, or has ended. Memory and CPU are what its tree takes now.
	Verdict *commands.Verdict `json:"verdict,omitempty"`
	Memory  int64             `json:"memory_bytes,omitempty"`
	CPU     time.Duration     `json:"-"`
	Overrun bool              `json:"overrun,omitempty"` // it runs longer than estimated, and was warned of
	// OverrunSince is when that was, and OverrunUntil when it is ended where it tells no progress; nil where that is not known, or nothing is due.
	OverrunSince *time.Time `json:"overrun_since,omitempty"`
	OverrunUntil *time.Time `json:"overrun_until,omitempty"`
	// Session is what the runtime of its agent calls a conversation, as the agent has registered it; "" = it has not, or it is not looked for.
	Session      string                `json:"session,omitempty"`
	SessionState commands.SessionState `json:"session_state,omitempty"`
	// KillIncomplete are its processes that do not end although they were killed.
	KillIncomplete []supervisor.Survivor `json:"kill_incomplete,omitempty"`

	// RefusedReports are those about it that its hub has refused.
	RefusedReports []store.RefusedReport `json:"refused_reports,omitempty"`
}

// A Desk answers what the host asks about agents. All of it is in the
// database and the data directory, so it answers also where no spoke runs.
type Desk struct {
	db      *store.DB
	backlog *backlog.Backlog
	dir     string
	lacks   func() string         // what the disk lacks for something to be started; "" = nothing
	rules   func() *policy.Policy // that decide at a start; nil where they cannot be read
	live    *live                 // nil where no spoke runs
	slots   int
	hung    time.Duration // how long an agent may show no sign; 0 = the default
}

// DeskOf answers about the agents of an instance that does not run.
func DeskOf(db *store.DB, dir string) Desk {
	return Desk{db, Backlog(db, dir), dir, func() string { return lacksByFile(dir) }, func() *policy.Policy { return rulesOf(dir) }, nil, 0, 0}
}

// rulesOf is the policy that a spoke would start with. What is wrong with it is said where it decides.
func rulesOf(dir string) *policy.Policy {
	rules, err := policy.Load(dir)
	if err != nil {
		return nil
	}
	return rules
}

// lacksByFile says what the disk lacks by the policy that a spoke would start with.
func lacksByFile(dir string) string {
	return short(dir, Reserve(cmp.Or(rulesOf(dir), &policy.Policy{})))
}

// Agents returns the agents that run here, or ran, newest first, and before which id the list goes on. None
// has labels, and none is archived.
func (d Desk) Agents(ctx context.Context, t control.AgentTerms) (views []AgentView, next string, err error) {
	if t.Spoke != "" {
		return nil, "", commands.Refuse(commands.Validation, "this instance is a spoke: its agents run here").Hinting("to see those of one hub").Running("agents", "--hub", "NAME")
	}
	if !t.Labels.Unlabelled() || t.Archived {
		return nil, "", nil
	}
	list, err := d.backlog.Agents(ctx, t.Hub, t.Open, t.Before, t.Limit)
	for _, a := range list {
		views = append(views, d.view(a))
	}
	if len(list) == t.Limit {
		next = list[len(list)-1].Task
	}
	return views, next, err
}

// Agent returns the one that a person means by an id or a prefix of it: once it has ended,
// or wait has passed.
func (d Desk) Agent(ctx context.Context, text string, wait time.Duration) (AgentView, error) {
	for until := time.Now().Add(wait); ; {
		a, err := d.backlog.Agent(ctx, text)
		if err != nil || a.State.Terminal() || time.Now().After(until) {
			v := d.view(a)
			if err == nil {
				err = d.session(ctx, &v)
			}
			if err == nil {
				v.RefusedReports, err = d.db.RefusedAbout(ctx, a.Task)
			}
			if err == nil && v.Overrun {
				v.OverrunSince, v.OverrunUntil, err = d.backlog.OverrunOf(ctx, a.Task)
			}
			return v, err
		}
		select {
		case <-ctx.Done():
			return AgentView{}, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (d Desk) view(a backlog.Agent) AgentView {
	r, _ := commands.ReadResult(a.Result)
	var left []supervisor.Survivor
	var said *commands.AgentProgress
	if d.live != nil {
		said = d.live.saidOf(a.Task)
		left = d.live.survivorsOf(a.Task)
		a.Isolation = cmp.Or(a.Isolation, d.live.isolationOf(a.Task))
	}
	v := AgentView{Agent: a, Dir: agentDir(d.dir, a.Task), ExitCode: r.ExitCode(), Progress: said, KillIncomplete: left}
	if !a.State.Terminal() {
		d.judgeBy(&v)
	}
	return v
}

// session adds how the session of an agent stands.
func (d Desk) session(ctx context.Context, v *AgentView) error {
	c, err := d.backlog.LastCheckpoint(ctx, v.Task)
	if err != nil || c.Session == nil || *c.Session == "" {
		return err
	}
	runs, adopted := c.Runs, false // its shim goes on where no spoke runs, or has not taken it over yet
	if here, again := d.live.runs(v.Task); here {
		runs, adopted = true, again
	}
	v.Session, v.SessionState = *c.Session, commands.Session(true, v.State, runs, adopted)
	return nil
}

// judgeBy adds what an agent is at and takes at this moment.
func (d Desk) judgeBy(v *AgentView) {
	e := commands.Evidence{State: v.State, Reason: v.Reason, Patience: d.hung}
	if d.live == nil {
		e.Unheard = "no spoke runs here"
	} else if p, ok := d.live.pulseOf(v.Task); ok {
		e.Sign, e.Idle, e.Slept = p.sign, p.idle, p.slept
		v.Memory, v.CPU, v.Overrun = p.usage.RSS, p.usage.CPU, p.overrun
	}
	v.Verdict = e.Verdict()
}

// Provenance returns what the result of an agent comes from.
func (d Desk) Provenance(ctx context.Context, v AgentView) (store.Provenance, error) {
	return d.db.ProvenanceOf(ctx, v.Conn, v.Command)
}

// Runs reports whether a spoke runs here.
func (d Desk) Runs() bool { return d.live != nil }

// Why says why an agent does not start, and every reason for it; briefly, without what it was given, what it wrote and what
// the policy has against it.
func (d Desk) Why(ctx context.Context, text, actor string, brief bool) (backlog.Why, error) {
	ws, err := d.backlog.Workspace(backlog.MainWorkspace, actor)
	if err != nil {
		return backlog.Why{}, err
	}
	why, err := ws.Why(ctx, text)
	switch {
	case err != nil, brief && why.Task.State != commands.Queued:
		return why, err
	case why.Task.State == commands.AwaitingInput:
		return why, d.asks(ctx, &why)
	case d.live != nil && d.live.awaits(why.Task.ID):
		return why, d.awaitsRecall(ctx, &why)
	case why.Task.State != commands.Queued:
		return why, nil
	}
	before, err := ws.Before(ctx, why.Task.ID)
	if err != nil {
		return why, err
	}
	d.hold(&why, before)
	if brief {
		return why, nil
	}
	a, err := d.backlog.Agent(ctx, why.Task.ID)
	if err != nil {
		return why, err
	}
	return why, d.judge(&why, a.Spec)
}

// asks puts the open questions of an agent in place of how else it stands.
func (d Desk) asks(ctx context.Context, why *backlog.Why) error {
	all, err := d.backlog.Questions(ctx, why.Task.ID)
	if open := store.OpenReasons(all); len(open) > 0 {
		why.Reasons = append(open, slices.DeleteFunc(why.Reasons, func(r commands.WhyReason) bool {
			return r.Code == commands.CauseQuestion || r.Code == commands.CauseLease
		})...)
	}
	return err
}

// awaitsRecall says, in place of who holds an agent, that its hub has not said yet what became of it.
func (d Desk) awaitsRecall(ctx context.Context, why *backlog.Why) error {
	a, err := d.backlog.Agent(ctx, why.Task.ID)
	if err != nil {
		return err
	}
	why.Reasons = []commands.WhyReason{{Code: commands.CauseHistories, Fix: commands.Line("kill", commands.ShortID(a.Task), "--reason", "WHY"),
		Text: fmt.Sprintf("this spoke was restored from a backup and has nothing of attempt %d; the attempt ends when %s has said all that became of its work, and takes no slot until then", a.Attempt, a.Hub)}}
	return nil
}

// judge adds what the policy has against an agent that it let in when it was another one: where it
// lacks a capability nobody claims the agent, and whatever else it refuses ends at the start.
// Values stay sealed, so what is wrong with one is told at the start only.
func (d Desk) judge(why *backlog.Why, spec []byte) error {
	rules := d.rules()
	if rules == nil {
		return nil
	}
	var s commands.Spawn
	if err := json.Unmarshal(spec, &s); err != nil {
		return fmt.Errorf("reading the order of agent %s: %w", why.Task.ID, err)
	}
	// Its only claimer is this spoke, and what that lacks the policy says.
	why.Reasons = slices.DeleteFunc(why.Reasons, func(r commands.WhyReason) bool { return r.Code == commands.CauseCapability })
	if r := rules.Foresee(&s, nil); r != nil {
		why.Claimable, why.By = false, nil
		why.Reasons = append(why.Reasons, commands.WhyReason{Code: commands.CausePolicy, Text: fmt.Sprintf("the policy, version %s, refuses it: %s", rules.ID(), r.Why), Fix: r.Hint + "; after a change there: spawnmesh spoke policy reload"})
	}
	return nil
}

// hold adds why this host starts nothing, where that is so. So many orders of the same hub stand before
// it; nil = not known.
func (d Desk) hold(why *backlog.Why, before *int) {
	var reasons []commands.WhyReason
	if d.live == nil {
		reasons = append(reasons, commands.WhyReason{Code: commands.CauseSpoke, Text: "no spoke runs here", Fix: "spawnmesh spoke run"})
	}
	if lack := d.lacks(); lack != "" {
		reasons = append(reasons, commands.WhyReason{Code: commands.CauseDisk, Text: "the disk of the data directory " + lack, Fix: "make room there, or lower the limit in the policy; it goes on by itself"})
	}
	if d.live != nil && d.live.count() >= d.slots {
		what := fmt.Sprintf("no slot is free, of %d", d.slots)
		if before != nil {
			what += "; " + commands.InLine(*before, "its hub")
		}
		reasons = append(reasons, commands.WhyReason{Code: commands.CauseSlots, Text: what, Fix: "it starts when one is free", Figure: commands.Figure(d.slots)})
	}
	if len(reasons) > 0 {
		why.Claimable, why.By = false, nil
		why.Reasons = append(why.Reasons, reasons...)
	}
}

// Kill ends an agent by its host's word: who asked for it is told its end. It returns
// the agent as it was when it was to be killed.
func (s *Spoke) Kill(ctx context.Context, ref string, k commands.Kill, actor string) (AgentView, error) {
	ctx = context.WithoutCancel(ctx)
	a, err := s.backlog.Agent(ctx, ref)
	v := s.Desk().view(a)
	if k.Task = a.Task; err == nil {
		err = k.Validate()
	}
	if err != nil || a.State.Terminal() {
		return v, err
	}
	if err := s.lookForBegun(a.Conn, a.Task); err != nil {
		return v, err
	}
	run, err := s.backlog.KillHere(ctx, backlog.HostKill{Kill: k, ID: uuid.Must(uuid.NewV7()).String(), Actor: actor})
	if err != nil {
		return v, err
	}
	s.Log.InfoContext(ctx, "kill ordered by the host", "id", a.Task, "as", k.Word(), "by", actor)
	if run != nil {
		s.live.kill(*run)
	}
	return v, nil
}

// Desk answers about the agents of this spoke.
func (s *Spoke) Desk() Desk {
	return Desk{s.DB, s.backlog, s.Dir, s.lacksRoom, s.Policy.Now, &s.live, s.Slots, s.HungAfter}
}

// Fitting returns what tells those agents apart that a text of a person fits.
func (s *Spoke) Fitting(ctx context.Context, text string) ([]string, error) {
	list, err := s.backlog.AgentsNamed(ctx, text)
	return backlog.Candidates(list), err
}
