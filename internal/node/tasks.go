package node

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// How many agents one answer has.
const (
	usualTasks = 50
	mostTasks  = 10000
)

// longestWait is how long an answer waits for an end.
const longestWait = time.Minute

// askTime is how long a spoke may take to answer a question.
const askTime = 10 * time.Second

// ListTasks implements [api.StrictServerInterface]: those that this instance ordered, and those
// that run or ran here.
func (s resources) ListTasks(ctx context.Context, r api.ListTasksRequestObject) (api.ListTasksResponseObject, error) {
	t, err := termsOf(r.Params)
	if err != nil {
		return nil, err
	}
	var list []api.Task
	var awayNext, hereNext string
	if s.n.Hub != nil && (t.Hub == "" || !s.obeys()) {
		mirrors, next, err := s.n.Hub.Agents(ctx, t)
		if err != nil {
			return nil, err
		}
		list, awayNext = append(list, mapped(mirrors, orderedOf)...), next
	}
	if s.obeys() && (t.Spoke == "" || s.n.Hub == nil) {
		here, next, err := s.desk.Agents(ctx, t)
		if err != nil {
			return nil, err
		}
		list, hereNext = append(list, mapped(here, hostedOf)...), next
	}
	list, next := pageOf(list, t.Limit, max(awayNext, hereNext))
	page := api.TaskList{Items: mapped(list, func(v api.Task) api.Task { return seen(ctx, v) })}
	if next != "" {
		page.Next = cursorOf(next)
	}
	return api.ListTasks200JSONResponse(page), nil
}

func termsOf(p api.ListTasksParams) (t control.AgentTerms, err error) {
	t = control.AgentTerms{Spoke: p.Spoke, Hub: p.Hub, Open: p.Open, Archived: p.Archived}
	if t.Limit, err = limitOf(p.Limit, usualTasks, mostTasks); err != nil {
		return t, err
	}
	if t.Labels, err = commands.ParseSelector(p.Labels); err == nil {
		t.Before, err = idOf(p.Cursor)
	}
	return t, err
}

// pageOf is what two lists together have down to the id at which the first of them goes on, and at most
// limit of it; and where both go on. Ids order the pages, and times what is in one.
func pageOf(list []api.Task, limit int, next string) ([]api.Task, string) {
	list = slices.DeleteFunc(list, func(v api.Task) bool { return v.ID < next })
	slices.SortFunc(list, func(x, y api.Task) int { return strings.Compare(y.ID, x.ID) })
	if len(list) > limit {
		list, next = list[:limit], list[limit-1].ID
	}
	slices.SortStableFunc(list, func(x, y api.Task) int { return y.CreatedAt.Compare(x.CreatedAt) })
	return list, next
}

// CreateTask implements [api.StrictServerInterface].
func (s resources) CreateTask(ctx context.Context, r api.CreateTaskRequestObject) (api.CreateTaskResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	if r.Body.IdempotencyKey, err = keyOf(r.Params.IdempotencyKey, r.Body.IdempotencyKey); err != nil {
		return nil, err
	}
	v, err := h.Spawn(ctx, hub.RequestOf(*r.Body), control.CallerOf(ctx).String())
	return api.CreateTask200JSONResponse{ID: v.ID, ShortID: v.ShortID, Spoke: v.Spoke, Existing: v.Existing, Note: v.Note}, err
}

// keyOf is the idempotency key of what is to be created, by the header, the body or both.
func keyOf(header, body string) (string, error) {
	if header != "" && body != "" && header != body {
		return "", commands.Refuse(commands.Validation, "the header Idempotency-Key and the field idempotency_key differ").Hinting("give one of them")
	}
	return cmp.Or(header, body), nil
}

// GetTask implements [api.StrictServerInterface].
func (s resources) GetTask(ctx context.Context, r api.GetTaskRequestObject) (api.GetTaskResponseObject, error) {
	wait, err := waitOf(r.Params.Wait)
	if err != nil {
		return nil, err
	}
	away, err := s.isAway(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	if !away {
		v, err := s.desk.Agent(ctx, r.Task, wait)
		return api.GetTask200JSONResponse{OneTaskJSONResponse: api.OneTaskJSONResponse(seen(ctx, hostedOf(v)))}, err
	}
	v, err := s.n.Hub.Agent(ctx, r.Task, wait, r.Params.Since)
	s.n.Hub.Observe(&v)
	if err == nil {
		err = s.n.Hub.InLine(ctx, &v)
	}
	if err == nil {
		err = s.n.Hub.Cancelling(ctx, &v)
	}
	if err == nil && r.Params.Receipts {
		err = s.n.Hub.Received(ctx, &v)
	}
	return api.GetTask200JSONResponse{OneTaskJSONResponse: api.OneTaskJSONResponse(seen(ctx, orderedOf(v)))}, err
}

func waitOf(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, commands.Refuse(commands.Validation, "wait is a time such as 30s, not %q", commands.Clip(text))
	}
	return min(d, longestWait), nil
}

