package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// taskFrom is a task of the backlog as an instance has answered with it.
func taskFrom(t api.BacklogTask) backlog.Task {
	return backlog.Task{ID: t.ID, ShortID: t.ShortID, Key: t.Key, Title: t.Title, Body: t.Body, Phase: t.Phase, Priority: t.Priority,
		Status: backlog.BoardStatus(t.Status), State: commands.State(t.State), Eligibility: backlog.Eligibility(t.Eligibility), Reason: commands.Reason(t.StateReason),
		Kind: t.Kind, Lane: t.Lane, Capabilities: t.Capabilities, Account: t.Account, Estimate: amountsFrom(t.Estimate),
		DependsOn: t.DependsOn, Unmet: t.Unmet, Blocks: t.Blocks, Dependents: t.Dependents, OnFailedDep: t.OnFailedDependency,
		Owner: t.ClaimOwner, ClaimedAt: t.ClaimedAt, LeaseUntil: t.LeaseUntil, Attempts: t.Attempts, Retries: t.Retries, MaxRetries: t.MaxRetries, BackoffMS: t.BackoffMS, LastError: errorFrom(t.LastError),
		NotBefore: t.NotBefore, Acceptance: json.RawMessage(t.Acceptance), IdempotencyKey: t.IdempotencyKey, Result: json.RawMessage(t.Result),
		CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, StartedAt: t.StartedAt, EndedAt: t.EndedAt, ArchivedAt: t.ArchivedAt}
}

func errorFrom(e *api.TaskError) *commands.LastError {
	if e == nil {
		return nil
	}
	return &commands.LastError{Code: e.Code, Text: e.Text, Attempt: e.Attempt, At: e.At}
}

// each is one of a list after the other.
func each[From, To any](list []From, one func(From) To) (out []To) {
	for _, v := range list {
		out = append(out, one(v))
	}
	return out
}

// amountFrom reads what [backlog.Amount.String] wrote, also below 0.
func amountFrom(n api.Amount) backlog.Amount {
	whole, part, _ := strings.Cut(n.String(), ".")
	millionths, _ := strconv.ParseInt(whole+(part + "000000")[:6], 10, 64)
	return backlog.Amount(millionths)
}

func amountsFrom(m api.Amounts) map[string]backlog.Amount {
	var out map[string]backlog.Amount
	for d, n := range m {
		if out == nil {
			out = map[string]backlog.Amount{}
		}
		out[d] = amountFrom(n)
	}
	return out
}

func statsFrom(s api.BacklogStats) backlog.Stats {
	v := backlog.Stats{Status: map[backlog.BoardStatus]int64{}, Unsuccessful: s.Unsuccessful, States: map[commands.State]int64{}, Claimable: s.Claimable,
		OldestReady: s.OldestReadyAt, OldestAge: s.OldestReadyAgeSeconds, ExpiredClaims: s.ExpiredClaims, Now: s.Now}
	for status, n := range s.Status {
		v.Status[backlog.BoardStatus(status)] = n
	}
	for state, n := range s.States {
		v.States[commands.State(state)] = n
	}
	return v
}

func whyFrom(w api.BacklogWhy) backlog.Why {
	v := backlog.Why{Task: taskFrom(w.Task), Claimable: w.Claimable, Reasons: []commands.WhyReason{}, By: []backlog.Claimer{}}
	v.Reasons, v.By = append(v.Reasons, each(w.Reasons, reasonFrom)...), append(v.By, each(w.By, claimerFrom)...)
	return v
}

func reasonFrom(r api.WhyReason) commands.WhyReason {
	return commands.WhyReason{Code: commands.Cause(r.Code), Text: r.Text, Since: r.Since, Until: r.Until, Where: r.Where, Fix: r.Fix, Figure: r.Figure}
}

func claimerFrom(c api.Claimer) backlog.Claimer {
	return backlog.Claimer{Owner: c.Owner, Capabilities: c.Capabilities, Lanes: c.Lanes, Seen: c.Seen}
}

func claimFrom(t api.BacklogTask) claim {
	c := claim{Task: taskFrom(t), Fence: t.Fence, Epoch: t.Epoch, Type: t.Type, Grant: t.Grant}
	if t.Until != nil {
		c.Until = *t.Until
	}
	return c
}
