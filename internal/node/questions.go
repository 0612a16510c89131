package node

import (
	"context"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// ListQuestions implements [api.StrictServerInterface].
func (s resources) ListQuestions(ctx context.Context, r api.ListQuestionsRequestObject) (api.ListQuestionsResponseObject, error) {
	page, err := questionsAsked(r.Params)
	if err != nil {
		return nil, err
	}
	var list []store.Question
	if r.Params.Task != "" {
		list, err = s.questionsOf(ctx, r.Params.Task)
	} else {
		list, err = s.openQuestions(ctx, page)
	}
	if err != nil {
		return nil, err
	}
	list, next := pageAmong(list, page)
	return api.ListQuestions200JSONResponse{Items: mapped(list, func(q store.Question) api.Question { return questionOf(brief(q)) }), Next: next}, nil
}

// openQuestions are those that a page of all that wait for an answer may have, and at least one more where there is one.
func (s resources) openQuestions(ctx context.Context, page store.QuestionPage) (list []store.Question, err error) {
	page.Limit++
	if s.n.Hub != nil {
		if list, err = s.n.Hub.DB.OpenInquiries(ctx, page); err != nil {
			return nil, err
		}
	}
	if !s.obeys() {
		return list, nil
	}
	here, err := s.backlog.OpenQuestions(ctx, page)
	return append(list, here...), err
}

// questionsOf are those of one agent; none for "", or where no such agent is known.
func (s resources) questionsOf(ctx context.Context, task string) (list []store.Question, err error) {
	if !signing.ValidUUID(task) {
		return nil, nil
	}
	if s.n.Hub != nil {
		if list, err = s.n.Hub.DB.Inquiries(ctx, task); err != nil {
			return nil, err
		}
	}
	if !s.obeys() {
		return list, nil
	}
	here, err := s.backlog.Questions(ctx, task)
	return append(list, here...), err
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
		AskedAt: q.AskedAt, Deadline: q.Deadline, State: api.QuestionState(q.State), Answer: q.Answer, Reason: q.Reason, AnsweredBy: q.AnsweredBy, AnsweredAt: when(q.AnsweredAt), Differs: q.Differs()}
	if s := q.Sent; s != nil {
		v.Sent = &api.SentAnswer{Answer: s.Answer, By: s.By, Reason: s.Reason, At: s.At}
	}
	return v
}
