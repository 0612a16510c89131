package node

import (
	"context"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// seen is an agent as who asks may see it. Without its content it is what became of it, when and where: what it was
// given is gone, and so is what repeats that, which is what it wrote and the words of who refused it. Only what is
// named here is shown: a new field is hidden until somebody has decided otherwise.
func seen(ctx context.Context, v api.Task) api.Task {
	if control.CallerOf(ctx).SeesContent() {
		return v
	}
	return api.Task{ID: v.ID, ShortID: v.ShortID, Spoke: v.Spoke, Hub: v.Hub, Conn: v.Conn, ConnState: v.ConnState, Title: v.Title, Labels: v.Labels, Priority: v.Priority,
		State: v.State, StateReason: v.StateReason, Refusals: mapped(v.Refusals, seenRefusal), RefusedReports: v.RefusedReports, Attempt: v.Attempt, ExitCode: v.ExitCode,
		CreatedBy: v.CreatedBy, Command: v.Command, Schedule: v.Schedule, RetryOf: v.RetryOf, RetriedAs: v.RetriedAs, ProtocolCancel: v.ProtocolCancel, Policy: v.Policy, Isolation: v.Isolation, Receipts: mapped(v.Receipts, seenReceipt), Output: v.Output, KillOrdered: v.KillOrdered,
		ExpiresAt: v.ExpiresAt, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt, AcceptedAt: v.AcceptedAt, StartedAt: v.StartedAt, EndedAt: v.EndedAt,
		AcceptedToldAt: v.AcceptedToldAt, StartedToldAt: v.StartedToldAt, EndedToldAt: v.EndedToldAt, ArchivedAt: v.ArchivedAt, Before: v.Before,
		Verdict: v.Verdict, MemoryBytes: v.MemoryBytes, CPUMS: v.CPUMS, Overrun: v.Overrun, OverrunSince: v.OverrunSince, OverrunUntil: v.OverrunUntil, SessionState: v.SessionState, Unheard: v.Unheard}
}

func seenRefusal(r api.Refusal) api.Refusal {
	return api.Refusal{Conn: r.Conn, Spoke: r.Spoke, Code: r.Code, Policy: r.Policy, At: r.At}
}

func seenReceipt(r api.Receipt) api.Receipt {
	return api.Receipt{Spoke: r.Spoke, Kind: r.Kind, Answers: r.Answers, Seq: r.Seq, ReceivedAt: r.ReceivedAt, Code: r.Code, Late: r.Late}
}

// seenSchedule is a schedule as who asks may see it. It shows no more than is named here, as [seen].
func seenSchedule(ctx context.Context, v api.Schedule) api.Schedule {
	if control.CallerOf(ctx).SeesContent() {
		return v
	}
	return api.Schedule{ID: v.ID, Name: v.Name, Cron: v.Cron, Zone: v.Zone, Overlap: v.Overlap, State: v.State, Why: v.Why, Restored: v.Restored, PausedBy: v.PausedBy, PausedAt: v.PausedAt, OrdersNothing: v.OrdersNothing, Next: v.Next, LastFiredAt: v.LastFiredAt, LastTask: v.LastTask, LastTaskStands: v.LastTaskStands,
		Outcome: v.Outcome, OutcomeCode: v.OutcomeCode, OutcomeSince: v.OutcomeSince, Spoke: v.Spoke, Any: v.Any, ExpiresInMS: v.ExpiresInMS, Labels: v.Labels, Title: v.Title, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt}
}

// seenFire is what became of a schedule, as who asks may see it: the words of a refusal may repeat the order.
func seenFire(ctx context.Context, v api.Fire) api.Fire {
	if control.CallerOf(ctx).SeesContent() {
		return v
	}
	return api.Fire{Seq: v.Seq, DueAt: v.DueAt, At: v.At, Outcome: v.Outcome, Missed: v.Missed, Task: v.Task, TaskStands: v.TaskStands, Code: v.Code, Actor: v.Actor}
}

// openWhys begin the actions whose words are about the instance, its peers and its limits. The words about agents, tasks
// and messages may repeat what those have in them.
var openWhys = []string{"connection", "peer", "key", "keys", "grant_key", "stream", "join", "invite", "token", "retention", "budget", "quota", "lane", "freeze", "unfreeze"}

// seenRow is a row of the audit as who asks may see it.
func seenRow(ctx context.Context, v api.AuditRow) api.AuditRow {
	if control.CallerOf(ctx).SeesContent() {
		return v
	}
	row := api.AuditRow{Seq: v.Seq, At: v.At, Actor: v.Actor, Action: v.Action, Object: v.Object, Code: v.Code, Conn: v.Conn, Message: v.Message}
	if about, _, _ := strings.Cut(v.Action, "."); slices.Contains(openWhys, about) {
		row.Why = v.Why
	}
	return row
}

// seenCard is a task of a backlog as who asks may see it. It shows no more than is named here, as [seen].
func seenCard(ctx context.Context, v api.BacklogTask) api.BacklogTask {
	if control.CallerOf(ctx).SeesContent() {
		return v
	}
	return api.BacklogTask{ID: v.ID, ShortID: v.ShortID, Key: v.Key, Title: v.Title, Phase: v.Phase, Priority: v.Priority, Status: v.Status, State: v.State, Eligibility: v.Eligibility,
		StateReason: v.StateReason, Kind: v.Kind, Lane: v.Lane, Capabilities: v.Capabilities, Account: v.Account, Estimate: v.Estimate, DependsOn: v.DependsOn, Unmet: v.Unmet,
		Blocks: v.Blocks, Dependents: v.Dependents, OnFailedDependency: v.OnFailedDependency, ClaimOwner: v.ClaimOwner, ClaimedAt: v.ClaimedAt, LeaseUntil: v.LeaseUntil, Attempts: v.Attempts, Retries: v.Retries, MaxRetries: v.MaxRetries, BackoffMS: v.BackoffMS,
		NotBefore: v.NotBefore, IdempotencyKey: v.IdempotencyKey, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt, StartedAt: v.StartedAt, EndedAt: v.EndedAt,
		ArchivedAt: v.ArchivedAt}
}
