// Package acp has a coding agent that speaks the Agent Client Protocol do the work of an attempt.
//
// It runs where the agent runs, and with its rights: the spoke starts this program, confined as every agent is, and that starts the coding agent. So the
// daemon of the spoke reads nothing that a coding agent writes, and whatever is done for it with files and programs is done in its cage. With the spoke it
// talks by the door of the attempt, as any agent may.
package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"regexp"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
	"github.com/spawnmesh/spawnmesh/spoke/door"
)

// Exit codes of an attempt.
const (
	Done        = 0
	Failed      = 1
	Unavailable = 69  // the agent cannot work as this host is: nobody is logged in, or there is no such program (EX_UNAVAILABLE)
	Limited     = 75  // it has met a limit of its provider, as with every agent (EX_TEMPFAIL)
	Odd         = 76  // it does not speak the protocol (EX_PROTOCOL)
	Cancelled   = 143 // as of a program that SIGTERM ends
)

// Version is that of the protocol that is spoken.
const Version = wire.Version

// An Adapter has a coding agent do one task.
type Adapter struct {
	Argv    []string // the coding agent
	Dir     string   // where it works, absolute
	Prompt  string
	Changes string   // what a review wants of what was delivered before; "" = there was none
	Inputs  []string // paths that it is told of
	Rules   Rules
	AskFor  time.Duration    // how long a person is waited for; 0 = a day
	Auth    string           // how the agent is logged in to that asks for it, one of its own methods; "" = not at all
	Env     []string         // of the agent; nil = that of this process
	Session string           // of an attempt before; "" = none
	Before  []byte           // what an attempt before has kept; nil = nothing
	Attempt int              // which one of its task this is
	Limits  []*regexp.Regexp // words of an agent that fails by a limit of its provider
	Begin   time.Duration    // how long it may take until it has a session; 0 = two minutes
	Grace   time.Duration    // how long a turn may take to end that is cancelled; 0 = three seconds
	Door    *door.Client     // nil = nobody is told
	Stdout  io.Writer        // gets the transcript
	Stderr  io.Writer        // gets what the agent writes there
	Name    string           // and version of this program, as the agent is told
	Release string
}

// An end is how an attempt has ended.
type end struct {
	code   int
	reason string
	final  bool // it is of no use to try again
	stop   wire.StopReason
}

// Run does the task and returns the exit code. When ctx ends the turn is cancelled first, then the agent is ended.
func (a *Adapter) Run(ctx context.Context) int {
	a.fill()
	r := newRun(a)
	talk, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	work, stop := context.WithCancel(ctx)
	defer stop()
	told := make(chan struct{})
	go func() { defer close(told); r.desk.tell(talk, stop) }()

	e := r.limited(r.work(work))

	hangUp()
	<-told
	r.tell(e)
	return e.code
}

func (a *Adapter) fill() {
	a.AskFor, a.Begin, a.Grace = cmp.Or(a.AskFor, commands.DefaultQuestionFor), cmp.Or(a.Begin, 2*time.Minute), cmp.Or(a.Grace, 3*time.Second)
	a.Name, a.Release = cmp.Or(a.Name, "spawnmesh"), cmp.Or(a.Release, "0")
}

// limited is e as the end by a limit, where the error of the agent says that it was one. One that has ended its turn has met none, whatever it writes of limits.
func (r *run) limited(e end) end {
	if e.stop != "" || e.code == Cancelled || e.code == Limited {
		return e
	}
	stderr, _ := r.stderr.text()
	for _, text := range []string{e.reason, stderr} {
		for _, words := range r.Limits {
			if words.MatchString(text) {
				return end{code: Limited, reason: e.reason}
			}
		}
	}
	return e
}

// data is what programs read of the end.
type data struct {
	Session    string          `json:"session,omitempty"`
	StopReason wire.StopReason `json:"stop_reason,omitempty"`
	Usage      *usage          `json:"usage,omitempty"`
}

type usage struct {
	Used int64      `json:"used"` // of the context, in tokens
	Size int64      `json:"size"`
	Cost *wire.Cost `json:"cost,omitempty"` // of the session
}

// tell says how it ended, to the spoke and in the transcript.
func (r *run) tell(e end) {
	summary := r.transcript.end()
	if e.code == Done {
		r.mu.Lock()
		raw, _ := json.Marshal(data{Session: string(r.session), StopReason: e.stop, Usage: r.usage})
		r.mu.Unlock()
		r.desk.end("/v1/done", door.Done{Summary: summary, Data: string(raw)})
		return
	}
	reason := commands.Clean(plain(e.reason), commands.MaxSummary)
	r.transcript.note("%s", reason)
	r.desk.end("/v1/fail", door.Failed{Reason: reason, Final: e.final})
}
