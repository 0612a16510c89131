package node

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// mostQuestions bounds a list of questions.
const mostQuestions = 1000

// ListQuestions implements [api.StrictServerInterface].
func (s resources) ListQuestions(ctx context.Context, _ api.ListQuestionsRequestObject) (api.ListQuestionsResponseObject, error) {
	var list []store.Question
	if s.n.Hub != nil {
		away, err := s.n.Hub.DB.OpenInquiries(ctx, mostQuestions)
		if err != nil {
			return nil, err
		}
		list = away
	}
	if s.obeys() {
		here, err := s.backlog.OpenQuestions(ctx, mostQuestions)
		if err != nil {
			return nil, err
		}
		list = append(list, here...)
		slices.SortStableFunc(list, func(x, y store.Question) int { return y.AskedAt.Compare(x.AskedAt) })
	}
	return api.ListQuestions200JSONResponse{Items: mapped(list, questionOf)}, nil
}

// GetQuestion implements [api.StrictServerInterface].
func (s resources) GetQuestion(ctx context.Context, r api.GetQuestionRequestObject) (api.GetQuestionResponseObject, error) {
	q, _, err := s.question(ctx, r.Question)
	return api.GetQuestion200JSONResponse{OneQuestionJSONResponse: api.OneQuestionJSONResponse(questionOf(q))}, err
}

// AnswerQuestion implements [api.StrictServerInterface].
func (s resources) AnswerQuestion(ctx context.Context, r api.AnswerQuestionRequestObject) (api.AnswerQuestionResponseObject, error) {
	q, away, err := s.question(ctx, r.Question)
	if err != nil {
		return nil, err
	}
	by := control.CallerOf(ctx).String()
	if away {
		err = s.n.Hub.Answer(ctx, q, r.Body.Answer, r.Body.Reason, by)
	} else {
		a := commands.Answer{Task: q.Task, Question: q.ID, Answer: r.Body.Answer, Reason: r.Body.Reason, By: by}
		if err = a.Validate(); err == nil {
			err = s.backlog.AnswerHere(context.WithoutCancel(ctx), a)
		}
	}
	if err == nil {
		q, _, err = s.question(ctx, q.ID)
	}
	return api.AnswerQuestion200JSONResponse{OneQuestionJSONResponse: api.OneQuestionJSONResponse(questionOf(q))}, err
}

// question is the one that a person means, and whether its agent is on a spoke of this instance.
func (s resources) question(ctx context.Context, text string) (q store.Question, away bool, err error) {
	var theirs, ours []store.Question
	if s.n.Hub != nil {
		if theirs, err = s.n.Hub.DB.InquiriesNamed(ctx, text); err != nil {
			return q, false, err
		}
	}
	if s.obeys() {
		if ours, err = s.backlog.QuestionsNamed(ctx, text); err != nil {
			return q, false, err
		}
	}
	all := slices.Concat(theirs, ours)
	switch len(all) {
	case 0:
		return q, false, commands.Refuse(commands.NotFound, "no question %q here", commands.Clip(text)).Hinting("see").Running("inbox")
	case 1:
		return all[0], len(theirs) == 1, nil
	}
	var names []string
	for _, q := range all {
		names = append(names, commands.Candidate(q.ID, q.Text, q.State))
	}
	return q, false, commands.Several(text, "questions", names)
}

func questionOf(q store.Question) api.Question {
	v := api.Question{ID: q.ID, ShortID: q.ShortID, Task: q.Task, Title: q.Title, Spoke: q.Spoke, Hub: q.Hub, Attempt: q.Attempt, Text: q.Text, Options: q.Options, Default: q.Default, Data: q.Data,
		AskedAt: q.AskedAt, Deadline: q.Deadline, State: api.QuestionState(q.State), Answer: q.Answer, Reason: q.Reason, AnsweredBy: q.AnsweredBy, AnsweredAt: when(q.AnsweredAt)}
	if s := q.Sent; s != nil {
		v.Sent = &api.SentAnswer{Answer: s.Answer, By: s.By, Reason: s.Reason, At: s.At}
	}
	return v
}

// GetTaskProgress implements [api.StrictServerInterface].
func (s resources) GetTaskProgress(ctx context.Context, r api.GetTaskProgressRequestObject) (api.GetTaskProgressResponseObject, error) {
	away, err := s.isAway(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	list := []api.TaskProgress{}
	if away {
		v, err := s.n.Hub.Agent(ctx, r.Task, 0, "")
		if err != nil {
			return nil, err
		}
		if s.n.Hub.Progress(&v); v.Progress != nil {
			list = append(list, *progressOf(v.Progress, v.Attempt))
		}
		return api.GetTaskProgress200JSONResponse{Items: list}, nil
	}
	v, err := s.desk.Agent(ctx, r.Task, 0)
	if err != nil {
		return nil, err
	}
	steps, err := s.backlog.Steps(ctx, v.Task, mostQuestions)
	for _, step := range steps {
		list = append(list, *progressOf(&commands.AgentProgress{Progress: step.Progress, At: step.At.UnixMilli()}, step.Attempt))
	}
	return api.GetTaskProgress200JSONResponse{Items: list}, err
}

// progressOf is what an agent has said of its progress; nil for nothing.
func progressOf(p *commands.AgentProgress, attempt int) *api.TaskProgress {
	if p == nil {
		return nil
	}
	return &api.TaskProgress{Attempt: attempt, Current: p.Current, Total: p.Total, Percent: p.Percent(), Unit: p.Unit, Step: p.Step, At: time.UnixMilli(p.At)}
}
