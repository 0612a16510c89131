package spoke

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Answer tells those who asked for tasks what has become of them: receipts and
// results go out with the transaction that moved the tasks. Every program that
// opens the backlog of an instance passes it to [backlog.Open].
func Answer(_ context.Context, tx *store.Tx, facts []backlog.Moved) error {
	for _, m := range facts {
		if body := news(m); body != nil {
			tx.Send(store.Draft{Conn: m.Conn, Body: body,
				Re: &signing.Ref{ID: m.Asked.Command, SHA256: m.Asked.Digest, Attempt: m.Attempt, Fence: m.Epoch}})
		}
		for _, k := range m.Kills {
			tx.Send(store.Draft{Conn: m.Conn, Body: killed(m),
				Re: &signing.Ref{ID: k.Command, SHA256: k.Digest}})
		}
	}
	return nil
}

// news is what the asker of a task is told; nil for
// nothing.
func news(m backlog.Moved) commands.Body {
	switch {
	case m.Before:
		return nil
	case m.Stands:
		return &commands.TaskState{Task: m.Task, State: m.State, Reason: m.Reason, Attempt: m.Attempt, At: m.At, Next: m.Next}
	case m.Question != nil:
		return m.Question
	case m.Answered != nil:
		return m.Answered
	case m.State.Terminal():
		return m.Result()
	case m.Delivers() != nil:
		return m.Result()
	case m.Start != nil:
		return &commands.Started{Task: m.Task, Attempt: m.Attempt, Pid: m.Start.Pid, Policy: m.Start.Policy, Isolation: m.Start.Isolation, At: m.At}
	case m.End != nil:
		return &commands.Ended{Task: m.Task, Attempt: m.Attempt, Outcome: m.End.Outcome, State: m.State, Reason: m.Reason, Exit: m.End.Exit, At: m.At, Next: m.Next}
	}
	return nil // a loss without evidence: the next attempt tells, or the result
}

func killed(m backlog.Moved) *commands.Killed {
	k := &commands.Killed{Task: m.Task, State: m.State, Reason: m.Reason, At: m.At}
	if m.End != nil {
		k.Reaped, k.Survivors = m.End.Reaped, m.End.Survivors
	}
	return k
}
