package node

import (
	"context"
	"encoding/json"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store"
)

// GetTaskResult implements [api.StrictServerInterface].
func (s resources) GetTaskResult(ctx context.Context, r api.GetTaskResultRequestObject) (api.GetTaskResultResponseObject, error) {
	away, err := s.isAway(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	v, from, err := s.endOfTask(ctx, r.Task, away)
	if err != nil {
		return nil, err
	}
	out := resultOf(ctx, v)
	if out.ResultState == api.TaskResultResultStateReady {
		out.Provenance = provenanceOf(from, v, away)
	}
	return api.GetTaskResult200JSONResponse(out), nil
}

// endOfTask is an agent where it was ordered or where it runs, and what its result comes from.
func (s resources) endOfTask(ctx context.Context, text string, away bool) (v api.Task, from store.Provenance, err error) {
	if away {
		a, err := s.n.Hub.Agent(ctx, text, 0, "")
		if err == nil {
			from, err = s.n.Hub.DB.ProvenanceOf(ctx, a.Conn, a.Command)
		}
		return orderedOf(a), from, err
	}
	a, err := s.desk.Agent(ctx, text, 0)
	if err == nil {
		from, err = s.desk.Provenance(ctx, a)
	}
	return hostedOf(a), from, err
}

// resultOf is the end of a task as who asks may see it, or how it stands while there is none.
func resultOf(ctx context.Context, v api.Task) api.TaskResult {
	v = seen(ctx, v)
	out := api.TaskResult{ID: v.ID, ShortID: v.ShortID, ResultState: api.TaskResultResultStateNotReady, State: v.State, StateReason: v.StateReason, Attempt: v.Attempt, RetryOf: v.RetryOf, RetriedAs: v.RetriedAs}
	if state := commands.State(v.State); !state.Terminal() && state != commands.InReview && state != commands.Approved {
		return out
	}
	out.ResultState, out.ExitCode, out.CompletedAt = api.TaskResultResultStateReady, v.ExitCode, v.EndedAt
	out.Refusals = v.Refusals
	if r, ok := commands.ReadResult(v.Result); ok { // else it was refused, or its hub has ended it, or who asks does not see it
		out.Outcome, out.Summary = string(r.Outcome), r.Summary
		out.Exit, _ = json.Marshal(r.Exit)
		out.Reported, out.Data, out.Artifacts = reportOf(r.Reported), r.Data, mapped(r.Artifacts, artifactOf)
		out.Bundle, out.Kept = bundleOf(r.Bundle), r.Kept
		if r.Bundle != nil {
			out.Origin = originOf(v.Spec)
		}
	}
	return out
}

func reportOf(r *commands.Report) (out api.AgentReport) {
	if r != nil {
		out = api.AgentReport{As: api.AgentReportAs(r.As), Text: r.Text, Cut: r.Cut, Final: r.Final}
	}
	return out
}

func bundleOf(b *commands.Bundle) (out api.Bundle) {
	if b != nil {
		out = api.Bundle{Digest: b.Digest, Size: b.Size, Base: b.Base, Tip: b.Tip, Commits: b.Commits, Left: b.Left}
	}
	return out
}

// originOf is the commit that what an agent leaves has to build on, as its order says.
func originOf(order json.RawMessage) string {
	var s commands.Spawn
	_ = json.Unmarshal(order, &s) // what is no order has no working tree
	if in := s.Tree(); in != nil {
		return in.Base()
	}
	return ""
}

func artifactOf(f commands.Artifact) api.Artifact {
	return api.Artifact{Name: f.Name, Path: f.Path, Size: f.Size, Sha256: f.SHA256}
}

// provenanceOf says who has signed what of a result.
func provenanceOf(p store.Provenance, v api.Task, away bool) api.Provenance {
	out := api.Provenance{Hub: string(p.Self), Spoke: string(p.Peer), Conn: v.Conn, Attempt: v.Attempt, Order: messageOf(p.Order), Result: messageOf(p.Result)}
	if !away {
		out.Hub, out.Spoke = out.Spoke, out.Hub
	}
	return out
}

func messageOf(m *store.SignedMessage) (out api.SignedMessage) {
	if m != nil {
		out = api.SignedMessage{ID: m.ID, Kind: m.Kind, Sha256: m.SHA256, Key: string(m.Key), SignedAt: when(m.Signed)}
	}
	return out
}
