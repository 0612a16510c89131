package node

import (
	"encoding/json"
	"github.com/spawnmesh/spawnmesh/commands"
	"maps"
	"slices"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// cardOf is a task of the backlog.
func cardOf(t backlog.Task) api.BacklogTask {
	return api.BacklogTask{ID: t.ID, ShortID: t.ShortID, Key: t.Key, Title: t.Title, Body: t.Body, Phase: t.Phase, Priority: t.Priority,
		Status: api.BacklogTaskStatus(t.Status), State: api.TaskState(t.State), Eligibility: string(t.Eligibility), StateReason: string(t.Reason),
		Kind: t.Kind, Lane: t.Lane, Capabilities: t.Capabilities, Account: t.Account, Estimate: amountsOf(t.Estimate),
		DependsOn: append([]string{}, t.DependsOn...), Unmet: t.Unmet, Blocks: t.Blocks, Dependents: t.Dependents, OnFailedDependency: t.OnFailedDep,
		ClaimOwner: t.Owner, ClaimedAt: t.ClaimedAt, LeaseUntil: t.LeaseUntil, Attempts: t.Attempts, Retries: t.Retries, MaxRetries: t.MaxRetries, BackoffMS: t.BackoffMS, LastError: errorOf(t.LastError),
		NotBefore: t.NotBefore, Acceptance: api.JSON(t.Acceptance), IdempotencyKey: t.IdempotencyKey, Result: api.JSON(t.Result),
		CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, StartedAt: t.StartedAt, EndedAt: t.EndedAt, ArchivedAt: t.ArchivedAt}
}

// errorOf is how an attempt failed; nil where none has.
func errorOf(e *commands.LastError) *api.TaskError {
	if e == nil {
		return nil
	}
	return &api.TaskError{Code: e.Code, Text: e.Text, Attempt: e.Attempt, At: e.At}
}

func oneCard(t backlog.Task) api.OneBacklogTaskJSONResponse {
	return api.OneBacklogTaskJSONResponse(cardOf(t))
}

func cardList(list []backlog.Task) api.BacklogTasksJSONResponse {
	return api.BacklogTasksJSONResponse{Items: mapped(list, cardOf)}
}

func amountOf(a backlog.Amount) api.Amount { return json.Number(a.String()) }

func amountsOf(m map[string]backlog.Amount) api.Amounts {
	var out api.Amounts
	for d, a := range m {
		if out == nil {
			out = api.Amounts{}
		}
		out[d] = amountOf(a)
	}
	return out
}

// unitsOf reads amounts as the document has them.
func unitsOf(m api.Amounts) (map[string]backlog.Amount, error) {
	var out map[string]backlog.Amount
	for _, d := range slices.Sorted(maps.Keys(m)) {
		a, err := backlog.ParseAmount(m[d].String())
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string]backlog.Amount{}
		}
		out[d] = a
	}
	return out, nil
}

func reasonOf(r commands.WhyReason) api.WhyReason {
	return api.WhyReason{Code: api.WhyCode(r.Code), Text: r.Text, Since: r.Since, Until: r.Until, Where: r.Where, Fix: r.Fix, Figure: r.Figure}
}

func claimerOf(c backlog.Claimer) api.Claimer {
	return api.Claimer{Owner: c.Owner, Capabilities: append([]string{}, c.Capabilities...), Lanes: c.Lanes, Seen: c.Seen}
}
