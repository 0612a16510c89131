// Package acptest is a coding agent for tests: a program that speaks the Agent Client Protocol as its flags and its prompt say,
// also wrongly. It is a mode of test binaries, see [Main]. The JSON that it speaks is written by hand, so that what it says is not made of the types that read it.
//
// Its tests are those of spoke/acp, which it is for.
package acptest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// Mode is the first argument of a test binary that is to be the agent.
const Mode = "acp-agent"

// Main is the agent, where the arguments of this process say so; else it returns.
func Main() {
	if len(os.Args) < 2 || os.Args[1] != Mode {
		return
	}
	a := &agent{ready: make(chan struct{}), cancelled: make(chan struct{})}
	f := flag.NewFlagSet(Mode, flag.ExitOnError)
	f.IntVar(&a.version, "version", 1, "speak this version")
	f.BoolVar(&a.load, "load", false, "can load sessions")
	f.BoolVar(&a.resume, "resume", false, "can resume sessions")
	f.BoolVar(&a.auth, "auth", false, "want to be logged in to")
	f.StringVar(&a.authAt, "auth-at", "", "want to be logged in to at this method")
	f.StringVar(&a.busy, "busy", "", "begin a session with a program that goes on, whose pid is in this file")
	f.BoolVar(&a.stubborn, "stubborn", false, "go on after session/cancel, and end the turn as if nothing was")
	f.StringVar(&a.dieAt, "die-at", "", "exit with code 3 at this method")
	f.StringVar(&a.hangAt, "hang-at", "", "do not answer this method")
	f.StringVar(&a.wrongAt, "wrong-at", "", "answer this method with what cannot be read")
	f.StringVar(&a.errorAt, "error-at", "", "answer this METHOD=TEXT with an error")
	f.StringVar(&a.state, "state", "", "note in this file what is asked")
	f.BoolVar(&a.deaf, "deaf", false, "go on after session/cancel and the end of input")
	rubbish := f.Int("rubbish", 0, "print so many lines first")
	_ = f.Parse(os.Args[2:])
	for n := range *rubbish {
		fmt.Println("need to install the following packages", n)
	}
	a.conn = jsonrpc2.NewConn(context.Background(), jsonrpc2.NewPlainObjectStream(stdio{os.Stdin, os.Stdout}), a)
	close(a.ready)
	<-a.conn.DisconnectNotify()
	a.note("closed")
	if a.deaf {
		time.Sleep(time.Hour)
	}
	os.Exit(0)
}

type stdio struct {
	io.ReadCloser
	io.Writer
}

type object map[string]any

type agent struct {
	version                                int
	load, resume, auth, deaf, stubborn     bool
	dieAt, hangAt, wrongAt, errorAt, state string
	authAt, busy                           string

	conn      *jsonrpc2.Conn
	session   string
	taken     bool          // the session is one of before
	ready     chan struct{} // closed once conn is known
	cancelled chan struct{}
	once      sync.Once
}

// note writes what was asked of it into its file.
func (a *agent) note(text string) {
	if a.state == "" {
		return
	}
	f, err := os.OpenFile(a.state, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = fmt.Fprintln(f, text)
		_ = f.Close()
	}
}

