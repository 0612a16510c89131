package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// A sharedErr is standard error that a line of progress stands at the end of, where it is a terminal.
type sharedErr struct {
	to      io.Writer
	mu      sync.Mutex // guards what follows, and writes
	inPlace bool
	shown   bool // a line of progress that the next one, or anything else, replaces
	screen  bool // it is a terminal
	begun   bool // the terminal shows the beginning of a line, whose end is still to come
}

// A sharedOut is standard output on the same terminal.
type sharedOut struct {
	err *sharedErr
	to  io.Writer
}

// Write writes p where the line of progress stands.
func (o sharedOut) Write(p []byte) (int, error) { return o.err.write(o.to, p) }

const clearLine = "\r\x1b[K"

// Write writes p where the line of progress stands.
func (s *sharedErr) Write(p []byte) (int, error) { return s.write(s.to, p) }

func (s *sharedErr) write(to io.Writer, p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.clear(); err != nil {
		return 0, err
	}
	if len(p) > 0 {
		s.begun = s.screen && p[len(p)-1] != '\n'
	}
	return to.Write(p)
}

func (s *sharedErr) clear() error {
	if !s.shown {
		return nil
	}
	s.shown = false
	_, err := io.WriteString(s.to, clearLine)
	return err
}

// begin makes what is written next begin a line on a terminal. The caller holds mu.
func (s *sharedErr) begin() {
	_ = s.clear() // who cannot read it misses nothing that counts
	if s.begun {
		_, _ = io.WriteString(s.to, "\n")
		s.begun = false
	}
}

// end leaves the terminal to what comes after the last line of progress.
func (s *sharedErr) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
}

// progress shows text in place of the line of progress, or as a line of its own.
func (s *sharedErr) progress(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	if !s.inPlace {
		_, _ = io.WriteString(s.to, text+"\n")
		return
	}
	_, _ = io.WriteString(s.to, shorten(text, columnsOf(s.to)-1))
	s.shown = true
}

// telling says on standard error how an agent stands, now and whenever that changes, until stop
// is called. With inPlace a terminal shows only how it stands now.
func (a *app) telling(ctx context.Context, c *control.Client, id string, inPlace bool) (stop func()) {
	if !a.forPeople() {
		return func() {}
	}
	out, err, screen := a.out, a.err, terminal(a.err)
	shared := &sharedErr{to: err, inPlace: inPlace && screen, screen: screen}
	if a.err = shared; screen && terminal(out) {
		a.out = sharedOut{shared, out}
	}
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
		shared.end()
		a.out, a.err = out, err
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
	var v hub.AgentView
	if err := t.c.Do(ctx, "GET", "/api/v1/tasks/"+url.PathEscape(t.id), nil, &v); err != nil {
		return false
	}
	if v.State.Terminal() {
		return true
	}
	conn, err := connectionNamed(ctx, t.c, v.Conn)
	if err != nil {
		return false
	}
	about := fmt.Sprint(v.Conn, v.State, v.Attempt, v.AcceptedAt != nil, conn.State, conn.Linked, conn.Liveness == "dead", conn.StartsNone, conn.Full, conn.Differs, conn.Says.State, conn.Stopping, conn.Running >= conn.Slots)
	if about == t.said {
		return false
	}
	t.said = about
	t.to.progress(printable(fmt.Sprintf("%s on %s: %s", commands.ShortID(v.Task), v.Spoke, t.a.standsOnHub(v, conn))))
	return false
}

// standsOnHub says of an agent that has not ended what it waits for, or that it runs.
func (a *app) standsOnHub(v hub.AgentView, conn connectionView) string {
	if v.State == commands.Queued {
		return a.whyQueued(v, conn)
	}
	said := a.whyRunning(v, conn)
	if v.Attempt > 1 {
		said = fmt.Sprintf("attempt %d, %s", v.Attempt, said)
	}
	return said
}
