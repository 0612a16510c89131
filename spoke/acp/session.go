package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

var errVersion = errors.New("the agent does not speak version 1 of the protocol")

// initialize greets the agent: which version is spoken, and who can do what.
func (r *run) initialize(ctx context.Context) error {
	err := r.call(ctx, wire.Initialize, wire.InitializeRequest{ProtocolVersion: Version,
		ClientInfo: &wire.Implementation{Name: r.Name, Version: r.Release},
		ClientCapabilities: &wire.ClientCapabilities{Terminal: r.Rules.denied(wire.ToolKindExecute) == nil,
			Fs: &wire.FileSystemCapabilities{ReadTextFile: r.Rules.denied(wire.ToolKindRead) == nil, WriteTextFile: r.Rules.denied(wire.ToolKindEdit) == nil}}}, &r.can)
	if err == nil && r.can.ProtocolVersion != Version {
		err = fmt.Errorf("%w: it speaks %d", errVersion, r.can.ProtocolVersion)
	}
	return err
}

// ways are the agent's own words on how to log in.
func (r *run) ways(message string) string {
	list := []string{label(message)}
	for _, m := range r.can.AuthMethods {
		list = append(list, strings.TrimSpace(label(m.Name)+" "+label(m.Description)))
	}
	return commands.Clean(strings.Join(list, "; "), 1000)
}

// loggedIn is call; where the agent wants to be logged in to, and the host has said how, that is done once before.
func (r *run) loggedIn(ctx context.Context, method string, params, result any) error {
	err := r.call(ctx, method, params, result)
	if said, ok := errors.AsType[*jsonrpc2.Error](err); !ok || said.Code != wire.AuthRequired || r.Auth == "" || r.authed {
		return err
	}
	r.authed = true
	if err := r.call(ctx, wire.Authenticate, wire.AuthenticateRequest{MethodID: wire.AuthMethodID(r.Auth)}, nil); err != nil {
		if said, ok := errors.AsType[*jsonrpc2.Error](err); ok {
			return &jsonrpc2.Error{Code: wire.AuthRequired, Message: fmt.Sprintf("logging in by %q: %s", r.Auth, errorText(said))}
		}
		return err
	}
	return r.call(ctx, method, params, result)
}

// open takes up the session of an attempt before, or begins one. It returns the method that was called last.
func (r *run) open(ctx context.Context) (method string, err error) {
	none := []json.RawMessage{}
	if r.Session != "" {
		r.in(wire.SessionID(r.Session), true)
		c := r.can.AgentCapabilities
		switch {
		case c != nil && c.SessionCapabilities != nil && c.SessionCapabilities.Resume != nil:
			method, err = wire.SessionResume, r.loggedIn(ctx, wire.SessionResume, wire.ResumeSessionRequest{SessionID: r.session, Cwd: r.Dir, McpServers: none}, nil)
		case c != nil && c.LoadSession:
			method, err = wire.SessionLoad, r.loggedIn(ctx, wire.SessionLoad, wire.LoadSessionRequest{SessionID: r.session, Cwd: r.Dir, McpServers: none}, nil)
		default:
			method, err = wire.SessionLoad, &jsonrpc2.Error{Message: "it cannot take up sessions"}
		}
		said, answered := errors.AsType[*jsonrpc2.Error](err)
		r.in(wire.SessionID(r.Session), false)
		if err == nil || !answered {
			r.resumed = err == nil
			return method, err
		}
		r.transcript.note("the session %s of the attempt before is not taken up, a new one is begun: %s", label(r.Session), label(said.Message))
	}
	r.in("", false)
	var made wire.NewSessionResponse
	err = r.loggedIn(ctx, wire.SessionNew, wire.NewSessionRequest{Cwd: r.Dir, McpServers: none}, &made)
	if err == nil && made.SessionID == "" {
		err = errors.New("it names no session")
	}
	r.in(made.SessionID, false)
	return wire.SessionNew, err
}

// in sets which session it is, "" = not known yet, and whether what the agent sends was said before.
func (r *run) in(session wire.SessionID, replay bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session, r.replay = session, replay
}

// prompt has the agent do the work. When ctx ends the turn is cancelled, and may end as the protocol says: what was refused then may be missing, so it is
// cancelled also where the agent says that it has come to its end.
func (r *run) prompt(ctx context.Context) (wire.StopReason, error) {
	turn, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	heard := context.AfterFunc(ctx, func() {
		time.AfterFunc(r.Grace, func() {
			over()
			_ = r.lines.Close() // whoever writes to an agent that does not read
		})
		_ = r.conn.Notify(turn, wire.SessionCancel, wire.CancelNotification{SessionID: r.session})
	})
	var resp wire.PromptResponse
	err := r.call(turn, wire.SessionPrompt, wire.PromptRequest{SessionID: r.session, Prompt: r.words(ctx)}, &resp)
	if !heard() && resp.StopReason == wire.StopReasonEndTurn {
		resp.StopReason = wire.StopReasonCancelled
	}
	return resp.StopReason, err
}

// words are what the agent is told: the task, what an attempt before has left, and the inputs. In a session that a review sends back it knows the
// task, and is told what is to be changed.
func (r *run) words(ctx context.Context) []wire.ContentBlock {
	text := commands.Rework(r.Prompt, r.Changes)
	switch {
	case r.resumed && r.Changes != "":
		text = r.Changes
	case r.resumed:
		text = "Your work on this task was interrupted. Look where it stands, and go on from there. The task is:\n\n" + text
	}
	if r.Attempt > 1 || len(r.Before) > 0 {
		if !r.resumed {
			text += r.before()
		}
		if list := r.desk.asked(ctx); len(list) > 0 {
			text += "\n\nPeople were asked before, and have answered:\n- " + strings.Join(list, "\n- ")
		}
	}
	blocks := []wire.ContentBlock{{Type: "text", Text: text}}
	for _, path := range r.Inputs {
		blocks = append(blocks, wire.ContentBlock{Type: "resource_link", Name: filepath.Base(path), Uri: (&url.URL{Scheme: "file", Path: path}).String()})
	}
	return blocks
}

// before are the words on what an attempt before has kept. Of another program it is any text.
func (r *run) before() string {
	if len(r.Before) == 0 {
		return ""
	}
	text := string(r.Before)
	if k, ok := keptBefore(r.Before); ok {
		text = strings.TrimSpace(strings.Join(k.Plan, "\n") + "\n\n" + k.Said)
	}
	if text == "" {
		return ""
	}
	return "\n\nWhat an earlier attempt at this task left is in the working directory, as far as that was kept. Its last words were:\n\n" + commands.Clean(text, 32<<10)
}
