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
		if req.Method == wire.SessionUpdated {
			r.updated(req)
		}
		return
	}
	select {
	case r.slots <- struct{}{}:
	default:
		_ = conn.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError, Message: fmt.Sprintf("%d requests are under way already", maxRequests)})
		return
	}
	go func() {
		defer func() { <-r.slots }()
		result, err := r.answer(ctx, req)
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

// answer does what the agent asks for.
func (r *run) answer(ctx context.Context, req *jsonrpc2.Request) (any, error) {
	nothing := struct{}{}
	switch req.Method {
	case wire.RequestPermission:
		return on(req, func(p wire.RequestPermissionRequest) (any, error) { return r.permission(ctx, p), nil })
	case wire.ReadTextFile:
		return on(req, func(p wire.ReadTextFileRequest) (any, error) {
			if err := r.Rules.denied(wire.ToolKindRead); err != nil {
				return nil, err
			}
			return r.files.read(p)
		})
	case wire.WriteTextFile:
		return on(req, func(p wire.WriteTextFileRequest) (any, error) {
			if err := r.Rules.denied(wire.ToolKindEdit); err != nil {
				return nil, err
			}
			return nothing, r.files.write(p)
		})
	case wire.TerminalCreate:
		return on(req, func(p wire.CreateTerminalRequest) (any, error) {
			if err := r.Rules.denied(wire.ToolKindExecute); err != nil {
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