// KillTask implements [api.StrictServerInterface].
func (s resources) KillTask(ctx context.Context, r api.KillTaskRequestObject) (api.KillTaskResponseObject, error) {
	v, err := s.endTask(ctx, r.Task, commands.Kill{Reason: r.Body.Reason, GraceMS: r.Body.GraceMS})
	return api.KillTask200JSONResponse{OneTaskJSONResponse: v}, err
}

// CancelTask implements [api.StrictServerInterface].
func (s resources) CancelTask(ctx context.Context, r api.CancelTaskRequestObject) (api.CancelTaskResponseObject, error) {
	k := commands.Kill{Reason: r.Body.Reason, GraceMS: r.Body.WaitMS, Cancel: commands.CancelNow}
	if r.Body.Graceful && r.Body.WaitMS > 0 {
		return nil, commands.Refuse(commands.Validation, "graceful lets what runs finish, and wait_ms ends it").Hinting("give one or the other")
	}
	if r.Body.Graceful {
		k.Cancel = commands.CancelAfter
	}
	v, err := s.endTask(ctx, r.Task, k)
	return api.CancelTask200JSONResponse{OneTaskJSONResponse: v}, err
}

// endTask kills or cancels an agent.
func (s resources) endTask(ctx context.Context, text string, k commands.Kill) (api.OneTaskJSONResponse, error) {
	return s.whereItIs(ctx, text,
		func(here *spoke.Spoke, actor string) (spoke.AgentView, error) { return here.Kill(ctx, text, k, actor) },
		func(h *hub.Hub, actor string) (api.Task, error) {
			killed, err := h.Kill(ctx, text, k, actor)
			v := taskOf(killed.Mirror)
			v.KillOrdered = &killed.Ordered
			return v, err
		})
}

// whereItIs has an agent changed where it runs, or where it was ordered.
func (s resources) whereItIs(ctx context.Context, text string, here func(*spoke.Spoke, string) (spoke.AgentView, error), away func(*hub.Hub, string) (api.Task, error)) (api.OneTaskJSONResponse, error) {
	isAway, err := s.isAway(ctx, text)
	if err != nil {
		return api.OneTaskJSONResponse{}, err
	}
	actor := control.CallerOf(ctx).String()
	if isAway {
		v, err := away(s.n.Hub, actor)
		return api.OneTaskJSONResponse(v), err
	}
	host, err := s.spoke()
	if err != nil {
		return api.OneTaskJSONResponse{}, err
	}
	v, err := here(host, actor)
	return api.OneTaskJSONResponse(hostedOf(v)), err
}

// PauseTask implements [api.StrictServerInterface].
func (s resources) PauseTask(ctx context.Context, r api.PauseTaskRequestObject) (api.PauseTaskResponseObject, error) {
	v, err := s.pauseTask(ctx, r.Task, commands.Pause{Paused: true, Reason: r.Body.Reason})
	return api.PauseTask200JSONResponse{OneTaskJSONResponse: v}, err
}

// ResumeTask implements [api.StrictServerInterface].
func (s resources) ResumeTask(ctx context.Context, r api.ResumeTaskRequestObject) (api.ResumeTaskResponseObject, error) {
	v, err := s.pauseTask(ctx, r.Task, commands.Pause{Reason: r.Body.Reason})
	return api.ResumeTask200JSONResponse{OneTaskJSONResponse: v}, err
}

// pauseTask pauses an agent, or lets it go on.
func (s resources) pauseTask(ctx context.Context, text string, p commands.Pause) (api.OneTaskJSONResponse, error) {
	return s.whereItIs(ctx, text,
		func(here *spoke.Spoke, actor string) (spoke.AgentView, error) { return here.Pause(ctx, text, p, actor) },
		func(h *hub.Hub, actor string) (api.Task, error) {
			v, err := h.Pause(ctx, text, p, actor)
			return orderedOf(v), err
		})
}

