package acp

import (
	"context"
	"errors"
	"fmt"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

func problem(code int64, format string, args ...any) error {
	return &jsonrpc2.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return problem(jsonrpc2.CodeInvalidParams, format, args...)
}

// Handle takes what the agent sends. Updates are taken in their order; requests are answered beside each other.
func (r *run) Handle(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	if req.Notif {
		switch req.Method {
		case wire.SessionUpdated:
			r.updated(req)
		case wire.CancelRequest:
			r.cancelled(req)
		}
		return
	}
	select {
	case r.slots <- struct{}{}:
	default:
		_ = conn.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError, Message: fmt.Sprintf("%d requests are under way already", maxRequests)})
		return
	}
	work, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	r.asked[req.ID] = cancel
	r.mu.Unlock()
	go func() {
		defer func() {
			r.mu.Lock()
			delete(r.asked, req.ID)
			r.mu.Unlock()
			cancel(nil)
			<-r.slots
		}()
		result, err := r.answer(work, req)
		if err != nil && context.Cause(work) == errCancelled {
			err = errCancelled
		}
		if err == nil {
			_ = conn.Reply(ctx, req.ID, result)
			return
		}
		said, ok := errors.AsType[*jsonrpc2.Error](err)
		if !ok {
			said = &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError, Message: err.Error()}
		}
		_ = conn.ReplyWithError(ctx, req.ID, said)
	}()
}

// errCancelled is the end of a request that the agent has cancelled.
var errCancelled = problem(wire.Cancelled, "the request was cancelled")

// cancelled ends a request whose answer the agent does not want any more.
func (r *run) cancelled(req *jsonrpc2.Request) {
	var p struct {
		RequestID jsonrpc2.ID `json:"requestId"`
	}
	if req.Params == nil || wire.Decode(*req.Params, &p) != nil {
		return
	}
	r.mu.Lock()
	cancel := r.asked[p.RequestID]
	r.mu.Unlock()
	if cancel != nil {
		cancel(errCancelled)
	}
}

// may refuses what changes something: where the rules of the host do, and once the turn is cancelled.
func (r *run) may(kind wire.ToolKind) error {
	if r.until.Err() != nil {
		return errors.New("the turn is cancelled: end it")
	}
	return r.Rules.denied(kind)
}

// answer does what the agent asks for.
func (r *run) answer(ctx context.Context, req *jsonrpc2.Request) (any, error) {
	nothing := struct{}{}
	switch req.Method {
	case wire.RequestPermission:
		return on(req, func(p wire.RequestPermissionRequest) (any, error) { return r.permission(ctx, p) })
	case wire.ReadTextFile:
		return on(req, func(p wire.ReadTextFileRequest) (any, error) {
			if err := r.Rules.denied(wire.ToolKindRead); err != nil {
				return nil, err
			}
			return r.files.read(p)
		})
	case wire.WriteTextFile:
		return on(req, func(p wire.WriteTextFileRequest) (any, error) {
			if err := r.may(wire.ToolKindEdit); err != nil {
				return nil, err
			}
			return nothing, r.files.write(p)
		})
	case wire.TerminalCreate:
		return on(req, func(p wire.CreateTerminalRequest) (any, error) {
			if err := r.may(wire.ToolKindExecute); err != nil {
				return nil, err
			}
			return r.terminals.create(p)
		})
	case wire.TerminalOutput:
		return on(req, func(p wire.TerminalOutputRequest) (any, error) { return r.terminals.output(p.TerminalID) })
	case wire.TerminalWait:
		return on(req, func(p wire.WaitForTerminalExitRequest) (any, error) { return r.terminals.wait(ctx, p.TerminalID) })
	case wire.TerminalKill:
		return on(req, func(p wire.KillTerminalRequest) (any, error) { return nothing, r.terminals.kill(p.TerminalID) })
	case wire.TerminalRelease:
		return on(req, func(p wire.ReleaseTerminalRequest) (any, error) { return nothing, r.terminals.release(p.TerminalID) })
	}
	return nil, problem(jsonrpc2.CodeMethodNotFound, "there is no method %s here", label(req.Method))
}

// on reads the parameters of a request.
func on[P any](req *jsonrpc2.Request, act func(P) (any, error)) (any, error) {
	var p P
	if req.Params == nil {
		return nil, invalid("%s has no parameters", req.Method)
	}
	if err := wire.Decode(*req.Params, &p); err != nil {
		return nil, invalid("the parameters of %s cannot be read: %v", req.Method, err)
	}
	return act(p)
}