// Handle answers the client.
func (a *agent) Handle(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	<-a.ready
	a.note(req.Method)
	var p struct {
		SessionID string            `json:"sessionId"`
		MethodID  string            `json:"methodId"`
		Cwd       string            `json:"cwd"`
		Prompt    []json.RawMessage `json:"prompt"`
	}
	if req.Params != nil {
		_ = json.Unmarshal(*req.Params, &p)
	}
	errorAt, text, _ := strings.Cut(a.errorAt, "=")
	switch req.Method {
	case a.dieAt:
		fmt.Fprintln(os.Stderr, "the agent has a defect")
		os.Exit(3)
	case a.hangAt:
		return
	case a.wrongAt:
		_ = conn.Reply(ctx, req.ID, []int{1})
		return
	case a.authAt:
		_ = conn.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: -32000, Message: "please log in"})
		return
	case errorAt:
		_ = conn.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: -32603, Message: text})
		return
	}
	switch req.Method {
	case "initialize":
		can := object{"loadSession": a.load}
		if a.resume {
			can["sessionCapabilities"] = object{"resume": object{}, "x": 1}
		}
		_ = conn.Reply(ctx, req.ID, object{"protocolVersion": a.version, "agentCapabilities": can, "agentInfo": object{"name": "test", "version": "7"},
			"authMethods": []object{{"id": "login", "name": "Run", "description": "test login in a terminal"}}, "future": true})
	case "authenticate":
		if p.MethodID != "login" {
			_ = conn.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: -32602, Message: "no such way"})
			return
		}
		a.auth, a.authAt = false, ""
		_ = conn.Reply(ctx, req.ID, object{})
	case "session/new":
		if a.auth {
			_ = conn.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: -32000, Message: "please log in"})
			return
		}
		a.session = "s-" + filepath.Base(p.Cwd)
		if a.busy != "" {
			go func() {
				a.ask(ctx, "terminal/create", object{"command": "echo $$ >" + a.busy + "; exec sleep 600"})
				for raw := []byte(nil); len(raw) == 0; raw, _ = os.ReadFile(a.busy) {
					time.Sleep(10 * time.Millisecond)
				}
				_ = conn.Reply(ctx, req.ID, object{"sessionId": a.session})
			}()
			return
		}
		_ = conn.Reply(ctx, req.ID, object{"sessionId": a.session})
	case "session/load", "session/resume":
		a.session, a.taken = p.SessionID, true
		if p.SessionID == "gone" {
			_ = conn.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: -32002, Message: "no such session"})
			return
		}
		a.update(object{"sessionUpdate": "agent_message_chunk", "content": object{"type": "text", "text": "said before\n"}})
		_ = conn.Reply(ctx, req.ID, object{})
	case "session/prompt":
		go a.prompt(ctx, req, p.Prompt)
	case "session/cancel":
		a.once.Do(func() { close(a.cancelled) })
	}
}

// update tells the client something.
func (a *agent) update(u object) {
	_ = a.conn.Notify(context.Background(), "session/update", object{"sessionId": a.session, "update": u})
}

func (a *agent) say(format string, args ...any) {
	a.update(object{"sessionUpdate": "agent_message_chunk", "content": object{"type": "text", "text": fmt.Sprintf(format, args...)}})
}

// prompt does what the lines of its prompt say that begin with "do ".
func (a *agent) prompt(ctx context.Context, req *jsonrpc2.Request, blocks []json.RawMessage) {
	for _, b := range blocks {
		a.note("prompt " + string(b))
	}
	var first struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(blocks[0], &first)
	stop := "end_turn"
	for line := range strings.Lines(first.Text) {
		act, ok := strings.CutPrefix(strings.TrimSpace(line), "do ")
		if !ok {
			continue
		}
		if s := a.act(ctx, req, strings.Fields(act)); s != "" {
			stop = s
			break
		}
		if a.isCancelled() {
			stop = "cancelled"
			break
		}
	}
	_ = a.conn.Reply(ctx, req.ID, object{"stopReason": stop, "usage": object{"x": 1}})
}

func (a *agent) isCancelled() bool {
	select {
	case <-a.cancelled:
		return !a.deaf && !a.stubborn
	default:
		return false
	}
}

// ask calls the client and says what it has answered.
func (a *agent) ask(ctx context.Context, method string, params object) (result object) {
	params["sessionId"] = a.session
	err := a.conn.Call(ctx, method, params, &result)
	raw, _ := json.Marshal(result)
	if err != nil {
		a.say("%s: error %v\n", method, err)
		return nil
	}
	a.say("%s: %s\n", method, raw)
	return result
}

// permission is whether a tool may be used.
func permission(kind, title string) object {
	return object{"toolCall": object{"toolCallId": "c2", "title": title, "kind": kind, "rawInput": object{"of": title}},
		"options": []object{{"optionId": "yes", "name": "Allow", "kind": "allow_once"}, {"optionId": "no", "name": "Reject", "kind": "reject_once"}}}
}

