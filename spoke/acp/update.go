package acp

import (
	"context"
	"fmt"
	"slices"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

// updated takes what the agent says of its work. Kinds of updates that are not known are passed over.
func (r *run) updated(req *jsonrpc2.Request) {
	var n wire.SessionNotification
	if req.Params == nil || wire.Decode(*req.Params, &n) != nil {
		return
	}
	r.mu.Lock()
	other := r.replay || r.session != "" && n.SessionID != r.session
	r.mu.Unlock()
	if other {
		return
	}
	u := n.Update
	switch u.SessionUpdate {
	case "agent_message_chunk":
		var c wire.ContentBlock
		if wire.Decode(u.Content, &c) == nil {
			r.transcript.says(u.MessageID, c.Text)
		}
	case "tool_call", "tool_call_update":
		t := r.transcript.uses(u)
		r.desk.progress(func(p *commands.Progress) {
			if p.Total == nil || *p.Total == 0 { // else the plan says it better
				p.Step = commands.Clean(label(t.title), commands.MaxStep)
			}
		})
		said := r.transcript.last()
		r.desk.keep(func(k *kept) { k.Said = said })
	case "plan":
		r.planned(u.Entries)
	case "usage_update":
		if u.Used != nil && u.Size != nil {
			r.mu.Lock()
			r.usage = &usage{*u.Used, *u.Size, u.Cost}
			r.mu.Unlock()
		}
	}
}

// maxPlan bounds the entries of a plan that are kept.
const maxPlan = 100

// planned takes a plan: how many of its entries are done, and which one is next.
func (r *run) planned(entries []wire.PlanEntry) {
	var done int64
	var step string
	var list []string
	for _, e := range entries {
		text := label(e.Content)
		list = append(list, fmt.Sprintf("[%s] %s", label(string(e.Status)), text))
		switch {
		case e.Status == wire.PlanEntryStatusCompleted:
			done++
		case step == "" || e.Status == wire.PlanEntryStatusInProgress:
			step = text
		}
	}
	total := int64(len(entries))
	r.desk.progress(func(p *commands.Progress) {
		*p = commands.Progress{Current: &done, Total: &total, Unit: "steps", Step: commands.Clean(step, commands.MaxStep)}
	})
	r.desk.keep(func(k *kept) { k.Plan = list[:min(len(list), maxPlan)] })
	r.transcript.note("plan: %d of %d done; %s", done, total, or(step, "nothing is left"))
}

// permission decides whether the agent may use a tool: by the rules, or a person is asked.
func (r *run) permission(ctx context.Context, p wire.RequestPermissionRequest) (any, error) {
	c := p.ToolCall
	t := r.transcript.uses(wire.SessionUpdate{ToolCallID: c.ToolCallID, Kind: c.Kind, Title: c.Title, Status: c.Status})
	verdict := r.Rules.of(t.kind)
	switch {
	case r.until.Err() != nil: // the turn is cancelled
		return outcome(nil), nil
	case verdict == deny:
		r.transcript.note("denied by the rules of this host: %s", t)
		return outcome(refusing(p.Options)), nil
	case verdict == allow && allowing(p.Options) != nil:
		return outcome(allowing(p.Options)), nil
	}
	chosen := r.asks(ctx, t, p)
	if context.Cause(ctx) == errCancelled {
		return nil, errCancelled
	}
	if chosen == nil && r.until.Err() == nil {
		chosen = pick(p.Options, wire.PermissionOptionKindRejectOnce)
	}
	return outcome(chosen), nil
}

// asks asks a person which option to take; nil = nobody has said.
func (r *run) asks(ctx context.Context, t tool, p wire.RequestPermissionRequest) *wire.PermissionOption {
	q := question(t, p)
	q.DeadlineMS = r.AskFor.Milliseconds()
	if len(q.Options) == 0 {
		r.transcript.note("the agent asks and names no answers: %s", t)
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(r.until, stop)()
	answer, err := r.desk.ask(ctx, digest(t, p), q)
	if err != nil && ctx.Err() == nil {
		r.transcript.note("asking people failed, and the safe answer holds: %v", err)
	}
	if n := slices.Index(q.Options, answer); n >= 0 && r.until.Err() == nil {
		r.transcript.note("answered with %q: %s", answer, t)
		return &p.Options[n]
	}
	r.transcript.note("nobody has answered: %s", t)
	return nil
}
