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

// open takes up the session of an attempt before, or begins one. It returns the method that was called last.
func (r *run) open(ctx context.Context) (method string, err error) {
	none := []json.RawMessage{}
	if r.Session != "" {
		r.in(wire.SessionID(r.Session), true)
		c := r.can.AgentCapabilities
		switch {
		case c != nil && c.SessionCapabilities != nil && c.SessionCapabilities.Resume != nil:
			method, err = wire.SessionResume, r.call(ctx, wire.SessionResume, wire.ResumeSessionRequest{SessionID: r.session, Cwd: r.Dir, McpServers: none}, nil)
		case c != nil && c.LoadSession:
			method, err = wire.SessionLoad, r.call(ctx, wire.SessionLoad, wire.LoadSessionRequest{SessionID: r.session, Cwd: r.Dir, McpServers: none}, nil)
		default:
			method, err = wire.SessionLoad, &jsonrpc2.Error{Message: "it cannot take up sessions"}
		}
		said, answered := errors.AsType[*jsonrpc2.Error](err)
		r.in(wire.SessionID(r.Session), false)
		if err == nil || !answered || said.Code == wire.AuthRequired {
			r.resumed = err == nil
			return method, err
		}
		r.transcript.note("the session %s of the attempt before is not taken up, a new one is begun: %s", label(r.Session), label(said.Message))
	}
	r.in("", false)
	var made wire.NewSessionResponse
	err = r.call(ctx, wire.SessionNew, wire.NewSessionRequest{Cwd: r.Dir, McpServers: none}, &made)
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

// prompt has the agent do the work. When ctx ends the turn is cancelled, and may end as the protocol says.
func (r *run) prompt(ctx context.Context) (wire.StopReason, error) {
	turn, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(r.Grace, func() {
			over()
			_ = r.lines.Close() // whoever writes to an agent that does not read
		})
		_ = r.conn.Notify(turn, wire.SessionCancel, wire.CancelNotification{SessionID: r.session})
	})()
	var resp wire.PromptResponse
	err := r.call(turn, wire.SessionPrompt, wire.PromptRequest{SessionID: r.session, Prompt: r.words(ctx)}, &resp)
	return resp.StopReason, err
}

// words are what the agent is told: the task, what an attempt before has left, and the inputs.
func (r *run) words(ctx context.Context) []wire.ContentBlock {
	text := r.Prompt
	if r.resumed {
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
	var k kept
	if json.Unmarshal(r.Before, &k) == nil && k.Version == 1 {
		r.desk.keep(func(now *kept) {
			for digest, n := range k.Answers {
				now.Answers[digest] = max(now.Answers[digest], n)
			}
		})
		text = strings.TrimSpace(strings.Join(k.Plan, "\n") + "\n\n" + k.Said)
	}
	if text == "" {
		return ""
	}
	return "\n\nAn earlier attempt at this task was interrupted. What it left is in the working directory, as far as that was kept. Its last words were:\n\n" + commands.Clean(text, 32<<10)
}