// act does one thing; what it returns ends the turn.
func (a *agent) act(ctx context.Context, req *jsonrpc2.Request, w []string) (stop string) {
	rest := func(n int) string { return strings.Join(w[min(n, len(w)):], " ") }
	number := func(n int) (i int) {
		if n < len(w) {
			_, _ = fmt.Sscan(w[n], &i)
		}
		return i
	}
	switch w[0] {
	case "say":
		a.say("%s\n", strings.ReplaceAll(rest(1), `\e`, "\x1b"))
	case "plan":
		var entries []object
		for n := range number(2) {
			status := "pending"
			if n < number(1) {
				status = "completed"
			} else if n == number(1) {
				status = "in_progress"
			}
			entries = append(entries, object{"content": fmt.Sprint("step ", n+1), "priority": "high", "status": status})
		}
		a.update(object{"sessionUpdate": "plan", "entries": entries})
	case "usage":
		a.update(object{"sessionUpdate": "usage_update", "used": number(1), "size": number(2), "cost": object{"amount": 0.5, "currency": "USD"}})
	case "tool":
		a.update(object{"sessionUpdate": "tool_call", "toolCallId": "c1", "title": rest(2), "kind": w[1], "status": "in_progress"})
		a.update(object{"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"})
	case "odd": // updates that are not as they should be
		a.update(object{"sessionUpdate": "x_future", "content": 7})
		a.update(object{"sessionUpdate": "plan", "entries": "none"})
		a.update(object{"sessionUpdate": "tool_call", "toolCallId": 7, "title": object{}, "kind": "x_future", "status": nil})
		_ = a.conn.Notify(ctx, "x/unknown", object{})
	case "may":
		a.ask(ctx, "session/request_permission", permission(w[1], rest(2)))
	case "doubt": // and does not want to know it any more after some time
		p := permission(w[2], rest(3))
		p["sessionId"] = a.session
		id := jsonrpc2.ID{Str: "doubt", IsString: true}
		call, err := a.conn.DispatchCall(ctx, "session/request_permission", p, jsonrpc2.PickID(id))
		if err == nil {
			time.Sleep(time.Duration(number(1)) * time.Millisecond)
			_ = a.conn.Notify(ctx, "$/cancel_request", object{"requestId": "doubt"})
			err = call.Wait(ctx, nil)
		}
		a.say("doubted: %v\n", err)
	case "read":
		p := object{"path": w[1]}
		if len(w) > 3 {
			p["line"], p["limit"] = number(2), number(3)
		}
		a.ask(ctx, "fs/read_text_file", p)
	case "write":
		a.ask(ctx, "fs/write_text_file", object{"path": w[1], "content": rest(2)})
	case "run":
		made := a.ask(ctx, "terminal/create", object{"command": w[1], "args": w[2:], "outputByteLimit": 10, "env": []object{{"name": "X", "value": "y"}}})
		id := object{"terminalId": made["terminalId"]}
		for _, method := range []string{"wait_for_exit", "output", "kill", "release", "output"} {
			a.ask(ctx, "terminal/"+method, id)
		}
	case "line": // a whole line is the command
		made := a.ask(ctx, "terminal/create", object{"command": rest(1)})
		id := object{"terminalId": made["terminalId"]}
		a.ask(ctx, "terminal/wait_for_exit", id)
		a.ask(ctx, "terminal/output", id)
	case "end": // a program that goes on
		made := a.ask(ctx, "terminal/create", object{"command": "sleep", "args": []string{"600"}})
		id := object{"terminalId": made["terminalId"]}
		a.ask(ctx, "terminal/kill", id)
		a.ask(ctx, "terminal/wait_for_exit", id)
	case "call":
		a.ask(ctx, w[1], object{})
	case "wait":
		select {
		case <-time.After(time.Duration(number(1)) * time.Millisecond):
		case <-a.cancelled:
			if a.deaf {
				time.Sleep(time.Hour)
			}
			a.note("was cancelled")
		}
	case "hold": // but not in a session that was taken up
		if !a.taken {
			return a.act(ctx, req, []string{"wait", "600000"})
		}
	case "spawn": // what it leaves behind
		a.ask(ctx, "terminal/create", object{"command": "sleep", "args": []string{w[1]}})
	case "twice":
		_ = a.conn.Reply(ctx, req.ID, object{"stopReason": "end_turn"})
	case "stray":
		_ = a.conn.Reply(ctx, jsonrpc2.ID{Num: 4711}, object{})
	case "rubbish":
		for range number(1) {
			_, _ = os.Stdout.WriteString("{\"jsonrpc\": \"2.0\", rubbish\n")
		}
	case "large":
		if rest(2) == "update" {
			a.say("%s", strings.Repeat("x", number(1)<<20))
		} else {
			a.ask(ctx, "x/large", object{"x": strings.Repeat("x", number(1)<<20)})
		}
	case "flood":
		for range number(1) {
			go a.ask(ctx, "terminal/wait_for_exit", object{"terminalId": "t1"})
		}
	case "stderr":
		fmt.Fprintln(os.Stderr, rest(1))
	case "close":
		_ = os.Stdout.Close()
		time.Sleep(time.Hour)
	case "exit":
		os.Exit(number(1))
	case "stop":
		return w[1]
	}
	return ""
}
