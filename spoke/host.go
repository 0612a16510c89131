package spoke

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
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
	// KillIncomplete are its processes that do not end although they were killed.
	KillIncomplete []supervisor.Survivor `json:"kill_incomplete,omitempty"`

	// RefusedReports are those about it that its hub has refused.
	RefusedReports []store.Refused `json:"refused_reports,omitempty"`
}

// An agentDesk answers what the host asks about agents. All of it is in the
// database and the data directory, so it answers also where no spoke runs.
type agentDesk struct {
	db      *store.DB
	backlog *backlog.Backlog
	dir     string
	lacks   func() string // what the disk lacks for something to be started; "" = nothing
	live    *live         // nil where no spoke runs
	slots   int
}

// Reader answers what only reads, of the agents of an instance that does not
// run: the same routes as a running spoke's.
func Reader(db *store.DB, dir string) http.Handler {
	m := http.NewServeMux()
	agentDesk{db, backlog.Open(db, Answer), dir, func() string { return lacksByFile(dir) }, nil, 0}.route(m)
	return m
}

// lacksByFile says what the disk lacks by the policy that a spoke would start with.
func lacksByFile(dir string) string {
	rules, err := policy.Load(dir)
	if err != nil { // what is wrong with it is said where it decides
		rules = &policy.Policy{}
	}
	return short(dir, Reserve(rules))
}

func (d agentDesk) route(m *http.ServeMux) {
	m.HandleFunc("GET /v1/agents", d.list)
	m.HandleFunc("GET /v1/agents/{id}", d.show)
	m.HandleFunc("GET /v1/agents/{id}/why", d.why)
}

func (d agentDesk) list(w http.ResponseWriter, r *http.Request) {
	var list []AgentView
	t, err := control.ReadAgentTerms(r)
	if err == nil {
		list, err = d.newest(r.Context(), t)
	}
	control.Reply(w, list, err)
}

func (d agentDesk) newest(ctx context.Context, t control.AgentTerms) ([]AgentView, error) {
	if t.Spoke != "" {
		return nil, commands.Refuse(commands.Validation, "this instance is a spoke: its agents run here").Hinting("to see those of one hub").Running("agents", "--hub", "NAME")
	}
	list, err := d.backlog.Agents(ctx, t.Hub, t.Open, t.Limit)
	views := make([]AgentView, len(list))
	for i, a := range list {
		views[i] = d.view(a)
	}
	return views, err
}

// show answers with an agent as it is; with wait=D only when it has ended, or D
// has passed.
func (d agentDesk) show(w http.ResponseWriter, r *http.Request) {
	wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
	until := time.Now().Add(min(wait, time.Minute))
	for {
		a, err := d.backlog.Agent(r.Context(), r.PathValue("id"))
		if err != nil || a.State.Terminal() || time.Now().After(until) {
			v := d.view(a)
			if err == nil {
				v.RefusedReports, err = d.db.RefusedAbout(r.Context(), a.Task)
			}
			control.Reply(w, v, err)
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (d agentDesk) view(a backlog.Agent) AgentView {
	r, _ := commands.ReadResult(a.Result)
	var left []supervisor.Survivor
	if d.live != nil {
		left = d.live.survivorsOf(a.Task)
		a.Isolation = cmp.Or(a.Isolation, d.live.isolationOf(a.Task))
	}
	return AgentView{Agent: a, Dir: agentDir(d.dir, a.Task), ExitCode: r.ExitCode(), KillIncomplete: left}
}

func (d agentDesk) why(w http.ResponseWriter, r *http.Request) {
	ws, err := d.backlog.Workspace(backlog.MainWorkspace, control.Caller(r).String())
	var why backlog.Why
	if err == nil {
		why, err = ws.Why(r.Context(), r.PathValue("id"))
	}
	if err == nil && why.Task.State == commands.Queued {
		d.hold(&why)
	}
	control.Reply(w, why, err)
}

// hold adds why this host starts nothing, where that is so.
func (d agentDesk) hold(why *backlog.Why) {
	var reasons []backlog.WhyReason
	if d.live == nil {
		reasons = append(reasons, backlog.WhyReason{Stage: "spoke", What: "no spoke runs here", Hint: "spawnmesh spoke run"})
	}
	if lack := d.lacks(); lack != "" {
		reasons = append(reasons, backlog.WhyReason{Stage: "disk", What: "the disk of " + d.dir + " " + lack, Hint: "make room there, or lower the limit in the policy; it goes on by itself"})
	}
	if d.live != nil && d.live.count() >= d.slots {
		reasons = append(reasons, backlog.WhyReason{Stage: "slots", What: fmt.Sprintf("no slot is free, of %d", d.slots), Hint: "it starts when one is free"})
	}
	if len(reasons) > 0 {
		why.Claimable, why.By = false, nil
		why.Reasons = append(why.Reasons, reasons...)
	}
}

// postKill ends an agent by its host's word: who asked for it is told its end.
func (s *Spoke) postKill(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Reason  string `json:"reason"`
		GraceMS int64  `json:"grace_ms"`
	}
	err := control.Decode(r, &req)
	var v AgentView
	if err == nil {
		v, err = s.killHere(context.WithoutCancel(r.Context()), r.PathValue("id"), commands.Kill{Reason: req.Reason, GraceMS: req.GraceMS}, control.Caller(r).String())
	}
	control.Reply(w, v, err)
}

// killHere returns the agent as it was when it was to be killed.
func (s *Spoke) killHere(ctx context.Context, ref string, k commands.Kill, actor string) (AgentView, error) {
	a, err := s.backlog.Agent(ctx, ref)
	v := s.agents().view(a)
	if k.Task = a.Task; err == nil {
		err = k.Validate()
	}
	if err != nil || a.State.Terminal() {
		return v, err
	}
	run, err := s.backlog.KillHere(ctx, backlog.HostKill{ID: uuid.Must(uuid.NewV7()).String(), Task: a.Task, Reason: k.Reason, Grace: k.Grace(), Actor: actor})
	if err != nil {
		return v, err
	}
	s.Log.InfoContext(ctx, "kill ordered by the host", "id", a.Task, "by", actor)
	if run != nil {
		s.live.kill(*run)
	}
	return v, nil
}

func (s *Spoke) agents() agentDesk {
	return agentDesk{s.DB, s.backlog, s.Dir, s.lacksRoom, &s.live, s.Slots}
}

// Agents returns the agents that run here, or ran, newest first.
func (s *Spoke) Agents(ctx context.Context, t control.AgentTerms) ([]AgentView, error) {
	return s.agents().newest(ctx, t)
}

// Find returns the one of them that a person means by an id or a prefix of it.
func (s *Spoke) Find(ctx context.Context, text string) (AgentView, error) {
	a, err := s.backlog.Agent(ctx, text)
	return s.agents().view(a), err
}
