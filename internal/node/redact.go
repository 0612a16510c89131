package node

import (
	"context"
	"strings"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// seen is an agent as who asks may see it. Without its content it is what became of it, when and where: what it was
// given is gone, and so is what repeats that, which is what it wrote and the words of who refused it.
func seen(ctx context.Context, v api.Task) api.Task {
	if control.CallerOf(ctx).SeesContent() {
		return v
	}
	v.Spec, v.Result, v.Refusal, v.Kill, v.Attempts, v.KillIncomplete, v.Dir = nil, nil, nil, nil, nil, nil, ""
	v.Refusals = mapped(v.Refusals, func(r api.Refusal) api.Refusal {
		r.Why, r.Hint = "", ""
		return r
	})
	v.Receipts = mapped(v.Receipts, func(r api.Receipt) api.Receipt {
		r.Envelope = nil
		return r
	})
	return v
}

// seenRow is a row of the audit as who asks may see it: the words of who ended an agent, or of a worker, are content.
func seenRow(ctx context.Context, v api.AuditRow) api.AuditRow {
	if !control.CallerOf(ctx).SeesContent() && (v.Action == "task.kill" || v.Action == "task.kill_ordered" || strings.HasPrefix(v.Action, "worker.")) {
		v.Why = ""
	}
	return v
}

// seenCard is a task of a backlog as who asks may see it.
func seenCard(ctx context.Context, v api.BacklogTask) api.BacklogTask {
	if !control.CallerOf(ctx).SeesContent() {
		v.Body, v.Acceptance, v.Result = "", nil, nil
	}
	return v
}
