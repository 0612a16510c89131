package main

import (
	"io"
	"sync"
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

// share lets standard error end in a line of progress, until restore is called; with inPlace one
// line of a terminal. Whoever shares it already goes on to.
func (a *app) share(inPlace bool) (shared *sharedErr, restore func()) {
	if shared, ok := a.err.(*sharedErr); ok {
		return shared, shared.end
	}
	out, err, screen := a.out, a.err, terminal(a.err)
	shared = &sharedErr{to: err, inPlace: inPlace && screen, screen: screen}
	if a.err = shared; screen && terminal(out) {
		a.out = sharedOut{shared, out}
	}
	return shared, func() {
		shared.end()
		a.out, a.err = out, err
	}
}
