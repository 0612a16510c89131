package acp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

// maxRequests bounds the requests of an agent that are under way.
const maxRequests = 64

// A run is one attempt.
type run struct {
	*Adapter
	transcript *transcript
	desk       *desk
	stderr     *tail
	files      *files
	terminals  *terminals
	agent      *agent
	lines      *lines
	conn       *jsonrpc2.Conn
	slots      chan struct{}

	can     wire.InitializeResponse
	resumed bool            // the session is one of an attempt before
	authed  bool            // it was tried to log in
	until   context.Context // ends when the attempt is to end

	mu      sync.Mutex
	session wire.SessionID
	replay  bool // what comes was said before
	usage   *usage
	asked   map[jsonrpc2.ID]context.CancelCauseFunc // requests of the agent that are under way
}

func newRun(a *Adapter) *run {
	r := &run{Adapter: a, transcript: newTranscript(a.Stdout), stderr: &tail{most: 8 << 10}, slots: make(chan struct{}, maxRequests),
		asked: map[jsonrpc2.ID]context.CancelCauseFunc{}}
	r.desk = newDesk(a.Door, r.transcript.note)
	if k, ok := keptBefore(a.Before); ok {
		r.desk.kept = k // before the agent asks anything: what was answered in an attempt before is no answer to what it asks now
	}
	return r
}

// work does the task.
func (r *run) work(ctx context.Context) end {
	if e, ok := r.start(ctx); !ok {
		return e
	}
	defer r.agent.stop()
	defer r.conn.Close()
	defer r.terminals.close()
	defer r.files.root.Close()

	begin, done := context.WithTimeout(ctx, r.Begin)
	defer done()
	if err := r.initialize(begin); err != nil {
		return r.failed(ctx, wire.Initialize, err)
	}
	if method, err := r.open(begin); err != nil {
		return r.failed(ctx, method, err)
	}
	r.desk.session(ctx, string(r.session))
	stop, err := r.prompt(ctx)
	if err != nil {
		return r.failed(ctx, wire.SessionPrompt, err)
	}
	return stopped(stop)
}

// start starts the agent and connects to it.
func (r *run) start(ctx context.Context) (e end, ok bool) {
	var err error
	if r.files, err = openFiles(r.Dir); err != nil {
		return end{code: Failed, reason: fmt.Sprintf("the working directory cannot be opened: %v", err)}, false
	}
	r.terminals = &terminals{files: r.files, list: map[wire.TerminalID]*terminal{}}
	if r.agent, err = startAgent(r.Argv, r.Env, r.Dir, io.MultiWriter(r.Stderr, r.stderr)); err != nil {
		r.files.root.Close()
		return cannotStart(r.Argv, err), false
	}
	r.lines = newLines(r.agent.out, r.agent.in, func(what string) { r.transcript.note("%s", what) })
	r.until = ctx
	r.conn = jsonrpc2.NewConn(context.WithoutCancel(ctx), r.lines, r, jsonrpc2.SetLogger(r.lines))
	return end{}, true
}

// call asks the agent.
func (r *run) call(ctx context.Context, method string, params, result any) error {
	var raw rawResult
	err := r.conn.Call(ctx, method, params, &raw)
	if err == nil && result != nil {
		err = wire.Decode(raw, result)
	}
	return err
}

// rawResult is a result as it came.
type rawResult []byte

// UnmarshalJSON takes it as it is.
func (r *rawResult) UnmarshalJSON(raw []byte) error {
	*r = append((*r)[:0], raw...)
	return nil
}

// stopped is the end by a stop reason.
func stopped(stop wire.StopReason) end {
	e := end{code: Failed, stop: stop}
	switch stop {
	case wire.StopReasonEndTurn:
		e.code = Done
	case wire.StopReasonCancelled:
		e.code, e.reason = Cancelled, "the turn was cancelled"
	case wire.StopReasonMaxTokens:
		e.reason = "the agent has stopped: it has used up its tokens (max_tokens)"
	case wire.StopReasonMaxTurnRequests:
		e.reason = "the agent has stopped: it has made as many requests as a turn may have (max_turn_requests)"
	case wire.StopReasonRefusal:
		e.reason = "the agent refuses the task (refusal)"
	default:
		e.reason = fmt.Sprintf("the agent has stopped for a reason that is not known here: %q", label(string(stop)))
	}
	return e
}

// failed is the end by an error of a request.
func (r *run) failed(ctx context.Context, method string, err error) end {
	said, answered := errors.AsType[*jsonrpc2.Error](err)
	wrong := r.lines.wrong()
	switch {
	case ctx.Err() != nil:
		return end{code: Cancelled, reason: "it was ended before the agent had answered " + method}
	case answered && said.Code == wire.AuthRequired:
		return end{code: Unavailable, final: true, reason: "the agent is not logged in on this host: " + r.ways(said.Message)}
	case answered:
		return end{code: Failed, reason: fmt.Sprintf("the agent answered %s with an error: %s", method, errorText(said))}
	case errors.Is(err, errVersion):
		return end{code: Unavailable, final: true, reason: err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return end{code: Odd, reason: fmt.Sprintf("the agent has not answered %s in %s%s", method, r.Begin.Round(time.Millisecond), lastWords(r.stderr))}
	case wrong != nil:
		return end{code: Odd, reason: wrong.Error()}
	}
	how, code, gone := r.agent.ended(endPatience)
	switch {
	case gone && code == Limited:
		return end{code: Limited, reason: "the agent has met a limit" + lastWords(r.stderr)}
	case gone:
		return end{code: Odd, reason: fmt.Sprintf("the agent %s before it had answered %s%s", how, method, lastWords(r.stderr))}
	case errors.Is(err, jsonrpc2.ErrClosed):
		return end{code: Odd, reason: fmt.Sprintf("the agent has closed its output before it had answered %s%s", method, lastWords(r.stderr))}
	}
	return end{code: Odd, reason: fmt.Sprintf("the answer of the agent to %s cannot be read: %v", method, err)}
}

// errorText are the words of an error, with what it has for programs.
func errorText(e *jsonrpc2.Error) string {
	text := label(e.Message)
	if e.Data != nil && string(*e.Data) != "null" {
		text += " " + label(string(*e.Data))
	}
	return fmt.Sprintf("%s (%d)", text, e.Code)
}
