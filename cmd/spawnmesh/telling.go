package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// telling says on standard error how an agent stands, now and whenever that changes, until stop
// is called. With inPlace a terminal shows only how it stands now.
func (a *app) telling(ctx context.Context, c *control.Client, id string, inPlace bool) (stop func()) {
	if !a.forPeople() {
		return func() {}
	}
	shared, restore := a.share(inPlace)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t := teller{a: a, c: c, id: id, to: shared}
		for ctx.Err() == nil && !t.once(ctx) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second / 2):
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		restore()
	}
}

// A teller says how one agent stands.
type teller struct {
	a    *app
	c    *control.Client
	id   string
	to   *sharedErr
	said string // what the last line was about
}

// once says how the agent stands if that has changed, and reports whether it has ended. A hub
// that does not answer is spoken of by who waits for the agent.
func (t *teller) once(ctx context.Context) (ended bool) {
	v, err := agentNamed(ctx, t.c, t.id)
	if err != nil {
		return false
	}
	if v.State.Terminal() {
		return true
	}
	conn, err := connectionNamed(ctx, t.c, v.Conn)
	if err != nil {
		return false
	}
	first := hub.Why(v.AgentView, conn.SpokeView)[0]
	about := fmt.Sprint(v.Conn, v.State, v.Attempt, v.AcceptedAt != nil, conn.State, conn.Linked, first.Code)
	if about == t.said {
		return false
	}
	t.said = about
	t.to.progress(printable(fmt.Sprintf("%s on %s: %s", commands.ShortID(v.Task), v.Spoke, t.stands(v.AgentView, first))))
	return false
}

// stands says of an agent that has not ended what it waits for first, or that it runs. Where it waits for a person that is with what is typed.
func (t *teller) stands(v hub.AgentView, first commands.WhyReason) string {
	said := strings.TrimPrefix(first.Text, v.Spoke+": ") // the line has named it
	if v.Reviewed() {
		v.Result = nil // what it has said is in its output
		said = v.Clause()
	}
	if v.State != commands.Queued && v.Attempt > 1 {
		said = fmt.Sprintf("attempt %d, %s", v.Attempt, said)
	}
	switch {
	case v.State == commands.AwaitingInput:
		said += ": " + t.a.line("inbox")
	case v.Reviewed():
		said += ": " + t.a.pasted(first.Fix)
	}
	return said
}
