package node

import (
	"encoding/json"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// taskOf is an agent as both sides know it.
func taskOf(m store.Mirror) api.Task {
	return api.Task{ID: m.Task, ShortID: m.ShortID, Spoke: m.Spoke, Conn: m.Conn, ConnState: api.ConnectionState(m.ConnState), Title: m.Title, Priority: m.Priority,
		State: api.TaskState(m.State), StateReason: string(m.Reason), Refusal: m.Refusal, Refusals: mapped(m.Refusals, refusalOf), Attempt: m.Attempt,
		CreatedBy: m.CreatedBy, Schedule: m.Schedule, RetryOf: m.RetryOf, RetriedAs: m.RetriedAs, Command: m.Command, Spec: m.Spec, Labels: api.Labels(m.Labels), Result: m.Result, Kill: m.Kill, RefusedKill: m.RefusedKill, Pause: m.Pause, Review: m.Review, Policy: m.Policy, Isolation: m.Isolation,
		ExpiresAt: m.ExpiresAt, CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt, Attempts: mapped(m.Attempts, endOf),
		LastError: errorOf(m.Failure()), AcceptedAt: when(m.AcceptedAt), StartedAt: when(m.StartedAt), EndedAt: when(m.EndedAt),
		AcceptedToldAt: when(m.AcceptedTold), StartedToldAt: when(m.StartedTold), EndedToldAt: when(m.EndedTold), ArchivedAt: when(m.ArchivedAt), Unheard: m.Unheard}
}

// orderedOf is an agent as its hub knows it.
func orderedOf(a hub.AgentView) api.Task {
	v := taskOf(a.Mirror)
	v.ExitCode, v.Receipts, v.Output, v.Before = a.ExitCode, mapped(a.Receipts, receiptOf), mapped(a.Output, outputOf), a.Before
	v.ProtocolCancel = api.TaskProtocolCancel(a.ProtocolCancel)
	v.Progress = progressOf(a.Progress, a.Attempt)
	v.Verdict, v.MemoryBytes, v.CPUMS, v.Overrun = verdictOf(a.Verdict), a.Memory, a.CPUMS, a.Overrun
	return v
}

// verdictOf is what an agent is at; nil where it has not begun, or has ended.
func verdictOf(v *commands.Verdict) *api.TaskVerdict {
	if v == nil {
		return nil
	}
	return &api.TaskVerdict{Word: api.TaskVerdictWord(v.Word), Evidence: v.Evidence}
}

// hostedOf is an agent as the host knows it where it runs.
func hostedOf(a spoke.AgentView) api.Task {
	v := taskOf(a.Mirror)
	v.Hub, v.Dir, v.ExitCode = a.Hub, a.Dir, a.ExitCode
	v.Session, v.SessionState = a.Session, string(a.SessionState)
	v.Progress = progressOf(a.Progress, a.Attempt)
	v.Verdict, v.MemoryBytes, v.CPUMS, v.Overrun = verdictOf(a.Verdict), a.Memory, a.CPU.Milliseconds(), a.Overrun
	v.OverrunSince, v.OverrunUntil = when(a.OverrunSince), when(a.OverrunUntil)
	v.KillIncomplete = mapped(a.KillIncomplete, func(p supervisor.Survivor) api.Survivor {
		return api.Survivor{Pid: p.Pid, Command: p.Command, State: p.State, Wchan: p.Wchan}
	})
	v.RefusedReports = mapped(a.RefusedReports, func(r store.RefusedReport) api.RefusedReport {
		return api.RefusedReport{Kind: r.Kind, Seq: r.Seq, Code: r.Code, Hub: r.Hub, At: r.At}
	})
	return v
}

func refusalOf(r store.Refusal) api.Refusal {
	return api.Refusal{Conn: r.Conn, Spoke: r.Spoke, Code: string(r.Code), Why: r.Why, Hint: r.Hint, Policy: r.Policy, At: r.At}
}

// endOf is the end of an attempt as it was signed.
func endOf(e commands.Ended) json.RawMessage {
	raw, _ := json.Marshal(e) // it was read from JSON
	return raw
}

func receiptOf(r store.ReceiptRow) api.Receipt {
	return api.Receipt{Spoke: r.Spoke, Kind: r.Kind, Answers: r.Answers, Seq: r.Seq, ReceivedAt: r.At, Code: r.Code, Late: r.Late, Envelope: r.Envelope}
}

func outputOf(s store.LogStream) api.OutputStream {
	v := api.OutputStream{Attempt: s.Attempt, Stream: api.OutputStreamStream(s.Stream), Bytes: s.Through, Dropped: s.Dropped}
	if s.Ended != nil {
		v.Ended = &api.OutputEnd{Cut: s.Ended.Cut, Gaps: mapped(s.Ended.Gaps, func(g commands.Gap) api.Gap { return api.Gap{From: g.From, To: g.To, At: g.At} })}
	}
	return v
}

func whyOf(w backlog.Why) api.TaskWhy {
	return api.TaskWhy{ID: w.Task.ID, Title: w.Task.Title, State: api.TaskState(w.Task.State), StateReason: string(w.Task.Reason), Since: w.Since(), LeaseUntil: when(w.Task.LeaseUntil), Claimable: w.Claimable,
		Reasons: mapped(w.Reasons, reasonOf), By: mapped(w.By, claimerOf)}
}