// ReviewTask implements [api.StrictServerInterface].
func (s resources) ReviewTask(ctx context.Context, r api.ReviewTaskRequestObject) (api.ReviewTaskResponseObject, error) {
	h, err := s.ordered(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	caller := control.CallerOf(ctx)
	w := hub.ReviewWord{Review: commands.Review{Attempt: r.Body.Attempt, Verdict: string(r.Body.Verdict), Message: r.Body.Message}, Own: caller.IsOwner()}
	v, err := h.Review(ctx, r.Task, w, caller.String())
	return api.ReviewTask200JSONResponse{OneTaskJSONResponse: api.OneTaskJSONResponse(orderedOf(v))}, err
}

// RetryTask implements [api.StrictServerInterface].
func (s resources) RetryTask(ctx context.Context, r api.RetryTaskRequestObject) (api.RetryTaskResponseObject, error) {
	h, err := s.ordered(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	v, err := h.Retry(ctx, r.Task, control.CallerOf(ctx).String())
	return api.RetryTask200JSONResponse{ID: v.ID, ShortID: v.ShortID, Spoke: v.Spoke, Existing: v.Existing}, err
}

// AskTask implements [api.StrictServerInterface].
func (s resources) AskTask(ctx context.Context, r api.AskTaskRequestObject) (api.AskTaskResponseObject, error) {
	h, err := s.ordered(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	ctx, done := context.WithTimeout(ctx, askTime)
	defer done()
	v, err := h.AskStatus(ctx, r.Task, control.CallerOf(ctx).String())
	if err != nil {
		return nil, err
	}
	return api.AskTask200JSONResponse{Task: v.Task, State: api.TaskState(v.State), Reason: string(v.Reason), Attempt: v.Attempt, At: v.At, Reasons: mapped(v.Said(""), reasonOf)}, nil
}

// ExplainTask implements [api.StrictServerInterface].
func (s resources) ExplainTask(ctx context.Context, r api.ExplainTaskRequestObject) (api.ExplainTaskResponseObject, error) {
	ask, err := waitOf(r.Params.Ask)
	if err != nil {
		return nil, err
	}
	away, err := s.isAway(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	caller := control.CallerOf(ctx)
	if away {
		q := hub.WhyRequest{Agent: r.Task, Ask: min(ask, askTime), Actor: caller.String(), Brief: !caller.SeesContent()}
		v, list, err := s.n.Hub.Explain(ctx, q)
		return api.ExplainTask200JSONResponse{ID: v.Task, Title: v.Title, State: api.TaskState(v.State), StateReason: string(v.Reason), Since: v.Since(), Reasons: mapped(list, reasonOf)}, err
	}
	w, err := s.whyHere(ctx, r.Task, caller)
	return api.ExplainTask200JSONResponse(whyOf(w)), err
}

// whyHere says why an agent of this host is where it is.
func (s resources) whyHere(ctx context.Context, text string, caller control.Principal) (backlog.Why, error) {
	w, err := s.desk.Why(ctx, text, caller.String(), !caller.SeesContent())
	if err != nil {
		return w, err
	}
	a, err := s.desk.Agent(ctx, w.Task.ID, 0)
	if err != nil {
		return w, err
	}
	v := hub.AgentView{Mirror: a.Mirror, ExitCode: a.ExitCode, Verdict: a.Verdict, Overrun: a.Overrun, OverrunSince: a.OverrunSince, OverrunUntil: a.OverrunUntil}
	w.Reasons = hub.WhyHere(v, hub.Host{Hub: a.Hub, Runs: s.desk.Runs(), Lease: w.Task.LeaseUntil, Reasons: w.Reasons, Brief: !caller.SeesContent()})
	return w, nil
}

// GetTaskLogs implements [api.StrictServerInterface].
func (s resources) GetTaskLogs(ctx context.Context, r api.GetTaskLogsRequestObject) (api.GetTaskLogsResponseObject, error) {
	h, err := s.ordered(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	m, err := h.Find(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	return logStream{ctx, h, m.Task, max(r.Params.After, r.Params.LastEventID), r.Params.Follow}, nil
}

// ordered is the hub of this instance, where the agent is one that it ordered.
func (s resources) ordered(ctx context.Context, text string) (*hub.Hub, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	away, err := s.isAway(ctx, text)
	if err == nil && !away {
		err = commands.Refuse(commands.Validation, "agent %s runs here, by order of a hub: this is asked of spokes", text)
	}
	return h, err
}
